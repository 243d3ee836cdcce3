"""Computes a node of constants, in the model's own types."""

from __future__ import annotations

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
        return _shape_of(node)
    known: dict[str, Array] = {}
    for value in node.inputs:
        if value is None:
            continue
        constant = array(value)
        if constant is None or constant.dtype.kind not in "fiub":
            return None
        known[value.name or ""] = constant
    proto = _one_node_model(node, opsets, known)
    outputs = _inferred(proto, known)
    if _most_bytes(node, known, outputs) > limit:
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


def _shape_of(node: ir.Node) -> Sequence[Array] | None:
    value = node.inputs[0]
    if value is None or value.shape is None or not value.shape.is_static():
        return None
    shape = np.array(value.shape.numpy(), dtype=np.int64)
    if node.op_type == "Size":
        return [np.array(shape.prod(), dtype=np.int64)]
    start, end = (node.attributes.get(name) for name in ("start", "end"))
    return [shape[start and start.as_int() : end and end.as_int()]]


def _one_node_model(
    node: ir.Node, opsets: Mapping[str, int], known: Mapping[str, Array]
) -> onnx.ModelProto:
    proto = ir.to_proto(node)
    for index, name in enumerate(proto.output):
        proto.output[index] = name or f"/left out/{index}"
    graph = onnx.helper.make_graph(
        [proto],
        "constant",
        [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in known.items()
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
        if array.size <= 1024
    )
    found: list[_Inferred] = []
    for output in onnx.shape_inference.infer_shapes(with_values, data_prop=True).graph.output:
        kind = output.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type) if kind.elem_type else None
        dims = kind.shape.dim
        is_static = kind.HasField("shape") and all(dim.HasField("dim_value") for dim in dims)
        found.append((dtype, tuple(dim.dim_value for dim in dims) if is_static else None))
    return found


def _most_bytes(node: ir.Node, known: Mapping[str, Array], outputs: Sequence[_Inferred]) -> float:
    """The outputs' size, or a bound on it; infinite where there is none."""
    if node.op_type == "Constant":
        return 0
    if node.op_type in _SHRINKING:
        # Each element at most once, and as many indices as there are axes, or three kinds of them.
        data = next(iter(known.values()))
        return data.size * (data.itemsize + 8 * max(data.ndim, 3))
    total = 0.0
    for dtype, shape in outputs:
        if dtype is None or shape is None:
            return math.inf
        total += math.prod(shape) * dtype.itemsize
    return total
