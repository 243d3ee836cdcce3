"""exp-mask: a causal decay and all its masks become one additive -inf mask before one exp."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

import numpy as np
import onnx_ir as ir

from gdn_ir.emitter import Emitter
from gdn_ir.evaluate import Array
from gdn_ir.facts import finite
from gdn_ir.graph_view import VIEW_OPS, is_onnx, scopes
from gdn_ir.matching import Constant, Op, OpIndex
from gdn_ir.modular.algebra import CannotDecide
from gdn_ir.modular.points import random_point, random_seed, unknowns, value_at
from gdn_ir.open_shapes import has_square_matrices, shape_text, trial_shape
from gdn_ir.pass_base import Pass
from gdn_ir.passes._decay_uses import DecayUse, decay_uses
from gdn_ir.passes._suffix_sums import suffix_sums
from gdn_ir.region import OpenRegion, Region, replace
from gdn_ir.rewrite import Declined, Rewrite, Sample
from gdn_ir.wording import counted

# What may stand between a cumsum and the exp of its differences.
_BETWEEN = VIEW_OPS | {"Add", "Exp", "Gather", "Min", "Mul", "Slice", "Sub", "Trilu", "Where"}


@dataclasses.dataclass(frozen=True)
class ExpMask(Pass):
    """All masks around a decay exp(G_i - G_j), G = cumsum(g), become one -inf before the exp.

    Identity: masked_fill(x * tril(exp(tril(D))), 0) = x * exp(D + M), M being -inf at masked
    positions and 0 elsewhere, since exp(-inf) = 0. One exp serves the strict use (below the
    diagonal, for the inverse) and the inclusive one, which is the strict one plus the identity:
    D_ii = 0 and exp(0) = 1. Holds where x is finite, as 0 * inf is not 0. It never multiplies by 0
    after an exp that may overflow and never splits exp(a - b) into exp(a) exp(-b): trained gates
    reach a log-decay of -167 a token.

    decay=segment (default): D_ij = g_(j+1) + ... + g_i, summed over the segment itself by a
      CumSum down the rows of g masked to l > j. The difference of two prefix sums that the
      exporters use cancels under strong decay: float32 errors of 2.5e-5 at g in (-167, 0), against
      2.6e-7. Differences G_last - G_i become suffix sums for the same reason.
    decay=difference: D_ij = G_i - G_j as the original.

    Cost: one CumSum of [..., C, C] in place of a Sub, against one Where, Trilu or Mul less for
    each mask. Source of the masked exp: transformers' Qwen3-Next, masked_fill(-inf) before exp.
    """

    name: ClassVar[str] = "exp-mask"

    decay: Literal["segment", "difference"] = "segment"

    def rewrites(self, model: ir.Model) -> Iterator[Rewrite | Declined]:
        """Every exp that a cumsum leads to, then every suffix difference of that cumsum."""
        for graph in scopes(model):
            index = OpIndex(graph)
            for exp in index.of("Exp"):
                yield from self._rewrite_decay(model, exp)
            if self.decay == "segment":
                for cumsum in index.of("CumSum"):
                    yield from self._rewrite_suffix_sums(model, cumsum)

    def _rewrite_decay(self, model: ir.Model, exp: ir.Node) -> Iterator[Rewrite | Declined]:
        E = exp.outputs[0]
        shape, cumsum = trial_shape(E), _cumsum_above(E)
        if shape is None or not has_square_matrices(E) or shape[-1] < 2:
            return
        if cumsum is None or _is_masked_before(exp, self.decay):
            return
        g, where = cumsum.inputs[0], E.name or ""
        assert g is not None, "CumSum has an input"
        if trial_shape(g) != shape[:-1]:
            return  # square by chance: [B, H, N] with H = N, say
        if reason := _why_no_decay(model, g, E, shape):
            yield Declined(str(self), where, reason)
            return
        uses = decay_uses(model, g, E)
        for use in uses:
            if use.zeros is None:
                reason = f"'{use.tail.name}' uses it above the diagonal; mask it there"
                yield Declined(str(self), where, reason)
        uses = [use for use in uses if use.zeros is not None]
        if not uses:
            return
        factors = list(dict.fromkeys(use.factor for use in uses if use.factor is not None))
        masks = {mask for use in uses for mask in use.masks}
        region = Region.between([g, *factors], [use.tail for use in uses])
        before, after = replace(
            model, region, lambda emit: self._emit(emit, g, cumsum, shape, uses), tag=str(self)
        )
        yield Rewrite(
            pass_text=str(self),
            where=where,
            found=f"causal decay {shape_text(E)}, {counted(len(uses), 'use')}, "
            f"{counted(len(masks), 'mask')} after the exp",
            before=before,
            after=after,
            assumes=(finite(g), *map(finite, factors)),
            samples=lambda: _decay_samples(region.inputs),
        )

    def _emit(
        self,
        emit: Emitter,
        g: ir.Value,
        cumsum: ir.Node,
        shape: tuple[int, ...],
        uses: Sequence[DecayUse],
    ) -> list[ir.Value]:
        assert g.dtype is not None
        dtype, C, rank = g.dtype.numpy(), shape[-1], len(shape)
        below = np.tri(C, k=-1, dtype=np.bool_)
        if self.decay == "segment":
            column = emit.op("Unsqueeze", g, np.array([rank - 1]))
            # [l, j] = g_l where l > j; summed down to row i it is g_(j+1) + ... + g_i.
            later = emit.op("Where", below, column, np.zeros((), dtype))
            D = emit.op("CumSum", later, np.array(rank - 2))
        else:
            G = emit.like(cumsum, *cumsum.inputs)
            column = emit.op("Unsqueeze", G, np.array([rank - 1]))
            row = emit.op("Unsqueeze", G, np.array([rank - 2]))
            D = emit.op("Sub", column, row)
        mask = np.where(below, 0, -np.inf).astype(dtype)
        decay = {"strict": emit.op("Exp", emit.op("Add", D, mask))}
        if any(use.zeros == "inclusive" for use in uses):
            decay["inclusive"] = emit.op("Add", decay["strict"], np.eye(C, dtype=dtype))
        return [use.emit(emit, decay[use.zeros or ""]) for use in uses]

    def _rewrite_suffix_sums(self, model: ir.Model, cumsum: ir.Node) -> Iterator[Rewrite]:
        found = suffix_sums(model, cumsum)
        if not found:
            return
        g, axis = cumsum.inputs[0], cumsum.inputs[1]
        assert g is not None
        region = Region.between([g], [suffix.tail for suffix in found])
        where = region.outputs[0].name or ""

        def build(emit: Emitter) -> list[ir.Value]:
            total = emit.op("CumSum", g, axis, exclusive=1, reverse=1)
            return [suffix.emit(emit, total) for suffix in found]

        before, after = replace(model, region, build, tag=str(self))
        yield Rewrite(
            pass_text=str(self),
            where=where,
            found=f"{counted(len(found), 'difference')} of prefix sums, G_last - G_i",
            before=before,
            after=after,
            assumes=(finite(g),),
            samples=lambda: _decay_samples(region.inputs),
        )


def _cumsum_above(value: ir.Value) -> ir.Node | None:
    """The only CumSum that the value depends on through `_BETWEEN`, if there is just one."""
    found: set[ir.Node] = set()
    seen: set[ir.Node] = set()
    stack = [value.producer()]
    while stack:
        node = stack.pop()
        if node is None or node in seen or not is_onnx(node):
            continue
        seen.add(node)
        if node.op_type == "CumSum":
            found.add(node)
        elif node.op_type in _BETWEEN:
            stack.extend(v.producer() for v in node.inputs if v is not None)
    return found.pop() if len(found) == 1 else None


def _is_masked_before(exp: ir.Node, decay: str) -> bool:
    """Whether the exp is what this pass makes: of a decay plus a strict -inf mask."""
    mask = Constant("mask", _is_strict_mask, "a strict -inf mask")
    made = Op("Add", Op("CumSum" if decay == "segment" else "Sub"), mask)
    return exp.inputs[0] is not None and bool(made.match_value(exp.inputs[0]))


def _is_strict_mask(array: Array) -> bool:
    return array.ndim == 2 and np.array_equal(array, np.where(np.tri(len(array), k=-1), 0, -np.inf))


def _why_no_decay(model: ir.Model, g: ir.Value, E: ir.Value, shape: tuple[int, ...]) -> str:
    """Why E is not exp(g_(j+1) + ... + g_i) on and below the diagonal, or ""."""
    try:
        piece = Region.between([g], [E]).to_model(model)
    except OpenRegion as error:
        return f"it is not a function of the log-decays '{g.name}' alone: {error}"
    point = random_point(random_seed())
    feeds = unknowns([g], point)
    try:
        result = value_at(piece, point, feeds)
    except CannotDecide as error:
        return f"it cannot be evaluated: {error}"
    total = point.cumsum(point.lift(feeds[g.name or ""]), -1, exclusive=False, reverse=False)
    rows = total.map(lambda array: array[..., :, None])
    columns = total.map(lambda array: array[..., None, :])
    expected = point.exp(point.add(rows, point.negative(columns)))
    lower = np.tri(shape[-1], dtype=np.bool_)
    if np.array_equal(result.residue[..., lower], expected.residue[..., lower]):
        return ""
    return f"it is not exp(G_i - G_j) of the prefix sums G of '{g.name}'"


def _decay_samples(inputs: Sequence[ir.Value]) -> Iterator[Sample]:
    """Log-decays from none to -167 a token, with factors of unit size."""
    rng = np.random.default_rng(0)
    g, *factors = inputs
    shape = trial_shape(g) or ()
    products = {v.name or "": rng.uniform(-1, 1, trial_shape(v) or ()) for v in factors}
    for name, decay in (
        ("no decay", np.zeros(shape)),
        ("log-decay around -.1", -0.1 * np.log1p(np.exp(rng.standard_normal(shape)))),
        ("log-decay to -5", rng.uniform(-5, 0, shape)),
        ("log-decay to -167", rng.uniform(-167, 0, shape)),
    ):
        yield Sample(name, {g.name or "": decay, **products})
