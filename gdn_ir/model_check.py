"""What a parsed ONNX model must satisfy before anything builds a graph from it.

onnx_ir builds a graph out of nearly anything: an undefined input becomes a value without a
producer, of two initializers with one name the last wins, a cycle stays a cycle. The checks here
run on the protobuf itself; none of them recurses, and each is linear in the size of the model.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

import onnx
from google.protobuf.descriptor import (  # type: ignore[import-untyped,unused-ignore]
    FieldDescriptor,
)
from google.protobuf.message import Message  # type: ignore[import-untyped,unused-ignore]
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto

# From 11 on, Pad and Clip take their parameters as inputs, like every later version.
OPSETS = range(11, onnx.defs.onnx_opset_version() + 1)
# Version 3 introduced opset imports.
IR_VERSIONS = range(3, onnx.IR_VERSION + 1)
# Bodies inside bodies. protobuf itself gives up at 34; real models stay below 5.
NESTING_LIMIT = 16
# Nodes left after inlining every local function.
EXPANSION_LIMIT = 1_000_000

_TENSOR_FIELDS = [
    onnx.TensorProto.DESCRIPTOR.fields_by_name[name]
    for name in ("name", "doc_string", "external_data", "metadata_props")
]
_GRAPH_TYPES = (AttributeProto.GRAPH, AttributeProto.GRAPHS)
# A message, and the trail of the message around it.
_Trail = tuple[Message, "_Trail | None"]


class BadModel(ValueError):
    """A model that cannot be used. The message is one line: the object, the fault, the remedy."""


@dataclass(eq=False)
class Scope:
    """One level of value names: the graph, a body (of Loop, Scan, If) or a local function."""

    proto: GraphProto | FunctionProto
    where: str
    parent: Scope | None = None
    site: int = -1  # index, in the parent, of the node that holds this body
    depth: int = 0
    # value -> index of the node that makes it; -1 for inputs and initializers
    defined: dict[str, int] = field(default_factory=dict)
    # site of a body -> names it takes from here or further out -> a node that reads each
    captured: dict[int, dict[str, NodeProto]] = field(default_factory=dict)
    # index of a node -> its place in a topological order
    rank: Sequence[int] = ()

    @property
    def root(self) -> Scope:
        """The graph or local function that this scope lies in, however deep."""
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    @property
    def is_sorted(self) -> bool:
        """Whether the file lists the nodes in a topological order."""
        return isinstance(self.rank, range)


def quote(name: object) -> str:
    """A name from the file, escaped and cut to fit a one-line message."""
    text = repr(name)
    return text if len(text) <= 100 else f"{text[:80]}...{text[-1]}"


def _bare(name: str) -> str:
    """`quote` without the quotation marks, for what is a word: ops and attributes."""
    return quote(name)[1:-1]


def check_model(model: ModelProto) -> list[Scope]:
    """Check everything but the tensors' data; return the scopes, each after the one around it.

    Unknown domains and ops are accepted. So is a scope whose nodes are merely out of order
    (`Scope.is_sorted`): ONNX forbids it, but its meaning is clear.

    Raises:
        BadModel: names the object, the fault and the remedy.
    """
    _check_messages(model)
    if model.training_info:
        raise BadModel("training_info is not supported; remove it, inference does not use it")
    if model.ir_version not in IR_VERSIONS:
        raise BadModel(
            f"unsupported ir_version {model.ir_version} (supported: {_span(IR_VERSIONS)}); "
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
    _check_functions(scopes)
    return scopes


def _check_messages(model: ModelProto) -> None:
    """Visit every message once, for the faults that any of them may hold."""
    pending: list[_Trail] = [(model, None)]
    while pending:
        trail = pending.pop()
        message = trail[0]
        kind = type(message)
        if kind is onnx.SparseTensorProto:
            # onnx_ir drops sparse initializers without a word and fails on sparse attributes.
            raise BadModel(f"sparse tensor in {_owner(trail)} is not supported; store it dense")
        if kind is onnx.TensorShapeProto.Dimension and message.dim_value < 0:
            raise BadModel(
                f"negative dimension {message.dim_value} in the shape of {_owner(trail)}; "
                "give an unknown length a dim_param instead"
            )
        if kind is onnx.TensorProto:
            # Not ListFields, which would copy the data, gigabytes of it.
            fields = [(each, getattr(message, each.name)) for each in _TENSOR_FIELDS]
        else:
            fields = message.ListFields()
        for descriptor, value in fields:
            if descriptor.type == FieldDescriptor.TYPE_MESSAGE:
                inner = [value] if isinstance(value, Message) else value
                pending.extend((item, trail) for item in inner)
            elif descriptor.type == FieldDescriptor.TYPE_STRING:
                # The schema is proto2, which does not check text: what is not UTF-8 comes back as
                # bytes, equal to no str, and cannot be written again.
                texts = [value] if isinstance(value, (str, bytes)) else value
                if any(isinstance(text, bytes) for text in texts):
                    raise BadModel(
                        f"{descriptor.name} of {_owner(trail)} is not UTF-8; export it again"
                    )


def _owner(trail: _Trail | None) -> str:
    """The innermost message on the trail that has a name."""
    while trail is not None:
        name = getattr(trail[0], "name", "")
        if name:
            return quote(name)
        trail = trail[1]
    return "the model"


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
                        f"attribute {quote(attribute.name)} of {_label(node)} has no type; "
                        "export the model again"
                    )
                if attribute.ref_attr_name and attribute.type in _GRAPH_TYPES:
                    # onnx_ir's traversal takes the reference for the graph itself.
                    raise BadModel(
                        f"attribute {quote(attribute.name)} of {_label(node)} refers to a graph "
                        "given by the caller, which is not supported; inline the function"
                    )
                for body in _bodies(attribute):
                    if scope.depth == NESTING_LIMIT:
                        raise BadModel(
                            f"nested too deeply (limit {NESTING_LIMIT} bodies): {_label(node)}"
                        )
                    where = f"{_bare(attribute.name)} of {_label(node)}"
                    scopes.append(Scope(body, where, scope, site, scope.depth + 1))
    return scopes


def _bodies(attribute: AttributeProto) -> Sequence[GraphProto]:
    if attribute.type == AttributeProto.GRAPH:
        return [attribute.g]
    return attribute.graphs if attribute.type == AttributeProto.GRAPHS else ()


def _check_opsets(model: ModelProto, scopes: list[Scope]) -> None:
    """Check what the model and each local function import; only the default domain is known."""
    with_default_ops = {
        scope.root for scope in scopes if any(_domain(node) == "" for node in scope.proto.node)
    }
    for scope in scopes:
        if scope.parent is not None:
            continue
        importer = scope.proto if isinstance(scope.proto, FunctionProto) else model
        imports = {(_domain(entry), entry.version) for entry in importer.opset_import}
        for domain, count in Counter(domain for domain, _ in imports).items():
            if count > 1:
                raise BadModel(
                    f"{scope.where} imports {count} versions of opset domain {quote(domain)}; "
                    "keep one"
                )
        version = dict(imports).get("")
        if version is None and scope in with_default_ops:
            raise BadModel(f"{scope.where} imports no ONNX opset; add it to opset_import")
        if version is not None and version not in OPSETS:
            raise BadModel(
                f"unsupported opset {version} in {scope.where} (supported: {_span(OPSETS)}); "
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
                    f"{_label(node)}; rename one"
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
            f"undefined value {quote(name)}, read by {_label(node)} in {scope.where}; "
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
        raise BadModel(f"cycle through {_chain(names)}; break it") from None
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
                    f"value {quote(name)} is defined twice: {_label(scope.proto.node[index])} in "
                    f"{scope.where} shadows it; rename one"
                )
            inner = outer


def _check_functions(scopes: list[Scope]) -> None:
    """Reject recursion and "billion laughs": 31 functions that expand to 2^30 nodes."""
    functions: set[tuple[str, str, str]] = set()
    for function in (scope.proto for scope in scopes if isinstance(scope.proto, FunctionProto)):
        key = (_domain(function), function.name, function.overload)
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
            caller = (_domain(root), root.name, root.overload)
        own_nodes[caller] += len(scope.proto.node)
        callees = ((_domain(node), node.op_type, node.overload) for node in scope.proto.node)
        calls[caller].update(callee for callee in callees if callee in functions)
    try:
        order = list(TopologicalSorter(calls).static_order())
    except CycleError as error:
        names = [name for _, name, _ in error.args[1]]
        raise BadModel(f"recursive local function: {_chain(names)}; ONNX forbids it") from None
    size: dict[tuple[str, str, str], int] = {}
    for key in order:
        size[key] = own_nodes[key] + sum(times * size[c] for c, times in calls[key].items())
        if calls[key] and size[key] > EXPANSION_LIMIT:
            raise BadModel(
                f"local functions expand to more than {EXPANSION_LIMIT:,} nodes, in "
                f"{quote(key[1]) if key[1] else 'the graph'}; call them fewer times"
            )


def _domain(named: NodeProto | FunctionProto | onnx.OperatorSetIdProto) -> str:
    """The domain, with the default one in its short spelling."""
    return "" if named.domain == "ai.onnx" else str(named.domain)


def _label(node: NodeProto) -> str:
    """A node as messages call it; many exporters leave the names of nodes empty."""
    if node.name:
        return f"node {quote(node.name)} ({_bare(node.op_type)})"
    return f"the {_bare(node.op_type)} that makes {quote(next(filter(None, node.output), ''))}"


def _chain(names: Iterable[str]) -> str:
    shown = [quote(name) for name in names]
    return " -> ".join(shown if len(shown) <= 6 else [*shown[:5], "...", shown[-1]])


def _span(versions: range) -> str:
    return f"{versions[0]} to {versions[-1]}"
