"""static-unroll: a Loop or Scan of known length becomes straight code."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import onnx_ir as ir

from gdn_ir.graph_view import is_deterministic, is_onnx, scopes, walk
from gdn_ir.pass_base import Pass
from gdn_ir.passes import _repeats as repeats
from gdn_ir.passes._repeats import Folded, Repeat
from gdn_ir.passes._steps import empty_rows_shape, straight
from gdn_ir.passes._trip_samples import small_sample
from gdn_ir.region import Region, replace
from gdn_ir.rewrite import Declined, Rewrite

# Beyond this many new nodes runtimes take minutes to load what they would run in no time.
_MOST_NODES = 20_000


@dataclasses.dataclass(frozen=True)
class StaticUnroll(Pass):
    """The steps of a Loop or Scan, written out one after another.

    Identity: a Loop of n trips is its body n times, each on what the one before left; step i is
    told the number i, a Scan's reads slice i, and what is collected is stacked. Holds whenever n
    is known and at most `limit`: a trip count that follows from constants and static shapes, with
    a condition that stays true, or a scanned axis of static size.

    Cost: n times the nodes of the body, for which runtimes pay when they load a model; constants
    are shared. What it buys is that steps can be merged, folded and reordered, which no runtime
    does across the trips of a Loop. Inner loops are unrolled first, then those whose length the
    number of an outer step decides.

    Source: loop unrolling (Dongarra and Hinds, Unrolling loops in Fortran, 1979).
    """

    name: ClassVar[str] = "static-unroll"

    limit: int = 64

    def __post_init__(self) -> None:
        """Checks the options."""
        if self.limit < 0:
            raise ValueError(f"limit is a number of trips, at least 0, not {self.limit}")

    def rewrites(self, model: ir.Model) -> Iterator[Rewrite | Declined]:
        """Every Loop and Scan of known length, inner ones first, until none is left."""
        changed = True
        while changed:
            changed = False
            for graph in _inner_first(model):
                for repeat, folded in _repeats_of(graph, model):
                    if self._refusal(model, repeat, folded) is None:
                        changed = True
                        yield self._unroll(model, repeat, repeats.trips(repeat, folded) or 0)
                # What encloses this scope is cut out or copied next, which needs it in order.
                graph.sort()
        for graph in _inner_first(model):
            for repeat, folded in _repeats_of(graph, model):
                reason = self._refusal(model, repeat, folded)
                if reason is not None:
                    yield Declined(str(self), repeat.outputs[0].name or "", reason)

    def _refusal(self, model: ir.Model, repeat: Repeat, folded: Folded) -> str | None:
        """Why the repetition stays as it is; None if it need not."""
        trips = repeats.trips(repeat, folded)
        if trips is None:
            return "its number of trips is not known"
        if trips > self.limit:
            return f"it has {trips} trips; at most limit={self.limit} are written out"
        if trips * repeat.size > _MOST_NODES:
            return (
                f"{trips} trips of {repeat.size} nodes would be {trips * repeat.size} nodes; "
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
        where, size = region.outputs[0].name or "", repeat.size
        before, after = replace(
            model, region, lambda emit: straight(emit, repeat, trips), tag=str(self)
        )
        unit = "trips" if repeat.is_loop else "steps"
        return Rewrite(
            pass_text=str(self),
            where=where,
            found=f"{repeat.node.op_type} of {trips} {unit}: {size} nodes become {trips * size}",
            before=before,
            after=after,
            assumes=(),
            samples=lambda: small_sample(before),
        )


def _inner_first(model: ir.Model) -> list[ir.Graph]:
    return list(scopes(model))[::-1]


def _repeats_of(graph: ir.Graph, model: ir.Model) -> Iterator[tuple[Repeat, Folded]]:
    """The Loops and Scans of a scope whose outputs are needed, each with what is known there."""
    for node in list(graph):
        repeat = repeats.read(node) if node.graph is graph else None
        if repeat is not None and repeat.outputs:
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
