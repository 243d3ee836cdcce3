"""Local functions: their names, recursion, and how many nodes they expand to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from onnx import FunctionProto

from gdn_ir.file_checks.bad_model import BadModel, chain, domain, quote
from gdn_ir.file_checks.scope import Scope

# Nodes left after inlining every local function.
EXPANSION_LIMIT = 1_000_000


def check_functions(scopes: Sequence[Scope]) -> None:
    """Reject recursion and "billion laughs": 31 functions that expand to 2^30 nodes."""
    functions: set[tuple[str, str, str]] = set()
    for function in (scope.proto for scope in scopes if isinstance(scope.proto, FunctionProto)):
        key = (domain(function), function.name, function.overload)
        if not function.name:
            raise BadModel("a local function has no name; give it one")
        if key in functions:
            raise BadModel(f"duplicate function {quote('::'.join(key[:2]))}; keep one")
        functions.add(key)

    # Per function, and for the graph under the key ("", "", ""), which names no function.
    own_nodes: Counter[tuple[str, str, str]] = Counter()
    calls: dict[tuple[str, str, str], Counter[tuple[str, str, str]]] = defaultdict(Counter)
    for scope in scopes:
        root = scope.root.proto
        caller = ("", "", "")
        if isinstance(root, FunctionProto):
            caller = (domain(root), root.name, root.overload)
        own_nodes[caller] += len(scope.proto.node)
        callees = ((domain(node), node.op_type, node.overload) for node in scope.proto.node)
        calls[caller].update(callee for callee in callees if callee in functions)
    try:
        order = list(TopologicalSorter(calls).static_order())
    except CycleError as error:
        names = [name for _, name, _ in error.args[1]]
        raise BadModel(f"recursive local function: {chain(names)}; ONNX forbids it") from None
    size: dict[tuple[str, str, str], int] = {}
    for key in order:
        size[key] = own_nodes[key] + sum(times * size[c] for c, times in calls[key].items())
        if calls[key] and size[key] > EXPANSION_LIMIT:
            raise BadModel(
                f"local functions expand to more than {EXPANSION_LIMIT:,} nodes, in "
                f"{quote(key[1]) if key[1] else 'the graph'}; call them fewer times"
            )
