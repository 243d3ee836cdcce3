"""Where the windows lie that a Slice takes step by step; for hoist-chunk-work."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gdn_ir.constants import compute
from gdn_ir.evaluate import Array
from gdn_ir.graph_view import is_onnx
from gdn_ir.matching import array_of

# What these mean has not changed since the oldest opset that is read.
_ARITHMETIC = frozenset({
    "Add", "Cast", "Concat", "Gather", "Identity", "Mul", "Reshape", "Squeeze", "Sub", "Unsqueeze",
})  # fmt: skip
_OPSETS = {"": 13}
_LARGEST = 64
_LONGEST_CHAIN = 16
_MOST_STEPS = 4096


def lies_inside(start: ir.Value | None, size: int, length: int, steps: int) -> bool:
    """Whether a window is inside of its axis in each step: a Slice clamps what is not.

    Args:
        start: where the window begins, made of the number of the step alone.
        size: of the window.
        length: of the axis.
        steps: their number.
    """
    if steps > _MOST_STEPS:
        return False
    for step in range(steps):
        found = _at(start, step)
        if found is None or found.size != 1 or not 0 <= int(found.reshape(())) <= length - size:
            return False
    return True


def _at(value: ir.Value | None, step: int, depth: int = 0) -> Array | None:
    """A small array in the step of this number, if it follows from that alone."""
    if value is None or depth > _LONGEST_CHAIN:
        return None
    known = array_of(value)
    if known is not None:
        return known
    producer = value.producer()
    if producer is None:
        return _number(value, step)
    if not is_onnx(producer) or producer.op_type not in _ARITHMETIC:
        return None
    arrays = compute(producer, _OPSETS, _LARGEST, lambda v: _at(v, step, depth + 1))
    return None if arrays is None else arrays[producer.outputs.index(value)]


def _number(value: ir.Value, step: int) -> Array | None:
    """The first input of a body, if that is what the value is."""
    graph = value.graph
    if graph is None or not graph.inputs or value is not graph.inputs[0]:
        return None
    if value.dtype != ir.DataType.INT64 or value.shape is None or len(value.shape) > 1:
        return None
    return np.full((1,) * len(value.shape), step, np.int64)
