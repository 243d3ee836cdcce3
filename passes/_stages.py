"""A Loop or Scan of unknown length as Loops of several steps a trip; for static-unroll."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from gdn_ir.emitter import Emitter, without_symbols
from gdn_ir.facts import static_shape
from gdn_ir.passes._repeats import Repeat
from gdn_ir.passes._steps import Step, slices, stack, step

# Written on the Loops made here, which no later run takes for new ones.
MARK = "gdn_ir.unrolled"
_END = np.iinfo(np.int64)


def refusal(repeat: Repeat, opset: int) -> str | None:
    """Why the repetition cannot be cut into stages; None if it can."""
    if repeat.is_loop and repeat.node.inputs[0] is None:
        return "it has no trip count, only a condition; there is nothing to divide by the factor"
    types = [*repeat.body.inputs, *repeat.body.outputs]
    if untyped := [value.name for value in types if not isinstance(value.type, ir.TensorType)]:
        return f"'{untyped[0]}' of its body is no tensor of known type; infer types first"
    for row in (repeat.rows[index] for index in _needed(repeat)):
        if row.shape is None:
            return f"the rank of '{row.name}', which it collects, is not known; infer shapes first"
        if opset < 14 and not all(static_shape(row) or (0,)):
            return f"'{row.name}', which it collects, may be empty, for which it needs opset 14"
    return None


def staged(
    emit: Emitter, repeat: Repeat, factors: Sequence[int], *, steady: bool
) -> list[ir.Value]:
    """One Loop for each factor, of so many steps a trip; each takes on what the ones before left.

    Returns the outputs that something needs.
    """
    steps = total(emit, repeat)
    run = _Run(emit, repeat, steps, steady, _needed(repeat))
    left: ir.Value = steps
    base: ir.Value | None = None
    state = _State(run.start, list(repeat.initial))
    parts: list[list[ir.Value]] = []
    for factor in factors:
        trips = left if factor == 1 else emit.op("Div", left, np.array(factor))
        state, rows = run.stage(factor, trips, base, state)
        parts.append(rows)
        if factor > 1:
            done = emit.op("Mul", trips, np.array(factor))
            left = emit.op("Sub", left, done)
            base = done if base is None else emit.op("Add", base, done)
    results = dict(enumerate(state.carried))
    for index, collected in zip(run.needed, zip(*parts, strict=True), strict=True):
        joined = collected[0] if len(parts) == 1 else emit.op("Concat", *collected, axis=0)
        results[len(repeat.initial) + index] = placed(emit, repeat, index, joined)
    needed = repeat.outputs
    return [results[i] for i, value in enumerate(repeat.node.outputs) if value in needed]


@dataclasses.dataclass(frozen=True)
class _State:
    """What one stage hands to the next."""

    going: ir.Value | None
    carried: list[ir.Value]


@dataclasses.dataclass(frozen=True)
class _Run:
    """What all stages have in common.

    Attributes:
        emit: of the scope of the repetition.
        total: the number of all steps.
        steady: whether no step stops the repetition; else each after the first asks before it runs.
        needed: which of the collected outputs something needs.
    """

    emit: Emitter
    repeat: Repeat
    total: ir.Value
    steady: bool
    needed: Sequence[int]

    @property
    def start(self) -> ir.Value | None:
        """The condition before the first step; None if none is given, nor has to be handed on."""
        given = self.repeat.node.inputs[1] if self.repeat.is_loop else None
        return self.emit.constant(np.array(True)) if given is None and not self.steady else given

    def stage(
        self, factor: int, trips: ir.Value, base: ir.Value | None, state: _State
    ) -> tuple[_State, list[ir.Value]]:
        """A Loop of `factor` steps a trip from step `base` on; returns its rows too."""
        body = self.emit.body()
        number, going = self._number_and_condition(body)
        carried = [body.input_like(value) for value in self.repeat.carried]
        first = number if factor == 1 else body.op("Mul", number, np.array(factor))
        first = first if base is None else body.op("Add", first, base)

        # Rows of steps that were not run any more are cut off by the number of those that were.
        counts = not self.steady and factor > 1 and bool(self.needed)
        ran_before = self.emit.constant(np.zeros(1, np.int64)) if counts else None
        ran_in = ran = None if ran_before is None else body.input_like(ran_before)
        ran = None if ran is None else _one_more(body, ran)
        done = self._step(body, carried, first, going)
        rows = [[row] for row in done.rows]
        for index in range(1, factor):
            if self.steady:
                done = self._step(body, done.carried, self._add(body, first, index), going)
            else:
                done, ran = self._guarded(body, done, first, index, ran)
            for collected, row in zip(rows, done.rows, strict=True):
                collected.append(row)

        condition = body.identity(going) if done.going is None or self.steady else done.going
        kept = [] if self.steady else [condition]
        results = [*kept, *done.carried, *([] if ran is None else [ran])]
        stacked = [_stack_rows(body, collected) for collected in rows]
        inputs = [*([] if self.steady else [body.input_like(going)]), *carried]
        graph = body.as_graph(
            [number, going, *inputs, *([] if ran_in is None else [ran_in])],
            [condition, *results, *stacked],
        )
        outputs = self.emit.ops(
            "Loop",
            trips,
            state.going,
            *([] if self.steady else [state.going]),
            *state.carried,
            *([] if ran_before is None else [ran_before]),
            outputs=len(results) + len(stacked),
            body=graph,
        )
        node = outputs[0].producer()
        assert node is not None, "just made"
        node.metadata_props[MARK] = str(factor)
        for value, like in zip(outputs, results, strict=False):
            value.type = like.type
        skip, count = len(kept), len(carried)
        for value, first_in, like in zip(outputs[skip:], carried, done.carried, strict=False):
            if static_shape(first_in) is not None and first_in.shape == like.shape:
                value.shape = like.shape
        collected_rows = [
            self._rows(value, index, factor, outputs[skip + count] if counts else None)
            for value, index in zip(outputs[len(results) :], self.needed, strict=True)
        ]
        after = _State(state.going if self.steady else outputs[0], list(outputs[skip:][:count]))
        return after, collected_rows

    def _number_and_condition(self, body: Emitter) -> tuple[ir.Value, ir.Value]:
        """The first two inputs of a Loop's body, of the ranks that the body now takes."""
        number = ir.Value(type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([]))
        going = ir.Value(type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
        for value, like in zip((number, going), self.repeat.body.inputs, strict=False):
            if self.repeat.is_loop and like.shape is not None:
                value.shape = ir.Shape([1] * len(like.shape))
        return body.input_like(number), body.input_like(going)

    def _step(
        self, emit: Emitter, carried: Sequence[ir.Value], number: ir.Value, going: ir.Value
    ) -> Step:
        """One step, with the rows that are needed."""
        read: list[ir.Value] = []
        if self.repeat.scanned:
            last = emit.op("Sub", self.total, np.array(1))
            read = slices(emit, self.repeat, number, emit.op("Sub", last, number))
        done = step(emit, self.repeat, carried, number, going, read)
        return dataclasses.replace(done, rows=[done.rows[index] for index in self.needed])

    def _guarded(
        self, body: Emitter, before: Step, first: ir.Value, index: int, ran: ir.Value | None
    ) -> tuple[Step, ir.Value | None]:
        """A step that is run only if the one before says so; else all stays as it is."""
        assert before.going is not None, "only a Loop can stop"
        then_branch, else_branch = body.body(), body.body()
        number = self._add(then_branch, first, index)
        done = self._step(then_branch, before.carried, number, before.going)
        assert done.going is not None, "only a Loop can stop"
        new = [done.going, *done.carried, *done.rows]
        # The row is not used; it has the type and the shape of one.
        old = [before.going, *before.carried, *before.rows]
        if ran is not None:
            new.append(_one_more(then_branch, ran))
            old.append(ran)
        outputs = body.ops(
            "If",
            before.going,
            outputs=len(new),
            then_branch=then_branch.as_graph([], new),
            else_branch=else_branch.as_graph([], old),
        )
        for value, like in zip(outputs, old, strict=True):
            value.type = like.type
        going, *rest = outputs
        count = len(done.carried)
        rows = rest[count : count + len(done.rows)]
        return Step(going, rest[:count], rows), None if ran is None else rest[-1]

    def _rows(self, value: ir.Value, index: int, factor: int, ran: ir.Value | None) -> ir.Value:
        """Rows [trips, factor, ...] as [trips * factor, ...], those that were run."""
        if factor == 1:
            return value
        row = static_shape(self.repeat.rows[index])
        if row is not None and all(row):
            flat = self.emit.op("Reshape", value, np.array([-1, *row]))
        else:
            sizes = self.emit.op("Shape", value)
            trips = self.emit.op("Slice", sizes, np.array([0]), np.array([1]))
            rest = self.emit.op("Slice", sizes, np.array([2]), np.array([_END.max]))
            count = self.emit.op("Mul", trips, np.array([factor]))
            shape = self.emit.op("Concat", count, rest, axis=0)
            flat = self.emit.op("Reshape", value, shape, allowzero=1)
        if ran is None:
            return flat
        return self.emit.op("Slice", flat, np.array([0]), ran, np.array([0]))

    @staticmethod
    def _add(emit: Emitter, first: ir.Value, index: int) -> ir.Value:
        return emit.op("Add", first, np.array(index))


def _needed(repeat: Repeat) -> list[int]:
    """Which of the collected outputs something needs."""
    count, needed = len(repeat.initial), repeat.outputs
    return [i for i, value in enumerate(repeat.node.outputs[count:]) if value in needed]


def total(emit: Emitter, repeat: Repeat) -> ir.Value:
    """The number of all steps, a scalar."""
    if not repeat.is_loop:
        axis = repeat.integers("scan_input_axes", len(repeat.scanned))[0]
        return emit.op("Gather", emit.op("Shape", repeat.scanned[0]), np.array(axis))
    trips = repeat.node.inputs[0]
    assert trips is not None, "checked before"
    if static_shape(trips) == ():
        return trips
    return emit.op("Reshape", trips, np.array([], np.int64))


def _one_more(emit: Emitter, count: ir.Value) -> ir.Value:
    more = emit.op("Add", count, np.ones(1, np.int64))
    more.type, more.shape = count.type, count.shape
    return more


def _stack_rows(body: Emitter, rows: Sequence[ir.Value]) -> ir.Value:
    if len(rows) == 1:
        return rows[0]
    stacked = stack(body, rows, 0)
    stacked.type = rows[0].type
    row = without_symbols(rows[0].shape)
    if row is not None:
        stacked.shape = ir.Shape([len(rows), *row])
    return stacked


def placed(emit: Emitter, repeat: Repeat, index: int, rows: ir.Value) -> ir.Value:
    """What a Loop collects, in the order and along the axis in which a Scan does."""
    if repeat.integers("scan_output_directions", len(repeat.rows))[index]:
        backward = (np.array([-1]), np.array([_END.min]), np.array([0]), np.array([-1]))
        rows = emit.op("Slice", rows, *backward)
    rank = len(repeat.rows[index].shape or ()) + 1
    axis = repeat.integers("scan_output_axes", len(repeat.rows))[index] % rank
    if axis == 0:
        return rows
    return emit.op("Transpose", rows, perm=[*range(1, axis + 1), 0, *range(axis + 1, rank)])
