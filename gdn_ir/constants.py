"""Computes a node of constants, in the model's own types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from gdn_ir.evaluate import Array
from gdn_ir.graph_view import bodies, is_deterministic, is_onnx
from gdn_ir.matching import array_of

# Their result is no larger than their input, whatever the input holds.
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
    if not is_onnx(node) or not is_deterministic(node) or any(bodies(node)):
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
    if _bytes_made(proto, node, known) > limit:
        return None
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(proto).run(None, known)
    except Exception:
        # An op the reference lacks, or constants that no runtime accepts either: the node stays
        # as it is, which is right in both cases.
        return None
    return [np.asarray(result) for result in results]


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
    graph = onnx.helper.make_graph(
        [proto],
        "constant",
        [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in known.items()
        ],
        [onnx.helper.make_empty_tensor_value_info(name) for name in proto.output if name],
    )
    imports = [onnx.helper.make_opsetid("", opsets[""])]
    return onnx.helper.make_model(graph, opset_imports=imports)


def _bytes_made(proto: onnx.ModelProto, node: ir.Node, known: Mapping[str, Array]) -> float:
    """The outputs' size by shape inference, which makes nothing; infinite where it cannot tell."""
    if node.op_type == "Constant" or node.op_type in _SHRINKING:
        return 0
    with_values = onnx.ModelProto()
    with_values.CopyFrom(proto)
    # Shapes that are data (Expand, ConstantOfShape, Range) are inferred from initializers only.
    with_values.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name)
        for name, array in known.items()
        if array.size <= 1024
    )
    inferred = onnx.shape_inference.infer_shapes(with_values, data_prop=True)
    total = 0.0
    for output in inferred.graph.output:
        kind = output.type.tensor_type
        if not kind.elem_type or not kind.HasField("shape"):
            return float("inf")
        if not all(dim.HasField("dim_value") for dim in kind.shape.dim):
            return float("inf")
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        count = 1
        for dim in kind.shape.dim:
            count *= dim.dim_value
        total += count * dtype.itemsize
    return total
