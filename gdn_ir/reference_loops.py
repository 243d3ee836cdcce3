"""Loop and Scan for onnx's reference evaluator, whose own lack much of what ONNX lets them do.

Its Loop takes an absent condition for false, and joins rows where it should stack them; its Scan
knows neither axes nor directions; both refuse to collect nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops.op_loop import Loop as OnnxLoop
from onnx.reference.ops.op_scan import Scan as OnnxScan

_Array = npt.NDArray[Any]


class Loop(OnnxLoop):
    """ONNX's Loop."""

    op_domain = ""
    body: ReferenceEvaluator
    _run_body: Callable[[dict[str, Any]], list[Any]]  # OpRun makes one for each body

    def _run(
        self,
        M: _Array | None,  # noqa: N803
        cond: _Array | None,
        *initial: _Array,
        context: Mapping[str, Any] | None = None,
        **_: object,
    ) -> tuple[_Array, ...]:
        body, carried = self.body, list(initial)
        most = None if M is None else int(np.asarray(M).reshape(()))
        rank = len(body.input_types[0].tensor_type.shape.dim)
        going = np.ones((), bool) if cond is None else np.asarray(cond)
        rows: list[list[_Array]] = [[] for _ in range(self.K)]
        trip = 0
        while going.all() and (most is None or trip < most):
            inputs = [np.full((1,) * rank, trip, np.int64), going, *carried]
            going, *results = self._run_body(_scope(context, body, inputs))
            going, carried = np.asarray(going), results[: len(carried)]
            for collected, row in zip(rows, results[len(carried) :], strict=True):
                collected.append(row)
            trip += 1
        first = 1 + len(carried)
        return (*carried, *(_stack(body, first + i, row, 0) for i, row in enumerate(rows)))


class Scan(OnnxScan):
    """ONNX's Scan, of opset 9 or later."""

    op_domain = ""
    body: ReferenceEvaluator
    _run_body: Callable[[dict[str, Any]], list[Any]]
    num_scan_inputs: int
    scan_input_axes: Sequence[int] | None
    scan_input_directions: Sequence[int] | None
    scan_output_axes: Sequence[int] | None
    scan_output_directions: Sequence[int] | None

    def __init__(self, onnx_node: onnx.NodeProto, run_params: dict[str, Any]) -> None:
        super(OnnxScan, self).__init__(onnx_node, run_params)  # OnnxScan refuses axes

    def _run(
        self, *args: _Array, context: Mapping[str, Any] | None = None, **_: object
    ) -> tuple[_Array, ...]:
        body, count = self.body, self.num_scan_inputs
        carried, scanned = list(args[: len(args) - count]), args[len(args) - count :]
        axes = _each(self.scan_input_axes, count)
        backward = _each(self.scan_input_directions, count)
        read = [
            np.moveaxis(np.flip(x, axis) if back else x, axis, 0)
            for x, axis, back in zip(
                scanned, _each(axes, count), _each(backward, count), strict=True
            )
        ]
        first = len(carried)
        rows: list[list[_Array]] = [[] for _ in body.output_names[first:]]
        for slices in zip(*read, strict=True):
            results = self._run_body(_scope(context, body, [*carried, *slices]))
            carried = results[:first]
            for collected, row in zip(rows, results[first:], strict=True):
                collected.append(row)
        axes = _each(self.scan_output_axes, len(rows))
        backward = _each(self.scan_output_directions, len(rows))
        stacked = [
            _stack(body, first + i, row[::-1] if back else row, axis)
            for i, (row, axis, back) in enumerate(zip(rows, axes, backward, strict=True))
        ]
        return (*carried, *stacked)


def _scope(
    context: Mapping[str, Any] | None, body: ReferenceEvaluator, inputs: Sequence[Any]
) -> dict[str, Any]:
    """What the body sees: values of the enclosing scopes, and its own inputs before them."""
    return {**(context or {}), **dict(zip(body.input_names, inputs, strict=True))}


def _each(given: Sequence[int] | None, count: int) -> Sequence[int]:
    return [0] * count if given is None else given


def _stack(body: ReferenceEvaluator, index: int, rows: Sequence[_Array], axis: int) -> _Array:
    """Rows along a new axis; of none, a tensor without elements, unknown dimensions being 0."""
    if rows:
        return np.stack([np.asarray(row) for row in rows], axis)
    row = body.output_types[index].tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(row.elem_type)
    return np.stack([np.zeros([dim.dim_value for dim in row.shape.dim], dtype)], axis).take(
        [], axis
    )
