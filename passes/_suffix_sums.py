"""Differences of prefix sums, G_last - G_i, as suffix sums g_(i+1) + ... + g_last."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from gdn_ir.emitter import Emitter
from gdn_ir.evaluate import evaluate
from gdn_ir.facts import static_shape
from gdn_ir.graph_view import is_onnx
from gdn_ir.matching import array_of
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
    if g is None or static_shape(g) is None or array_of(cumsum.inputs[1]) is None:
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
            if is_onnx(node, "Sub") and node.inputs[1] is value:
                yield SuffixSum(node, picks, _only_exp(node.outputs[0]))
            elif is_onnx(node) and node.op_type in PICKS and all(map(is_fixed, node.inputs[1:])):
                stack.append((node.outputs[0], (*picks, node)))


def _only_exp(value: ir.Value) -> ir.Node | None:
    consumers = value.consumers()
    if len(consumers) == 1 and is_onnx(consumers[0], "Exp") and not value.is_graph_output():
        return consumers[0]
    return None


def _holds(model: ir.Model, cumsum: ir.Node, found: SuffixSum) -> bool:
    """Whether the Sub is what the picks make of the suffix sums."""
    g, G, axis = cumsum.inputs[0], cumsum.outputs[0], array_of(cumsum.inputs[1])
    assert g is not None and axis is not None
    try:
        difference = Region.between([g], [found.sub.outputs[0]]).to_model(model)
        picked = found.picks[-1].outputs[0] if found.picks else G
        picks = Region.between([G], [picked]).to_model(model)
    except OpenRegion:
        return False
    values = np.random.default_rng(0).standard_normal(static_shape(g) or ()) / 8
    total = values.sum(axis=int(axis), keepdims=True)
    suffix = total - np.cumsum(values, axis=int(axis))
    expected = evaluate(picks, {G.name or "": suffix})[0] if found.picks else suffix
    (result,) = evaluate(difference, {g.name or "": values})
    same_shape = result.shape == expected.shape
    return same_shape and np.allclose(result, expected, rtol=1e-9, atol=1e-12)
