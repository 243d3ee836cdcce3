"""Evaluates a graph in float64: what recognition, facts and the numeric gate measure against.

ONNX Runtime lacks float64 kernels for some ops, so this runs onnx's reference evaluator on the
same graph with every floating type widened.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from gdn_ir.reference_loops import Loop, Scan

# Of any element type: most code here handles what a model brings.
Array = npt.NDArray[Any]

_NARROW: frozenset[int] = frozenset(
    {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
)
_DTYPE_ATTRIBUTES = frozenset({"to", "dtype"})


class CannotEvaluate(RuntimeError):
    """The model has no value in float64; says why, in one line."""


class ScatterElements(OpRun):
    """onnx's own implementation visits element by element; numpy does the plain case at once."""

    op_domain = ""

    def _run(
        self, data: Array, indices: Array, updates: Array, axis: int = 0, reduction: str = "none"
    ) -> tuple[Array]:
        if reduction not in ("none", None):
            raise NotImplementedError(f"ScatterElements with reduction={reduction!r}")
        axis = axis % data.ndim
        result = data.copy()
        where: list[Array] = list(np.indices(indices.shape, sparse=True))
        where[axis] = np.where(indices < 0, indices + data.shape[axis], indices)
        result[tuple(where)] = updates
        return (result,)


class CumSum(OpRun):
    """onnx's own implementation refuses an axis of shape [1], which runtimes take."""

    op_domain = ""

    def _run(self, x: Array, axis: Array, exclusive: int = 0, reverse: int = 0) -> tuple[Array]:
        along = int(np.asarray(axis).reshape(()))
        values = np.flip(x, along) if reverse else x
        total = np.cumsum(values, along, dtype=x.dtype)
        if exclusive:  # moved by one, as -inf - -inf would be NaN
            total = np.roll(total, 1, along)
            np.moveaxis(total, along, 0)[:1] = 0
        return (np.flip(total, along) if reverse else total,)


class Erf(OpRun):
    """onnx's own implementation computes in float32."""

    op_domain = ""

    def _run(self, x: Array) -> tuple[Array]:
        return (np.vectorize(math.erf, otypes=[x.dtype])(x),)


_OURS: list[type[OpRun]] = [CumSum, Erf, Loop, Scan, ScatterElements]


def evaluate(model: ir.Model, feeds: Mapping[str, Array]) -> list[Array]:
    """Runs the model in float64 and returns its outputs in order.

    Floating inputs, initializers and casts are widened to float64; integers and booleans keep
    their type. Overflow gives inf and NaN without a warning, as on a device.

    Raises:
        CannotEvaluate: the reference evaluator lacks an op, or rejects the inputs.
    """
    proto = ir.to_proto(model)
    _widen_graph(proto.graph)
    for function in proto.functions:
        for node in function.node:
            _widen_node(node)
    wide = {
        name: array.astype(np.float64) if _is_narrow(array) else array
        for name, array in feeds.items()
    }
    try:
        with np.errstate(all="ignore"):
            evaluator = ReferenceEvaluator(
                proto, new_ops=[CumSum, Erf, Loop, Scan, ScatterElements]
            )
            outputs = evaluator.run(None, wide)
    except Exception as error:
        # Whatever it raises: of a missing op, of shapes that do not fit.
        message = " ".join(str(error).split())
        raise CannotEvaluate(f"onnx's reference evaluator: {message}") from error
    return list(map(np.asarray, outputs))


def _is_narrow(array: Array) -> bool:
    # By the ONNX type: numpy does not know bfloat16 as a floating type.
    return ir.DataType.from_numpy(array.dtype) in _NARROW


def _widen_graph(graph: onnx.GraphProto) -> None:
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.tensor_type.elem_type in _NARROW:
            info.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for node in graph.node:
        _widen_node(node)


def _widen_node(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.name in _DTYPE_ATTRIBUTES and attribute.i in _NARROW:
            attribute.i = onnx.TensorProto.DOUBLE
        for tensor in _tensors(attribute):
            _widen_tensor(tensor)
        for graph in (attribute.g, *attribute.graphs):
            _widen_graph(graph)
    if node.op_type == "ConstantOfShape" and not node.attribute:
        zero = numpy_helper.from_array(np.zeros(1))
        node.attribute.append(onnx.helper.make_attribute("value", zero))
    if node.op_type == "Constant" and node.attribute[0].name in ("value_float", "value_floats"):
        plain = node.attribute[0]
        array = np.float64(plain.f) if plain.name == "value_float" else np.float64(plain.floats)
        wide = onnx.helper.make_attribute("value", numpy_helper.from_array(np.asarray(array)))
        node.attribute[0].CopyFrom(wide)


def _tensors(attribute: onnx.AttributeProto) -> Iterator[onnx.TensorProto]:
    if attribute.type == onnx.AttributeProto.TENSOR:
        yield attribute.t
    yield from attribute.tensors


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type not in _NARROW:
        return
    wide = numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name)
    tensor.CopyFrom(wide)
