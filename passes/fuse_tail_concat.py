"""fuse-tail-concat: what is done alike to several tiles is done once, to the tiles side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

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
from gdn_ir.passes._sibling_chains import Siblings
from gdn_ir.passes._side_by_side import agree, cut, needs
from gdn_ir.passes._tail_local import tail_of
from gdn_ir.passes._tile_groups import Alone, tile_groups
from gdn_ir.passes._trip_samples import small_sample
from gdn_ir.region import Region, replace
from gdn_ir.rewrite import Declined, Rewrite, Sample
from gdn_ir.wording import counted


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

    Tiles must agree in type and shape, those of (c) but for the axis along which they are put
    together; those that need one another are kept apart. Chains are left alone if the copies that
    put tiles together and cut them apart are no fewer than the ops saved.

    Cost: those copies; (a) holds n times as many coefficients. Fewer and wider ops are what NPUs
    with wide vectors want. On ONNX Runtime's CPU, 2 cores, copies eat the gain: the baseline of
    eight inverses a chunk (8 heads of 64, 512 tokens) runs 1.0 to 1.05 times as fast, what
    `portable` makes of it .7 to .95 times. In no target's pipeline.

    Source: tail-axis concatenation of tiles, as PyPTO's kernels do it for 16 by 16 inverses.
    """

    name: ClassVar[str] = "fuse-tail-concat"

    width: int = 128

    def __post_init__(self) -> None:
        """Checks the option."""
        if self.width < 2:
            raise ValueError(f"width is a number of columns, at least 2, not {self.width}")

    def rewrites(self, model: ir.Model) -> Iterator[Rewrite | Declined]:
        """Inverses first, then chains and products, in every scope."""
        forms: dict[str, Form | None] = {}
        for graph in scopes(model):
            yield from self._inverses(model, graph, forms)
            graph.sort()
            yield from self._one_by_one(model, graph)

    def _one_by_one(self, model: ir.Model, graph: ir.Graph) -> Iterator[Rewrite | Declined]:
        """Chains, products, chains again until none is left, since one makes others alike.

        They are looked for anew after each rewrite. What is refused in the end is told.
        """
        finders = (self._chains, self._products)
        refused: dict[int, list[Declined]] = {}  # by those that find nothing in the graph as it is
        turn = 0
        while len(refused) < len(finders):
            refusals: list[Declined] = []
            for event in finders[turn](model, graph):
                if isinstance(event, Rewrite):
                    yield event
                    graph.sort()
                    refused.clear()
                    break
                refusals.append(event)
            else:
                refused[turn] = refusals
                turn = (turn + 1) % len(finders)
        for turn in range(len(finders)):
            yield from refused[turn]

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
        by_tail = {inverse.tail: inverse for inverse in found}

        def misfit(one: ir.Value, other: ir.Value) -> str | None:
            pair = by_tail[one], by_tail[other]
            if pair[0].form == pair[1].form and agree([inverse.A for inverse in pair]):
                return None
            return "no other row-by-row inverse has its shape, type and form"

        # A list: the graph is unsorted after the first rewrite.
        for tails in list(tile_groups(list(by_tail), graph, misfit=misfit, width=self.width)):
            if isinstance(tails, Alone):
                yield self._alone(tails)
                continue
            group = [by_tail[tail] for tail in tails]
            nodes = {node for inverse in group for node in inverse.region.nodes}
            late = needs([inverse.A for inverse in group], nodes, graph)
            if late is None:
                yield self._join_inverses(model, group)
                continue
            reason = f"'{late.name}', which one inverts, needs what the loop of another makes"
            yield Declined(str(self), tails[0].name or "", reason)

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
            whole = sibling_chains.together(tuple(ends))
            if whole is None or not whole.outputs:
                continue  # of dead nodes there are no outputs
            if not whole.saves:  # nor do fewer of them
                if whole.ops > 1 and whole.clash(graph) is None:
                    yield self._costly(ends, whole)
                continue
            groups = tile_groups(ends, graph, misfit=lambda one, other: None, width=self.width)
            for group in groups:
                if isinstance(group, Alone):
                    yield self._alone(group)
                else:
                    yield from self._join_chains(model, graph, group)

    def _join_chains(
        self, model: ir.Model, graph: ir.Graph, ends: Sequence[ir.Value]
    ) -> Iterator[Rewrite | Declined]:
        siblings = sibling_chains.together(tuple(ends))
        if siblings is None or not siblings.outputs:
            return
        if not siblings.saves:
            yield self._costly(ends, siblings)
            return
        found = f"{len(ends)} chains of {counted(siblings.ops, 'op')}"
        clash = siblings.clash(graph)
        if clash is not None:
            yield Declined(str(self), ends[0].name or "", f"{found}: {clash}")
            return
        region = Region.between(siblings.boundary, siblings.outputs)
        found = f"{found}, one of {_wide(ends)} columns"
        yield self._replaced(model, region, siblings.emit, found)

    def _costly(self, ends: Sequence[ir.Value], siblings: Siblings) -> Declined:
        found = f"{len(ends)} chains of {counted(siblings.ops, 'op')}"
        reason = "as many copies would put them together and cut them apart"
        return Declined(str(self), ends[0].name or "", f"{found}: {reason}")

    def _products(self, model: ir.Model, graph: ir.Graph) -> Iterator[Rewrite | Declined]:
        for sharing in shared_operand.groups(graph):
            side, width = (("left", self.width), ("right", None))[sharing.shared]
            groups = tile_groups(sharing.results, graph, misfit=sharing.misfit_of, width=width)
            for group in groups:
                if isinstance(group, Alone):
                    yield self._alone(group, f"product with a shared {side} operand: ")
                    continue
                products = sharing.some(group)
                region = Region.between(products.boundary, products.results)
                found = f"{len(group)} products with one {side} operand"
                yield self._replaced(model, region, products.emit, found)

    def _alone(self, alone: Alone, what: str = "") -> Declined:
        return Declined(str(self), alone.tile.name or "", f"{what}{alone.reason}")

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


def _wide(values: Sequence[ir.Value]) -> int:
    return sum(tail_of(value) or 0 for value in values)


def _samples(group: Sequence[RowInverse]) -> Iterator[Sample]:
    """The matrices that are hardest to invert, in all tiles at once."""
    for tiles in zip(*map(row_inverses.samples, group), strict=True):
        feeds = {name: array for sample in tiles for name, array in sample.feeds.items()}
        yield Sample(tiles[0].name, feeds)
