"""Writes the steps of a Loop or Scan one after another; for static-unroll."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from gdn_ir.emitter import Emitter, Operand
from gdn_ir.facts import static_shape
from gdn_ir.passes._repeats import Repeat


@dataclasses.dataclass(frozen=True)
class Step:
    """What one step leaves: the condition to go on (of a Loop), carried values, and rows."""

    going: ir.Value | None
    carried: list[ir.Value]
    rows: list[ir.Value]


def step(
    emit: Emitter,
    repeat: Repeat,
    carried: Sequence[ir.Value],
    number: ir.Value,
    going: ir.Value,
    slices: Sequence[ir.Value],
) -> Step:
    """A copy of the body; a Loop's is told its number and the condition, a Scan's has slices."""
    count = len(repeat.initial)
    if not repeat.is_loop:
        results = emit.copy(repeat.body, [*carried, *slices])
        return Step(None, results[:count], results[count:])
    going, *results = emit.copy(repeat.body, [number, going, *carried])
    return Step(going, results[:count], results[count:])


def straight(emit: Emitter, repeat: Repeat, trips: int) -> list[ir.Value]:
    """All steps, one after another; returns the outputs that something needs."""
    carried = list(repeat.initial)
    rows: list[list[ir.Value]] = [[] for _ in repeat.rows]
    for index in range(trips):
        number = emit.constant(np.full(_rank_0_or_1(repeat, 0), index, np.int64))
        going = emit.constant(np.ones(_rank_0_or_1(repeat, 1), bool))
        read = slices(emit, repeat, np.array(index), np.array(trips - 1 - index))
        done = step(emit, repeat, carried, number, going, read)
        carried = done.carried
        for collected, row in zip(rows, done.rows, strict=True):
            collected.append(row)
    outputs: list[ir.Value] = []
    for position, value in enumerate(repeat.node.outputs):
        if value not in repeat.outputs:
            continue
        if position < len(carried):
            outputs.append(carried[position])
        else:
            outputs.append(_stacked(emit, repeat, position - len(carried), rows))
    return outputs


def empty_rows_shape(repeat: Repeat, index: int) -> tuple[int, ...] | None:
    """The shape of a collected output of no steps, where it is known."""
    row = static_shape(repeat.rows[index])
    if row is None:
        return static_shape(repeat.node.outputs[len(repeat.initial) + index])
    axis = repeat.integers("scan_output_axes", len(repeat.rows))[index] % (len(row) + 1)
    return (*row[:axis], 0, *row[axis:])


def slices(emit: Emitter, repeat: Repeat, forward: Operand, backward: Operand) -> list[ir.Value]:
    """What a Scan reads in a step: at an index counted from the start, or from the end."""
    count = len(repeat.scanned)
    axes = repeat.integers("scan_input_axes", count)
    directions = repeat.integers("scan_input_directions", count)
    return [
        emit.op("Gather", value, backward if back else forward, axis=axis)
        for value, axis, back in zip(repeat.scanned, axes, directions, strict=True)
    ]


def _stacked(
    emit: Emitter, repeat: Repeat, index: int, rows: Sequence[Sequence[ir.Value]]
) -> ir.Value:
    """A collected output."""
    collected = list(rows[index])
    if not collected:
        shape, dtype = empty_rows_shape(repeat, index), repeat.rows[index].dtype
        assert shape is not None and dtype is not None, "checked before"
        return emit.constant(np.zeros(shape, dtype.numpy()))
    axis = repeat.integers("scan_output_axes", len(repeat.rows))[index]
    if repeat.integers("scan_output_directions", len(repeat.rows))[index]:
        collected.reverse()
    return stack(emit, collected, axis)


def stack(emit: Emitter, values: Sequence[ir.Value], axis: int) -> ir.Value:
    """The values along a new axis."""
    raised = []
    for value in values:
        raised.append(emit.op("Unsqueeze", value, np.array([axis])))
        if value.shape is not None and value.type is not None:
            raised[-1].type = value.type
            place = axis % (len(value.shape) + 1)
            raised[-1].shape = ir.Shape([*value.shape[:place], 1, *value.shape[place:]])
    return raised[0] if len(raised) == 1 else emit.op("Concat", *raised, axis=axis)


def _rank_0_or_1(repeat: Repeat, index: int) -> tuple[int, ...]:
    """The shape in which a body takes its iteration number and condition: [] or [1]."""
    shape = repeat.body.inputs[index].shape if repeat.is_loop else None
    return (1,) * len(shape or ())
