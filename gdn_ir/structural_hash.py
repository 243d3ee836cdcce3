"""Name-free hashes of nodes and graphs: equal for what is written the same way."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

import onnx_ir as ir

from gdn_ir.evaluate import Array
from gdn_ir.graph_view import bodies, captures

# Weights in files up to this size are compared by content, larger ones by where they are kept:
# reading gigabytes to hash them would cost more than any pass.
SMALL = 64 * 2**10
_DIGEST = "gdn_ir.digest"


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
        parts += [name, attr.type.name]
        if attr.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
            parts.append(_attribute_value(attr))
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
    # The name tells int4 from uint4, the string tells little from big endian.
    state.update(f"{array.dtype.name}{array.dtype.str}{array.shape}".encode())
    state.update(array.tobytes())
    return state.hexdigest()


def constant_digest(value: ir.Value) -> str:
    """Hash of a constant's content; of its place in its file if it is large and not yet read."""
    tensor = value.const_value
    if tensor is None:
        return combine("unknown", value.name or "")
    if isinstance(tensor, ir.ExternalTensor) and tensor.nbytes > SMALL:
        place = (tensor.path, tensor.offset, tensor.length, tensor.dtype, tensor.shape)
        return combine("external", *map(str, place))
    cached = value.meta.get(_DIGEST)
    if cached is None or cached[0] is not tensor:
        cached = value.meta[_DIGEST] = (tensor, array_digest(tensor.numpy()))
    return str(cached[1])


def model_digest(model: ir.Model) -> str:
    """Hash of what a model computes: of its graph and of the local functions that it calls."""
    functions = sorted((repr(key), graph_digest(f.graph)) for key, f in model.functions.items())
    return combine(graph_digest(model.graph), *(part for pair in functions for part in pair))


def graph_digest(
    graph: ir.Graph, outer: Mapping[ir.Value, str] | None = None, depth: int = 0
) -> str:
    """Hash of what a graph's outputs are made of, its inputs counted by position.

    Nodes that no output needs do not matter. `outer` holds the hashes of captured values, `depth`
    tells the inputs of a body from those of the graphs around it.
    """
    known = dict(outer or {})
    # Inference numbers what it cannot follow through the whole model: here, through this graph.
    inferred: dict[str, str] = {}

    def renamed(match: re.Match[str]) -> str:
        return inferred.setdefault(match[0], f"unk__{len(inferred)}")

    for index, value in enumerate(graph.inputs):
        shape = re.sub(r"unk__\d+", renamed, str(value.shape))
        known[value] = combine("input", str(depth), str(index), str(value.type), shape)
    for value in graph.initializers.values():
        known.setdefault(value, constant_digest(value))
    for node in graph:
        parts = [operator_key(node)]
        parts += ["absent" if value is None else known[value] for value in node.inputs]
        captured = {value: known[value] for value in captures(node)}
        parts += [graph_digest(body, captured, depth + 1) for body in bodies(node)]
        digest = combine(*parts)
        known.update((value, f"{digest}.{index}") for index, value in enumerate(node.outputs))
    return combine(*(known[value] for value in graph.outputs))
