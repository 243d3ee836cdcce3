"""Computes a node of constants, in the model's own types."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from gdn_ir.evaluate import Array
from gdn_ir.graph_view import bodies, is_deterministic, is_onnx
from gdn_ir.matching import array_of

_SMALL = 1024  # elements; results of small constants are remembered
# How large their results are depends on what their input holds, within a bound.
_SHRINKING = frozenset({"Compress", "NonZero", "Unique"})


def compute(
    node: ir.Node,
    opsets: Mapping[str, int],
    limit: int,
    array: Callable[[ir.Value], Array | None] = array_of,
) -> Sequence[Array] | None:
    """The node's outputs if they follow from constants and static shapes, else None.

    Args:
        node: of the standard domain; others, random ops and control flow give None.
        opsets: opset imports that the node is read under.
        limit: the most bytes that the outputs may take together; beyond it, None, and nothing of
            that size is made.
        array: the array of a constant value, None for any other value.
    """
    if "" not in opsets or not is_onnx(node) or not is_deterministic(node) or any(bodies(node)):
        return None
    if node.op_type in ("Shape", "Size"):
        return _shape_of(node, array)
    known: dict[str, Array] = {}
    for value in node.inputs:
        if value is None:
            continue
        constant = array(value)
        if constant is None or constant.dtype.kind not in "fiub":
            return None
        known[value.name or ""] = constant
    proto = _one_node_model(node, opsets, list(known.values()), names=list(known))
    if sum(array.size for array in known.values()) > _SMALL:
        return _compute(proto, list(known.values()), limit)
    # Exporters repeat their index arithmetic thousands of times.
    arrays = tuple((a.dtype, a.shape, a.tobytes()) for a in known.values())
    return _compute_small(proto.SerializeToString(), arrays, limit)


@functools.lru_cache(maxsize=4096)
def _compute_small(
    serialized: bytes, arrays: tuple[tuple[np.dtype[Any], tuple[int, ...], bytes], ...], limit: int
) -> Sequence[Array] | None:
    proto = onnx.ModelProto.FromString(serialized)
    known = [np.frombuffer(content, dtype).reshape(shape) for dtype, shape, content in arrays]
    return _compute(proto, known, limit)


def _compute(proto: onnx.ModelProto, arrays: Sequence[Array], limit: int) -> Sequence[Array] | None:
    known = {value.name: array for value, array in zip(proto.graph.input, arrays, strict=True)}
    outputs = _inferred(proto, known)
    if _most_bytes(proto.graph.node[0].op_type, known, outputs) > limit:
        return None
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(proto).run(None, known)
    except Exception:
        # An op the reference lacks, or constants that no runtime accepts either: the node stays
        # as it is, which is right in both cases.
        return None
    # The reference makes int64 of some integer reductions; a Constant may hold strings.
    arrays = [
        np.asarray(result, None if dtype is None else dtype)
        for result, (dtype, _) in zip(results, outputs, strict=True)
    ]
    return arrays if all(array.dtype.kind not in "OSU" for array in arrays) else None


def _shape_of(node: ir.Node, array: Callable[[ir.Value], Array | None]) -> Sequence[Array] | None:
    value = node.inputs[0]
    if value is None:
        return None
    # Of a constant that is not folded yet no shape need be declared: TorchScript declares none.
    constant = array(value)
    if constant is not None:
        shape = np.array(constant.shape, dtype=np.int64)
    elif value.shape is not None and value.shape.is_static():
        shape = np.array(value.shape.numpy(), dtype=np.int64)
    else:
        return None
    if node.op_type == "Size":
        return [np.array(shape.prod(), dtype=np.int64)]
    start, end = (node.attributes.get(name) for name in ("start", "end"))
    return [shape[start and start.as_int() : end and end.as_int()]]


def _one_node_model(
    node: ir.Node, opsets: Mapping[str, int], arrays: Sequence[Array], names: Sequence[str]
) -> onnx.ModelProto:
    """The node alone, with its values numbered, so that equal nodes make equal models."""
    proto = ir.to_proto(node)
    for field in ("name", "doc_string", "metadata_props"):
        proto.ClearField(field)
    numbered = {name: f"x{index}" for index, name in enumerate(names)}
    for index, name in enumerate(proto.input):
        proto.input[index] = numbered.get(name, "")
    for index in range(len(proto.output)):
        proto.output[index] = f"y{index}"
    graph = onnx.helper.make_graph(
        [proto],
        "constant",
        [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in zip(numbered.values(), arrays, strict=True)
        ],
        [onnx.helper.make_empty_tensor_value_info(name) for name in proto.output],
    )
    imports = [onnx.helper.make_opsetid("", opsets[""])]
    return onnx.helper.make_model(graph, opset_imports=imports)


# The element type of an output and its shape; None where inference cannot tell.
_Inferred = tuple[np.dtype[Any] | None, tuple[int, ...] | None]


def _inferred(proto: onnx.ModelProto, known: Mapping[str, Array]) -> list[_Inferred]:
    """The outputs by shape inference, which makes nothing."""
    with_values = onnx.ModelProto()
    with_values.CopyFrom(proto)
    # Shapes that are data (Expand, ConstantOfShape, Range) are inferred from initializers only.
    with_values.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name)
        for name, array in known.items()
        if array.size <= _SMALL
    )
    found: list[_Inferred] = []
    for output in onnx.shape_inference.infer_shapes(with_values, data_prop=True).graph.output:
        kind = output.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type) if kind.elem_type else None
        dims = kind.shape.dim
        is_static = kind.HasField("shape") and all(dim.HasField("dim_value") for dim in dims)
        found.append((dtype, tuple(dim.dim_value for dim in dims) if is_static else None))
    return found


def _most_bytes(op_type: str, known: Mapping[str, Array], outputs: Sequence[_Inferred]) -> float:
    """The outputs' size, or a bound on it; infinite where there is none."""
    if op_type == "Constant":
        return 0
    if op_type in _SHRINKING:
        # Each element at most once, and as many indices as there are axes, or three kinds of them.
        data = next(iter(known.values()))
        return data.size * (data.itemsize + 8 * max(data.ndim, 3))
    total = 0.0
    for dtype, shape in outputs:
        if dtype is None or shape is None:
            return math.inf
        total += math.prod(shape) * dtype.itemsize
    return total
