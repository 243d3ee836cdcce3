"""Which tiles may stand side by side: of one kind, none made of another, within a width."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import onnx_ir as ir

from gdn_ir.graph_view import operands
from gdn_ir.passes._tail_local import tail_of

Misfit = Callable[[ir.Value, ir.Value], str | None]  # why two cannot stand side by side


@dataclasses.dataclass(frozen=True)
class Alone:
    """A tile that stays, and why."""

    tile: ir.Value
    reason: str


def tile_groups(
    tiles: Sequence[ir.Value], graph: ir.Graph, *, misfit: Misfit, width: int | None
) -> Iterator[list[ir.Value] | Alone]:
    """The tiles of one scope in groups of two at least, and why there are no groups or tiles alone.

    Args:
        tiles: what is done alike makes these.
        graph: their scope, sorted.
        misfit: decides for two tiles; what fits with one fits with all that do.
        width: the most columns of a group; None where tiles are not put together by columns.
    """
    for kind in _kinds(tiles, misfit):
        if len(kind) == 1:
            other = next((tile for tile in tiles if tile is not kind[0]), None)
            reason = None if other is None else misfit(other, kind[0])
            if reason is not None:
                yield Alone(kind[0], reason)
            continue
        layers = [layer for layer in _layers(kind, graph) if len(layer) > 1]
        if not layers:
            yield Alone(kind[0], "those like it are made from it, or it from them")
        for layer in layers:
            yield from _packed(layer, width)


def _kinds(tiles: Sequence[ir.Value], misfit: Misfit) -> list[list[ir.Value]]:
    kinds: list[list[ir.Value]] = []
    for tile in tiles:
        fitting = (kind for kind in kinds if misfit(kind[0], tile) is None)
        kind = next(fitting, None)
        if kind is None:
            kinds.append([tile])
        else:
            kind.append(tile)
    return kinds


def _layers(tiles: Sequence[ir.Value], graph: ir.Graph) -> list[list[ir.Value]]:
    """By how many tiles stand, one above another, over each: in a layer none needs another."""
    left = {tile.producer(): tile for tile in tiles}
    layers: list[list[ir.Value]] = []
    over: dict[ir.Node, int] = {}
    for node in graph:
        if not left:
            break
        tile = left.pop(node, None)
        if tile is None and not over:
            continue  # above all tiles
        sources = (value.producer() for value in operands(node))
        over[node] = max((over.get(source, 0) for source in sources if source), default=0)
        if tile is None:
            continue
        layers += [[]] if over[node] == len(layers) else []
        layers[over[node]].append(tile)
        over[node] += 1
    return layers


def _packed(tiles: Sequence[ir.Value], width: int | None) -> Iterator[list[ir.Value] | Alone]:
    """As many at a time as fit; a reason if no two do."""
    groups: list[list[ir.Value]] = [[]]
    for tile in tiles:
        if width is not None and _columns([*groups[-1], tile]) > width:
            groups.append([])
        groups[-1].append(tile)
    together = [group for group in groups if len(group) > 1]
    yield from together
    if not together:
        columns = _columns(tiles[:2])
        yield Alone(tiles[0], f"two of them have {columns} columns, beyond width={width}")


def _columns(tiles: Sequence[ir.Value]) -> int:
    return sum(tail_of(tile) or 0 for tile in tiles)
