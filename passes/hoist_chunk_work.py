"""hoist-chunk-work: what the state does not go through leaves the loop over the chunks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from gdn_ir.emitter import Emitter
from gdn_ir.facts import static_shape
from gdn_ir.graph_view import scopes
from gdn_ir.matching import OpIndex
from gdn_ir.pass_base import Pass
from gdn_ir.passes import _repeats as repeats
from gdn_ir.passes import _step_copies as step_copies
from gdn_ir.passes._batched import Batch, rank, to_front
from gdn_ir.passes._distribution import Distribution, distribution
from gdn_ir.passes._repeats import Folded, Repeat
from gdn_ir.passes._stages import placed, total
from gdn_ir.passes._trip_samples import samples_of_lengths, small_sample
from gdn_ir.region import Region, replace
from gdn_ir.removal import release
from gdn_ir.rewrite import Declined, Rewrite, Sample
from gdn_ir.wording import counted

_END = np.iinfo(np.int64)
_ROWS = ("scan_output_axes", "scan_output_directions")
# No steps, one, a few: a product for all steps at once is the same sum in each.
_LENGTHS = (0, 1, 2, 5)


@dataclasses.dataclass(frozen=True)
class HoistChunkWork(Pass):
    """What the state does not go through leaves a Loop or Scan and runs for all steps at once.

    Identity: a repetition whose body is three parts, p = P(i), (s', c) = S(s, p), r = R(c, p), of
    which S alone carries the state s, is P for all i, then S for each i in turn, then R for all i.
    With the step as one more axis, P and R are single ops: a MatMul of 16 chunks in place of 16.
    In the chunk rule, S is the state's update; the attention inside a chunk is P, and the output,
    Q S + attention v', is R, for which the states and v' are collected.

    Holds where every step is run: a Loop whose condition may change stays as it is. An op moves if
    it is known to act on each step alone (products, elementwise ops, reductions, views and copies
    along constant axes, what a Gather takes by the step, a Slice too where the number of steps is
    known); what is not stays, with all that lies between it and the state.

    Cost: memory, for what P and R hold of all steps at once, and the values that cross from one
    part to the next, instead of those of one step. Where R would need more than 4 times as many
    collected numbers as it makes needless (the states of all tokens), it stays. In no pipeline: on
    ONNX Runtime's CPU with 2 cores it is .9 to 1.0 times as fast, as products of a chunk fill them;
    it is for runtimes where every op costs a launch.

    Source: loop distribution (Allen and Kennedy, Automatic translation of FORTRAN programs to
    vector form, 1987).
    """

    name: ClassVar[str] = "hoist-chunk-work"

    def rewrites(self, model: ir.Model) -> Iterator[Rewrite | Declined]:
        """One for each Loop and Scan that holds such work, inner ones first."""
        for graph in list(scopes(model))[::-1]:
            folded = Folded({**model.opset_imports, **graph.opset_imports})
            for node in list(OpIndex(graph).of("Loop", "Scan")):
                repeat = repeats.read(node)
                if repeat is None or not repeat.outputs:
                    continue
                is_counted = repeats.trips(repeat, folded) is not None
                parts = distribution(repeat, is_counted=is_counted)
                if parts is not None:
                    yield self._rewrite(model, repeat, parts, folded)
            graph.sort()
            yield from self._copies(model, graph)
            graph.sort()

    def _rewrite(
        self, model: ir.Model, repeat: Repeat, parts: Distribution, folded: Folded
    ) -> Rewrite | Declined:
        reason = _refusal(repeat, folded)
        if reason is not None:
            return Declined(str(self), repeat.outputs[0].name or "", reason)
        region = Region.between(repeats.boundary(repeat), repeat.outputs)
        known = repeats.trips(repeat, folded)
        moved = f"{counted(len(parts.moved), 'node')} run before it, {len(parts.late)} after it"
        return self._replaced(
            model,
            region,
            lambda emit: _distributed(emit, repeat, parts, known),
            f"{repeat.node.op_type} of {counted(repeat.size, 'node')}: {moved}",
            small_sample if known is not None else partial(samples_of_lengths, lengths=_LENGTHS),
        )

    def _copies(self, model: ir.Model, graph: ir.Graph) -> Iterator[Rewrite | Declined]:
        for copies in step_copies.find(graph):
            if not copies.outputs or not copies.saves:
                continue
            reason = copies.clash(graph)
            if reason is not None:
                yield Declined(str(self), copies.outputs[0].name or "", reason)
                continue
            region = Region.between(copies.boundary, copies.outputs)
            rows = sum(row[0] in copies.moved for row in copies.rows)
            found = f"{counted(len(copies.moved), 'node')} on {copies.count} pieces: {rows} on all"
            yield self._replaced(model, region, copies.emit, found, small_sample)

    def _replaced(
        self,
        model: ir.Model,
        region: Region,
        build: Callable[[Emitter], Sequence[ir.Value]],
        found: str,
        samples: Callable[[ir.Model], Iterable[Sample]],
    ) -> Rewrite:
        before, after = replace(model, region, build, tag=str(self))
        return Rewrite(
            pass_text=str(self),
            where=before.graph.outputs[0].name or "",
            found=found,
            before=before,
            after=after,
            assumes=(),
            samples=lambda: samples(before),
        )


def _refusal(repeat: Repeat, folded: Folded) -> str | None:
    if not repeat.is_loop:
        return None
    if repeat.node.inputs[0] is None:
        return "it has no trip count, so that it is not known how often its work is needed"
    start = folded(repeat.node.inputs[1]) if repeat.node.inputs[1] is not None else np.ones(1)
    if start is None or not start.all() or not repeats.is_steady(repeat, folded):
        return "its condition may stop it early, so that not every step is run"
    return None


def _distributed(
    emit: Emitter, repeat: Repeat, parts: Distribution, steps: int | None
) -> list[ir.Value]:
    batch = Batch(emit, steps)
    _give_steps(emit, repeat, batch)
    for node in parts.before:
        batch.node(node)
    kept = [i for i, row in enumerate(repeat.rows) if not _leaves(row, parts, batch)]
    outputs = _inside(emit, repeat, parts, batch, kept)
    count = len(repeat.initial)
    collected = outputs[count + len(kept) :]
    batch.of_steps.update(zip(parts.crossing, collected, strict=True))
    for node in parts.after:
        batch.node(node)
    rows = dict(zip(kept, outputs[count:], strict=False))
    results = [
        *outputs[:count],
        *(
            rows[index] if index in rows else placed(emit, repeat, index, batch.of_steps[row])
            for index, row in enumerate(repeat.rows)
        ),
    ]
    needed = repeat.outputs
    return [results[i] for i, value in enumerate(repeat.node.outputs) if value in needed]


def _leaves(row: ir.Value, parts: Distribution, batch: Batch) -> bool:
    """Whether a collected value is made outside of the body."""
    producer = row.producer()
    return producer in parts.late or (producer in parts.moved and row in batch.of_steps)


def _give_steps(emit: Emitter, repeat: Repeat, batch: Batch) -> None:
    """The iteration numbers, or what a Scan reads, of all steps."""
    if repeat.is_loop:
        number = repeat.body.inputs[0]
        steps = emit.op("Range", np.array(0), total(emit, repeat), np.array(1))
        if rank(number):
            steps = emit.op("Unsqueeze", steps, np.array([1]))
        steps.type = ir.TensorType(ir.DataType.INT64)
        steps.shape = ir.Shape([batch.steps] + [1] * (rank(number) or 0))
        batch.of_steps[number] = steps
        batch.number = number
        return
    scanned = repeat.body.inputs[len(repeat.carried) :]
    axes = repeat.integers("scan_input_axes", len(scanned))
    backward = repeat.integers("scan_input_directions", len(scanned))
    for value, source, axis, back in zip(scanned, repeat.scanned, axes, backward, strict=True):
        dims = (rank(value) or 0) + 1
        steps = to_front(emit, source, axis % dims, dims)
        if back:
            end = (np.array([-1]), np.array([_END.min]), np.array([0]), np.array([-1]))
            steps = emit.op("Slice", steps, *end)
        batch.of_steps[value] = steps


def _inside(
    emit: Emitter, repeat: Repeat, parts: Distribution, batch: Batch, kept: list[int]
) -> list[ir.Value]:
    """The repetition without what leaves it; its carried values, kept rows and crossing values."""
    body = repeat.body.clone(allow_outer_scope_values=True)
    twin = dict(zip(repeat.body.inputs, body.inputs, strict=True))
    for node, copy in zip(repeat.body, body, strict=True):
        twin.update(zip(node.outputs, copy.outputs, strict=True))
    scanned = _read_from_outside(emit, repeat, parts, batch, body, twin)
    count = len(repeat.initial)
    first = body.outputs[: count + repeat.is_loop]
    rows = [body.outputs[count + repeat.is_loop + index] for index in kept]
    for value in parts.crossing:
        # A body returns each of its values once.
        copy = ir.node("Identity", [twin[value]])
        copy.outputs[0].type, copy.outputs[0].shape = value.type, value.shape
        body.append(copy)
        rows.append(copy.outputs[0])
    body.outputs.clear()
    body.outputs.extend([*first, *rows])

    inner = emit.body()
    inputs = [inner.input_like(value) for value in body.inputs]
    graph = inner.as_graph(inputs, inner.copy(body, inputs))
    release(body)
    outputs = _node(emit, repeat, graph, scanned, kept, len(parts.crossing))
    for value, like in zip(outputs, repeat.node.outputs[:count], strict=False):
        value.type, value.shape = like.type, like.shape
    for value, index in zip(outputs[count:], kept, strict=False):
        like = repeat.node.outputs[count + index]
        value.type, value.shape = like.type, like.shape
    for value, like in zip(outputs[count + len(kept) :], parts.crossing, strict=True):
        value.type, value.shape = like.type, ir.Shape([batch.steps, *(static_shape(like) or ())])
    return list(outputs)


def _read_from_outside(
    emit: Emitter,
    repeat: Repeat,
    parts: Distribution,
    batch: Batch,
    body: ir.Graph,
    twin: dict[ir.Value, ir.Value],
) -> list[ir.Value]:
    """Has the body read what was moved before it; returns what a Scan is to read in addition."""
    scanned: list[ir.Value] = []
    stays = parts.moved | parts.late
    for value in (v for node in repeat.body if node in parts.moved for v in node.outputs):
        if not value.is_graph_output() and all(user in stays for user, _ in value.uses()):
            continue
        if value not in batch.of_steps:
            new = _returnable(batch[value], body) if value.is_graph_output() else batch[value]
        elif repeat.is_loop:
            new = _of_this_step(emit, batch[value], body)
        else:
            new = ir.Value(name=f"step_of_{value.name}")
            body.inputs.append(new)
            scanned.append(batch[value])
        if new is not batch[value]:
            new.type, new.shape = value.type, value.shape
        ir.convenience.replace_all_uses_with(twin[value], new, replace_graph_outputs=True)
    return scanned


def _returnable(value: ir.Value, body: ir.Graph) -> ir.Value:
    """A value of the scope around, as one that the body may return."""
    node = ir.node("Identity", [value])
    body.insert_before(body[0], node)
    return node.outputs[0]


def _of_this_step(emit: Emitter, steps: ir.Value, body: ir.Graph) -> ir.Value:
    """What a Loop's body reads of a value of all steps, by its iteration number."""
    number = body.inputs[0]
    nodes = [ir.node("Gather", [steps, number], {"axis": 0})]
    if rank(number):
        nodes.append(ir.node("Squeeze", [nodes[0].outputs[0], emit.constant(np.array([0]))]))
    body.insert_before(body[0], nodes)
    return nodes[-1].outputs[0]


def _node(
    emit: Emitter,
    repeat: Repeat,
    body: ir.Graph,
    scanned: list[ir.Value],
    kept: list[int],
    crossing: int,
) -> tuple[ir.Value, ...]:
    """The repetition again, with another body."""
    count = len(repeat.initial) + len(kept) + crossing
    if repeat.is_loop:
        return emit.ops("Loop", *repeat.node.inputs, outputs=count, body=body)
    reads, new = len(repeat.scanned), len(scanned)
    given = [repeat.integers(name, len(repeat.rows)) for name in _ROWS]
    return emit.ops(
        "Scan",
        *repeat.node.inputs,
        *scanned,
        outputs=count,
        body=body,
        num_scan_inputs=reads + new,
        scan_input_axes=[*repeat.integers("scan_input_axes", reads), *[0] * new],
        scan_input_directions=[*repeat.integers("scan_input_directions", reads), *[0] * new],
        **{
            name: [*(values[index] for index in kept), *[0] * crossing]
            for name, values in zip(_ROWS, given, strict=True)
        },
    )
