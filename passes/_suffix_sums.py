"""Differences of prefix sums, G_last - G_i, as suffix sums g_(i+1) + ... + g_last."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from gdn_ir.emitter import Emitter
from gdn_ir.graph_view import is_onnx, only_consumer
from gdn_ir.matching import array_of
from gdn_ir.modular.algebra import CannotDecide
from gdn_ir.modular.points import random_point, random_seed, unknowns, value_at
from gdn_ir.passes._decay_uses import PICKS, flag, is_fixed
from gdn_ir.region import OpenRegion, Region


@dataclasses.dataclass(frozen=True)
class SuffixSum:
    """A Sub that computes G_last - G_i, or what `picks` (one chunk, say) make of it.

    `exp` is the Exp that takes the difference, if nothing else does: there the cancellation hurts.
    """

    sub: ir.Node
    picks: tuple[ir.Node, ...]
    exp: ir.Node | None

    @property
    def tail(self) -> ir.Value:
        """The value to replace."""
        return (self.exp or self.sub).outputs[0]

    def emit(self, emit: Emitter, suffix: ir.Value) -> ir.Value:
        """The same value from the suffix sums of all."""
        for node in self.picks:
            suffix = emit.like(node, suffix, *node.inputs[1:])
        return suffix if self.exp is None else emit.op("Exp", suffix)


def suffix_sums(model: ir.Model, cumsum: ir.Node) -> list[SuffixSum]:
    """The suffix differences of one CumSum, each confirmed by evaluation."""
    g = cumsum.inputs[0]
    if g is None or g.shape is None or array_of(cumsum.inputs[1]) is None:
        return []
    if flag(cumsum, "reverse") or flag(cumsum, "exclusive"):
        return []
    return [found for found in _differences(cumsum.outputs[0]) if _holds(model, cumsum, found)]


def _differences(G: ir.Value) -> Iterator[SuffixSum]:
    """Each Sub whose right side is G seen through picks."""
    stack: list[tuple[ir.Value, tuple[ir.Node, ...]]] = [(G, ())]
    while stack:
        value, picks = stack.pop()
        for node in value.consumers():
            if node.graph is not G.graph:
                continue
            if is_onnx(node, "Sub") and node.inputs[1] is value:
                yield SuffixSum(node, picks, _only_exp(node.outputs[0]))
            elif is_onnx(node) and node.op_type in PICKS and all(map(is_fixed, node.inputs[1:])):
                stack.append((node.outputs[0], (*picks, node)))


def _only_exp(value: ir.Value) -> ir.Node | None:
    consumer = only_consumer(value)
    return consumer if consumer and is_onnx(consumer, "Exp") else None


def _holds(model: ir.Model, cumsum: ir.Node, found: SuffixSum) -> bool:
    """Whether the Sub is what the picks make of the suffix sums."""
    g, G, axis = cumsum.inputs[0], cumsum.outputs[0], array_of(cumsum.inputs[1])
    assert g is not None and axis is not None
    point = random_point(random_seed())
    feeds = unknowns([g], point)
    suffix = point.cumsum(point.lift(feeds[g.name or ""]), int(axis), exclusive=True, reverse=True)
    picked = found.picks[-1].outputs[0] if found.picks else G
    try:
        difference = Region.between([g], [found.sub.outputs[0]]).to_model(model)
        picks = Region.between([G], [picked]).to_model(model)
        result = value_at(difference, point, feeds)
        expected = value_at(picks, point, {G.name or "": suffix})
    except (OpenRegion, CannotDecide):
        return False
    return np.array_equal(result.residue, expected.residue)
