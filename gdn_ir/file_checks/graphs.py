"""What a parsed ONNX model must satisfy before anything builds a graph from it.

onnx_ir builds a graph out of nearly anything: an undefined input becomes a value without a
producer, of two initializers with one name the last wins, a cycle stays a cycle. The checks here
run on the protobuf itself; none of them recurses, and each is linear in the size of the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto

from gdn_ir.file_checks.bad_model import BadModel, bare, chain, domain, label, quote, span
from gdn_ir.file_checks.functions import check_functions
from gdn_ir.file_checks.messages import check_messages
from gdn_ir.file_checks.scope import Scope

# From 11 on, Pad and Clip take their parameters as inputs, like every later version.
OPSETS = range(11, onnx.defs.onnx_opset_version() + 1)
# Version 3 introduced opset imports.
IR_VERSIONS = range(3, onnx.IR_VERSION + 1)
# Bodies inside bodies. protobuf itself gives up at 34; real models stay below 5.
NESTING_LIMIT = 16

_GRAPH_TYPES = (AttributeProto.GRAPH, AttributeProto.GRAPHS)


def check_model(model: ModelProto) -> list[Scope]:
    """Check everything but the tensors' data; return the scopes, each after the one around it.

    Unknown domains and ops are accepted. So is a scope whose nodes are merely out of order
    (`Scope.is_sorted`): ONNX forbids it, but its meaning is clear.

    Raises:
        BadModel: names the object, the fault and the remedy.
    """
    check_messages(model)
    if model.training_info:
        raise BadModel("training_info is not supported; remove it, inference does not use it")
    if model.ir_version not in IR_VERSIONS:
        raise BadModel(
            f"unsupported ir_version {model.ir_version} (supported: {span(IR_VERSIONS)}); "
            "export the model again, or upgrade onnx"
        )
    scopes = _find_scopes(model)
    _check_opsets(model, scopes)
    for scope in scopes:
        _define(scope)
    for scope in reversed(scopes):  # bodies first: what they capture, the node around them reads
        _resolve(scope)
    for scope in scopes:
        _check_shadowing(scope)
    check_functions(scopes)
    return scopes


def _find_scopes(model: ModelProto) -> list[Scope]:
    scopes = [Scope(model.graph, "the graph")]
    for function in model.functions:
        where = f"function {quote(f'{function.domain}::{function.name}')}"
        if any(_bodies(attribute) for attribute in function.attribute_proto):
            raise BadModel(f"{where}: an attribute's default must not be a graph; remove it")
        scopes.append(Scope(function, where))
    for scope in scopes:  # grows while it is walked
        for site, node in enumerate(scope.proto.node):
            for attribute in node.attribute:
                if not attribute.type and not attribute.ref_attr_name:
                    raise BadModel(
                        f"attribute {quote(attribute.name)} of {label(node)} has no type; "
                        "export the model again"
                    )
                if attribute.ref_attr_name and attribute.type in _GRAPH_TYPES:
                    # onnx_ir's traversal takes the reference for the graph itself.
                    raise BadModel(
                        f"attribute {quote(attribute.name)} of {label(node)} refers to a graph "
                        "given by the caller, which is not supported; inline the function"
                    )
                for body in _bodies(attribute):
                    if scope.depth == NESTING_LIMIT:
                        raise BadModel(
                            f"nested too deeply (limit {NESTING_LIMIT} bodies): {label(node)}"
                        )
                    where = f"{bare(attribute.name)} of {label(node)}"
                    scopes.append(Scope(body, where, scope, site, scope.depth + 1))
    return scopes


def _bodies(attribute: AttributeProto) -> Sequence[GraphProto]:
    if attribute.type == AttributeProto.GRAPH:
        return [attribute.g]
    return attribute.graphs if attribute.type == AttributeProto.GRAPHS else ()


def _check_opsets(model: ModelProto, scopes: list[Scope]) -> None:
    """Check what the model and each local function import; only the default domain is known."""
    with_default_ops = {
        scope.root for scope in scopes if any(domain(node) == "" for node in scope.proto.node)
    }
    for scope in scopes:
        if scope.parent is not None:
            continue
        importer = scope.proto if isinstance(scope.proto, FunctionProto) else model
        imports = {(domain(entry), entry.version) for entry in importer.opset_import}
        for name, count in Counter(name for name, _ in imports).items():
            if count > 1:
                raise BadModel(
                    f"{scope.where} imports {count} versions of opset domain {quote(name)}; "
                    "keep one"
                )
        version = dict(imports).get("")
        if version is None and scope in with_default_ops:
            raise BadModel(f"{scope.where} imports no ONNX opset; add it to opset_import")
        if version is not None and version not in OPSETS:
            raise BadModel(
                f"unsupported opset {version} in {scope.where} (supported: {span(OPSETS)}); "
                "convert the model with onnx.version_converter"
            )


def _define(scope: Scope) -> None:
    """Fill `scope.defined`: a name stands for one value (static single assignment)."""
    proto, where, defined = scope.proto, scope.where, scope.defined
    if isinstance(proto, GraphProto):
        inputs = [value.name for value in proto.input]
        initializers = [tensor.name for tensor in proto.initializer]
    else:
        inputs, initializers = list(proto.input), []
    for kind, names in (("input", inputs), ("initializer", initializers)):
        for name, count in Counter(names).items():
            if not name:
                raise BadModel(f"{where}: an {kind} has no name; give it one")
            if count > 1:
                raise BadModel(f"{where}: duplicate {kind} {quote(name)}; keep one")
            defined[name] = -1  # an initializer may be the default of an input
    for index, node in enumerate(proto.node):
        for name in filter(None, node.output):
            if name in defined:
                raise BadModel(
                    f"{where}: value {quote(name)} is defined twice, the second time by "
                    f"{label(node)}; rename one"
                )
            defined[name] = index


def _resolve(scope: Scope) -> None:
    """Find the maker of every value that the scope reads, and an order of its nodes."""
    free: dict[str, NodeProto] = {}
    makers: list[set[int]] = []
    for index, node in enumerate(scope.proto.node):
        reads = dict.fromkeys(filter(None, node.input), node) | scope.captured.get(index, {})
        makers.append({scope.defined[name] for name in reads if name in scope.defined} - {-1})
        for name, reader in reads.items():
            if name not in scope.defined:
                free.setdefault(name, reader)
    if scope.parent is not None:
        scope.parent.captured.setdefault(scope.site, {}).update(free)
    elif free:
        name, node = next(iter(free.items()))
        raise BadModel(
            f"undefined value {quote(name)}, read by {label(node)} in {scope.where}; "
            "add the input, initializer or node that makes it"
        )
    for output in scope.proto.output:
        name = output.name if isinstance(output, onnx.ValueInfoProto) else output
        if name not in scope.defined:
            # A body may not return an outer value either; ONNX Runtime says so too.
            raise BadModel(
                f"undefined output {quote(name)}: nothing in {scope.where} makes it; "
                "add a node that does (Identity, for a value of an outer scope)"
            )
    scope.rank = _rank(scope.proto.node, makers)


def _rank(nodes: Sequence[NodeProto], makers: list[set[int]]) -> Sequence[int]:
    """The place of each node in a topological order, a `range` when the file is in order."""
    if all(maker < index for index, earlier in enumerate(makers) for maker in earlier):
        return range(len(makers))
    try:
        order = list(TopologicalSorter(dict(enumerate(makers))).static_order())
    except CycleError as error:
        names = [nodes[i].name or next(filter(None, nodes[i].output)) for i in error.args[1]]
        raise BadModel(f"cycle through {chain(names)}; break it") from None
    rank = [0] * len(order)
    for place, index in enumerate(order):
        rank[index] = place
    return rank


def _check_shadowing(scope: Scope) -> None:
    """Reject a node in a body that reuses a name visible from outside.

    A body's inputs and initializers may: ONNX forbids it for outputs of nodes only, and so do its
    checker and ONNX Runtime. Names of outer nodes that come later are not visible.
    """
    for name, index in scope.defined.items():
        inner = scope
        while index >= 0 and inner.parent is not None:
            outer = inner.parent
            maker = outer.defined.get(name)
            if maker is not None and (maker < 0 or outer.rank[maker] < outer.rank[inner.site]):
                raise BadModel(
                    f"value {quote(name)} is defined twice: {label(scope.proto.node[index])} in "
                    f"{scope.where} shadows it; rename one"
                )
            inner = outer
