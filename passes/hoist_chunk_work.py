"""hoist-chunk-work: what the state does not go through leaves the steps over the chunks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from gdn_ir.emitter import Emitter
from gdn_ir.graph_view import scopes
from gdn_ir.matching import OpIndex
from gdn_ir.pass_base import Pass
from gdn_ir.passes import _repeats as repeats
from gdn_ir.passes import _step_copies as step_copies
from gdn_ir.passes._distributed import distributed
from gdn_ir.passes._distribution import Distribution, distribution, obstacle
from gdn_ir.passes._repeats import Folded, Repeat
from gdn_ir.passes._trip_samples import samples_of_lengths, small_sample
from gdn_ir.region import Region, replace
from gdn_ir.rewrite import Declined, Rewrite, Sample
from gdn_ir.wording import counted

# No steps, one, a few: a product for all steps at once is the same sum in each.
_LENGTHS = (0, 1, 2, 5)


@dataclasses.dataclass(frozen=True)
class HoistChunkWork(Pass):
    """What the state does not go through leaves the steps over the chunks and runs for all at once.

    Identity: a Loop or Scan whose body is three parts, p = P(i), (s', c) = S(s, p), r = R(c, p), of
    which S alone carries the state s, is P for all i, then S for each i in turn, then R for all i.
    With the step as one more axis, P and R are single ops: a MatMul of 16 chunks in place of 16.
    In the chunk rule, S is the state's update; the attention inside a chunk is P, and the output,
    Q S + attention v', is R, for which the states and v' are collected. Of steps that are written
    out, P leaves: copies of one computation on the equal pieces of the same tensors (by Gather,
    Slice or Split) are one, on the tensors with the pieces along a first axis.

    Holds where every step is run: a Loop whose condition may change stays as it is. An op moves if
    it is known to act on each step alone (products, elementwise ops, reductions, views and copies
    along constant axes, what a Gather takes by the step, a Slice too where the number of steps is
    known); what is not stays, with all that lies between it and the state. An inverse that is a
    Loop over rows stays; what `parallel-inverse` makes of it goes. Written out, all steps but one
    must have the op, and there must be four: two or three pieces are rather q, k and v.

    Cost: memory, for what P and R hold of all steps at once, and the values that cross from one
    part to the next, instead of those of one step. Where R would need more than 4 times as many
    collected numbers as it makes needless (the states of all tokens), it stays. It goes before
    `flatten-matmul`, without which its products do not fold their transposes.

    In no target's pipeline. On ONNX Runtime's CPU, 2 cores that others used too, beside `portable`,
    in medians of 21 to 41 pairs of runs: the rule with fill-zero masks (512 or 1024 tokens, 4 to 32
    heads) runs .84 to .92 times as fast as a Loop and .97 to 1.07 written out; four layers with
    fill-inf masks (1024 tokens, 4 heads of 64), a Loop each, .95 to 1.08. A chunk's products keep
    those cores busy already, and copies take what is saved. What it does where each op costs a
    launch was not measured.

    Source: loop distribution (Allen and Kennedy, Automatic translation of FORTRAN programs to
    vector form, 1987).
    """

    name: ClassVar[str] = "hoist-chunk-work"

    def rewrites(self, model: ir.Model) -> Iterator[Rewrite | Declined]:
        """One for each Loop and Scan that holds such work, and each set of copies; inner first."""
        for graph in list(scopes(model))[::-1]:
            folded = Folded({**model.opset_imports, **graph.opset_imports})
            for node in list(OpIndex(graph).of("Loop", "Scan")):
                repeat = repeats.read(node)
                if repeat is None or not repeat.outputs:
                    continue
                trips = repeats.trips(repeat, folded)
                parts = distribution(repeat, trips=trips)
                if parts is not None:
                    yield self._rewrite(model, repeat, parts, folded)
                elif (stuck := obstacle(repeat, trips=trips)) is not None:
                    yield Declined(str(self), repeat.outputs[0].name or "", _stays(stuck))
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
            lambda emit: distributed(emit, repeat, parts, known),
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


def _stays(node: ir.Node) -> str:
    return (
        f"'{node.outputs[0].name}' ({node.op_type}) is not known to be the same for all steps at "
        "once, and what the state does not go through needs it"
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
