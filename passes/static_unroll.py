"""static-unroll: the steps of a Loop or Scan, written out one after another."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar

import onnx_ir as ir

from gdn_ir.graph_view import is_deterministic, is_onnx, scopes, walk
from gdn_ir.pass_base import Pass
from gdn_ir.passes import _repeats as repeats
from gdn_ir.passes._repeats import Folded, Repeat
from gdn_ir.passes._stages import MARK, staged
from gdn_ir.passes._stages import refusal as stages_refusal
from gdn_ir.passes._steps import empty_rows_shape, straight
from gdn_ir.passes._trip_samples import samples_of_lengths, small_sample
from gdn_ir.region import Region, replace
from gdn_ir.rewrite import Declined, Rewrite, Sample

# Beyond this many new nodes runtimes take minutes to load what they would run in no time.
_MOST_NODES = 20_000
_LARGEST_FACTOR = 1024


@dataclasses.dataclass(frozen=True)
class StaticUnroll(Pass):
    """The steps of a Loop or Scan, written out one after another.

    Identity: a Loop of n trips is its body n times, each on what the one before left; step i is
    told the number i, a Scan's reads slice i, and what is collected is stacked. Where n is known (a
    trip count that follows from constants and static shapes with a condition that stays true, a
    scanned axis of static size) and at most `limit`, all of it becomes straight code.

    Where n is not known, it becomes a Loop of `factor` steps a trip, n // factor trips long, and
    one for what is left: step j of trip t is number t factor + j. `factor=16:4` makes three, of 16,
    4 and 1 steps; `factor=1` none. If the condition may change, each step but the first of a trip
    stands in an If that asks it, and rows beyond the last step are cut off. A Scan becomes Loops
    too: ONNX Runtime refuses a Scan over nothing, which a remainder may be.

    Cost: n times (or factor + 1 times) the nodes of the body, for which runtimes pay when they
    load a model; constants are shared. What it buys is that steps can be merged, folded and
    reordered, which no runtime does across the trips of a Loop. Inner loops are unrolled first,
    then those whose length the number of an outer step decides.

    Source: loop unrolling (Dongarra and Hinds, Unrolling loops in Fortran, 1979).
    """

    name: ClassVar[str] = "static-unroll"

    factor: str = "16"
    limit: int = 64

    def __post_init__(self) -> None:
        """Checks the options."""
        if self.limit < 0:
            raise ValueError(f"limit is a number of trips, at least 0, not {self.limit}")
        if not self.factors:
            raise ValueError(
                f"factor is a number of steps from 1 to {_LARGEST_FACTOR}, or several, each less "
                f"than the one before, as in 16:4; not '{self.factor}'"
            )

    @property
    def factors(self) -> list[int]:
        """Steps a trip of each Loop that takes the place of one, the last being 1; [] if wrong."""
        parts = str(self.factor).split(":")
        if not all(part.isascii() and part.isdigit() for part in parts):
            return []
        numbers = [int(part) for part in parts]
        if numbers[-1] != 1:
            numbers.append(1)
        falling = numbers == sorted(set(numbers), reverse=True)
        return numbers if falling and numbers[0] <= _LARGEST_FACTOR else []

    def rewrites(self, model: ir.Model) -> Iterator[Rewrite | Declined]:
        """Loops and Scans of known length until none is left, then the others; inner ones first."""
        changed = True
        while changed:
            changed = False
            for graph in _inner_first(model):
                for repeat, folded in _repeats_of(graph, model):
                    trips = repeats.trips(repeat, folded)
                    if trips is not None and self._refusal(model, repeat, trips) is None:
                        changed = True
                        yield self._unroll(model, repeat, trips)
                # What encloses this scope is cut out or copied next, which needs it in order.
                graph.sort()
        for graph in _inner_first(model):
            for repeat, folded in _repeats_of(graph, model):
                yield self._unroll_in_part(model, repeat, folded)
            graph.sort()

    def _refusal(self, model: ir.Model, repeat: Repeat, trips: int) -> str | None:
        """Why a repetition of known length stays as it is; None if it need not."""
        if trips > self.limit:
            return f"it has {trips} trips; at most limit={self.limit} are written out"
        if (nodes := trips * repeat.size) > _MOST_NODES:
            return (
                f"{trips} trips of {repeat.size} nodes would be {nodes} nodes; "
                f"at most {_MOST_NODES} are made"
            )
        if trips == 0:
            for index in range(len(repeat.rows)):
                value = repeat.node.outputs[len(repeat.initial) + index]
                if value in repeat.outputs and not _can_be_empty(repeat, index):
                    return f"'{value.name}' collects nothing, and its shape is not known"
        return _unverifiable(model, repeat)

    def _unroll(self, model: ir.Model, repeat: Repeat, trips: int) -> Rewrite:
        region = Region.between(repeats.boundary(repeat), repeat.outputs)
        size = repeat.size
        before, after = replace(
            model, region, lambda emit: straight(emit, repeat, trips), tag=str(self)
        )
        unit = "trips" if repeat.is_loop else "steps"
        found = f"{repeat.node.op_type} of {trips} {unit}: {size} nodes become {trips * size}"
        return self._record(found, before, after, lambda: small_sample(before))

    def _unroll_in_part(
        self, model: ir.Model, repeat: Repeat, folded: Folded
    ) -> Rewrite | Declined:
        steady = repeats.is_steady(repeat, folded)
        reason = self._refusal_in_part(model, repeat, folded, steady=steady)
        if reason is not None:
            return Declined(str(self), repeat.outputs[0].name or "", reason)
        region = Region.between(repeats.boundary(repeat), repeat.outputs)
        size = repeat.size
        before, after = replace(
            model,
            region,
            lambda emit: staged(emit, repeat, self.factors, steady=steady),
            tag=str(self),
        )
        unit = "trips" if repeat.is_loop else "steps"
        sizes = " + ".join(str(size * factor) for factor in self.factors)
        found = f"{repeat.node.op_type} of unknown {unit}: {size} nodes become {sizes}"
        most = self.factors[0]
        lengths = sorted({0, 1, most - 1, most, 2 * most + 1})
        return self._record(found, before, after, lambda: samples_of_lengths(before, lengths))

    def _refusal_in_part(
        self, model: ir.Model, repeat: Repeat, folded: Folded, *, steady: bool
    ) -> str | None:
        """Why a repetition is not cut into Loops; None if it can be."""
        trips = repeats.trips(repeat, folded)
        if trips is not None:
            return self._refusal(model, repeat, trips)
        if self.factors == [1]:
            return "its number of trips is not known; give a factor above 1"
        if (nodes := sum(self.factors) * repeat.size) > _MOST_NODES:
            return (
                f"{' + '.join(map(str, self.factors))} steps of {repeat.size} nodes would be "
                f"{nodes} nodes; at most {_MOST_NODES} are made"
            )
        reason = stages_refusal(repeat, folded.opsets[""])
        return reason if reason is not None else _unverifiable(model, repeat)

    def _record(
        self,
        found: str,
        before: ir.Model,
        after: ir.Model,
        samples: Callable[[], Iterable[Sample]],
    ) -> Rewrite:
        where = before.graph.outputs[0].name or ""
        return Rewrite(str(self), where, found, before, after, (), samples)


def _inner_first(model: ir.Model) -> list[ir.Graph]:
    return list(scopes(model))[::-1]


def _repeats_of(graph: ir.Graph, model: ir.Model) -> Iterator[tuple[Repeat, Folded]]:
    """The Loops and Scans of a scope whose outputs are needed, each with what is known there."""
    for node in list(graph):
        repeat = repeats.read(node) if node.graph is graph else None
        if repeat is not None and repeat.outputs and MARK not in node.metadata_props:
            yield repeat, Folded({**model.opset_imports, **graph.opset_imports})


def _can_be_empty(repeat: Repeat, index: int) -> bool:
    dtype = repeat.rows[index].dtype
    known = dtype is not None and dtype != ir.DataType.STRING
    return known and empty_rows_shape(repeat, index) is not None


def _unverifiable(model: ir.Model, repeat: Repeat) -> str | None:
    """Why neither gate could check the result."""
    for node in walk(repeat.body):
        if node.op_identifier() in model.functions or is_deterministic(node):
            continue
        if is_onnx(node):
            return f"its body draws random numbers ({node.op_type})"
        return f"its body has the op {node.domain}.{node.op_type}, whose meaning is not known"
    for value in repeats.boundary(repeat):
        if not isinstance(value.type, ir.TensorType):
            known = "has no type" if value.type is None else f"is a {value.type}, not a tensor"
            return f"'{value.name}', which it reads, {known}; infer types and shapes first"
        if value.shape is None:
            return f"the rank of '{value.name}', which it reads, is not known; infer shapes first"
    return None
