"""fuse-tail-concat: what is done alike to several tiles is done once, to the tiles side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import ClassVar, TypeVar

import onnx_ir as ir

from gdn_ir.emitter import Emitter
from gdn_ir.facts import Fact
from gdn_ir.graph_view import scopes
from gdn_ir.open_shapes import shape_text
from gdn_ir.pass_base import Pass
from gdn_ir.passes import _row_inverses as row_inverses
from gdn_ir.passes import _row_tiles as row_tiles
from gdn_ir.passes import _shared_operand as shared_operand
from gdn_ir.passes import _sibling_chains as sibling_chains
from gdn_ir.passes._row_inverses import Form, RowInverse
from gdn_ir.passes._side_by_side import agree, cut, needs
from gdn_ir.passes._tail_local import tail_of
from gdn_ir.passes._trip_samples import small_sample
from gdn_ir.region import Region, replace
from gdn_ir.rewrite import Declined, Rewrite, Sample

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class FuseTailConcat(Pass):
    """Row loops, chains and MatMuls that do the same to several tiles become one on all of them.

    The tiles are put side by side along their last axis, the tail, up to `width` columns.

    Identities: (a) row-by-row inverses of k tiles [n, n]: row i of a tile is untouched until step
    i, so the coefficients of every step can be taken from the input, R[i, j, n b + c] =
    X[i, n b + j], and then a step, Y[i] += sum_j R[i, j] * Y[j], is the same for all columns.
    Holds for strictly lower tiles, which is established. (b) Chains of ops that keep the columns
    of the tail apart (elementwise, products from the left, reductions and copies along other
    axes), written alike: f(X1), f(X2) is f([X1, X2]), cut. (c) L R1, L R2 is L [R1, R2], and
    L1 R, L2 R is [L1; L2] R.

    Tiles must agree in type and shape, and none may need what another one makes. Chains are left
    alone if the copies that put tiles together and cut them apart are no fewer than the ops saved.

    Cost: those copies; (a) holds n times as many coefficients. Fewer and wider ops are what NPUs
    with wide vectors want. On ONNX Runtime's CPU, 2 cores, copies eat the gain: the baseline of
    eight inverses a chunk (8 heads of 64, 512 tokens) runs 1.04 times as fast, what `portable`
    makes of it .8 times. In no target's pipeline.

    Source: tail-axis concatenation of tiles, as PyPTO's kernels do it for 16 by 16 inverses.
    """

    name: ClassVar[str] = "fuse-tail-concat"

    width: int = 128

    def __post_init__(self) -> None:
        """Checks the option."""
        if self.width < 2:
            raise ValueError(f"width is a number of columns, at least 2, not {self.width}")

    def rewrites(self, model: ir.Model) -> Iterator[Rewrite | Declined]:
        """Inverses first, then chains, then products, in every scope."""
        forms: dict[str, Form | None] = {}
        for graph in scopes(model):
            yield from self._inverses(model, graph, forms)
            graph.sort()
            yield from self._one_by_one(graph, partial(self._chains, model, graph))
            yield from self._one_by_one(graph, partial(self._products, model, graph))

    def _one_by_one(
        self, graph: ir.Graph, find: Callable[[], Iterator[Rewrite | Declined]]
    ) -> Iterator[Rewrite | Declined]:
        """What `find` finds, looked for anew after each rewrite; each refusal once."""
        told: set[Declined] = set()
        changed = True
        while changed:
            changed = False
            for event in find():
                if isinstance(event, Rewrite):
                    changed = True
                    yield event
                    graph.sort()
                    break
                if event not in told:
                    told.add(event)
                    yield event

    def _inverses(
        self, model: ir.Model, graph: ir.Graph, forms: dict[str, Form | None]
    ) -> Iterator[Rewrite | Declined]:
        found: list[RowInverse] = []
        for steps in row_inverses.candidates(graph):
            inverse = row_inverses.recognise(model, steps, forms)
            if isinstance(inverse, RowInverse):
                found.append(inverse)
            elif inverse is not None:
                yield Declined(str(self), steps.tail.name or "", inverse)
        for alike in _alike(found):
            most = self.width // alike[0].shape[-1]
            for group in _groups(alike, most):
                A = [inverse.A for inverse in group]
                nodes = {node for inverse in group for node in inverse.region.nodes}
                late = needs(A, nodes, graph)
                if late is not None:
                    where = group[0].tail.name or ""
                    reason = f"'{late.name}', which one inverts, needs the inverse of another"
                    yield Declined(str(self), where, reason)
                    continue
                yield self._join_inverses(model, group)

    def _join_inverses(self, model: ir.Model, group: Sequence[RowInverse]) -> Rewrite:
        squares, tails = [i.A for i in group], [i.tail for i in group]
        n, form = group[0].shape[-1], group[0].form

        def build(emit: Emitter) -> list[ir.Value]:
            return cut(emit, row_tiles.invert(emit, squares, form), [n] * len(group))

        found = (
            f"{len(group)} row-by-row inverses of {shape_text(squares[0])}, "
            f"one chain of {n} by {n * len(group)}"
        )
        return self._replaced(
            model,
            Region.between(squares, tails),
            build,
            found,
            tuple(inverse.fact for inverse in group),
            lambda: _samples(group),
        )

    def _chains(self, model: ir.Model, graph: ir.Graph) -> Iterator[Rewrite | Declined]:
        for ends in sibling_chains.classes(graph):
            for group in _groups(ends, self.width // (tail_of(ends[0]) or self.width)):
                siblings = sibling_chains.together(tuple(group))
                if siblings is None or not siblings.outputs or not siblings.saves:
                    continue  # of dead nodes there are no outputs
                reason = siblings.clash(graph)
                if reason is not None:
                    yield Declined(str(self), group[0].name or "", reason)
                    continue
                region = Region.between(siblings.boundary, siblings.outputs)
                found = f"{len(group)} chains of {siblings.ops} ops, one of {_wide(group)} columns"
                yield self._replaced(model, region, siblings.emit, found)

    def _products(self, model: ir.Model, graph: ir.Graph) -> Iterator[Rewrite | Declined]:
        for products in shared_operand.groups(graph):
            side = ("left", "right")[products.shared]
            found = f"{len(products.nodes)} products with one {side} operand"
            reason = products.misfit() or products.clash(graph)
            if reason is None and products.width > self.width and products.shared == 0:
                reason = f"side by side they have {products.width} columns; width={self.width}"
            if reason is not None:
                where = products.results[0].name or ""
                yield Declined(str(self), where, f"{found}: {reason}")
                continue
            region = Region.between(products.boundary, products.results)
            yield self._replaced(model, region, products.emit, found)

    def _replaced(
        self,
        model: ir.Model,
        region: Region,
        build: Callable[[Emitter], Sequence[ir.Value]],
        found: str,
        assumes: tuple[Fact, ...] = (),
        samples: Callable[[], Iterable[Sample]] | None = None,
    ) -> Rewrite:
        before, after = replace(model, region, build, tag=str(self))
        return Rewrite(
            pass_text=str(self),
            where=before.graph.outputs[0].name or "",
            found=found,
            before=before,
            after=after,
            assumes=assumes,
            samples=samples or (lambda: small_sample(before)),
        )


def _alike(found: Sequence[RowInverse]) -> Iterator[list[RowInverse]]:
    """Those of one form and shape, in the order in which they were found."""
    left = list(found)
    while left:
        first = left[0]
        alike = [i for i in left if i.form == first.form and agree([first.A, i.A])]
        yield alike or [first]
        left = [i for i in left if i is not first and i not in alike]


def _groups(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """As many at a time as fit, two at least."""
    for start in range(0, len(items), most) if most > 1 else ():
        group = items[start : start + most]
        if len(group) > 1:
            yield group


def _wide(values: Sequence[ir.Value]) -> int:
    return sum(tail_of(value) or 0 for value in values)


def _samples(group: Sequence[RowInverse]) -> Iterator[Sample]:
    """The matrices that are hardest to invert, in all tiles at once."""
    for tiles in zip(*map(row_inverses.samples, group), strict=True):
        feeds = {name: array for sample in tiles for name, array in sample.feeds.items()}
        yield Sample(tiles[0].name, feeds)
