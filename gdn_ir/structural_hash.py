"""Name-free hashes of nodes and graphs: equal for what is written the same way."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import onnx_ir as ir

from gdn_ir.evaluate import Array
from gdn_ir.graph_view import bodies, captures
from gdn_ir.matching import array_of

# Constants up to this size are compared by content, larger ones by where they are kept: hashing
# gigabytes of weights would cost more than any pass.
SMALL = 64 * 2**10


def combine(*parts: str) -> str:
    """Hash of several strings; ("ab", "c") and ("a", "bc") differ."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(f"{len(part)}:{part}".encode())
    return state.hexdigest()


def operator_key(node: ir.Node) -> str:
    """The op and its attributes with their types (1 and 1.0 differ), bodies left out."""
    parts = [repr(node.op_identifier()), str(len(node.outputs))]
    for name, attr in sorted(node.attributes.items()):
        if attr.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
            parts += [name, attr.type.name, _attribute_value(attr)]
    return combine(*parts)


def _attribute_value(attr: ir.Attr) -> str:
    if attr.is_ref():
        return f"reference to {attr.ref_attr_name}"
    if attr.type == ir.AttributeType.TENSOR:
        return array_digest(attr.as_tensor().numpy())
    if attr.type == ir.AttributeType.TENSORS:
        return combine(*(array_digest(tensor.numpy()) for tensor in attr.as_tensors()))
    return repr(attr.value)


def array_digest(array: Array) -> str:
    """Hash of an array's type, shape and bytes."""
    state = hashlib.blake2b(digest_size=16)
    state.update(f"{array.dtype.str}{array.shape}".encode())
    state.update(array.tobytes())
    return state.hexdigest()


def constant_digest(value: ir.Value) -> str:
    """Hash of a constant: its content up to `SMALL` bytes, else the identity of its tensor."""
    tensor = value.const_value
    if tensor is not None and tensor.nbytes > SMALL:
        return combine("large", value.name or "", str(tensor.nbytes))
    array = array_of(value)
    return combine("unknown", value.name or "") if array is None else array_digest(array)


def graph_digest(graph: ir.Graph, outer: Mapping[ir.Value, str] | None = None) -> str:
    """Hash of what a graph's outputs are made of, its inputs counted by position.

    Nodes that no output needs do not matter. `outer` holds the hashes of captured values.
    """
    known = dict(outer or {})
    for index, value in enumerate(graph.inputs):
        known[value] = combine("input", str(index), str(value.type), str(value.shape))
    for value in graph.initializers.values():
        known.setdefault(value, constant_digest(value))
    for node in graph:
        parts = [operator_key(node)]
        parts += ["absent" if value is None else known[value] for value in node.inputs]
        captured = {value: known[value] for value in captures(node)}
        parts += [graph_digest(body, captured) for body in bodies(node)]
        digest = combine(*parts)
        known.update((value, f"{digest}.{index}") for index, value in enumerate(node.outputs))
    return combine(*(known[value] for value in graph.outputs))
