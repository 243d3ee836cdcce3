"""Proof: two graphs are equal in exact arithmetic, at their shapes, but for a stated chance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir

from gdn_ir.evaluate import Array
from gdn_ir.facts import Fact, static_shape
from gdn_ir.graph_view import trip_counts
from gdn_ir.modular.algebra import Algebra, CannotDecide
from gdn_ir.modular.element import Element, Operand
from gdn_ir.modular.interpreter import Interpreter
from gdn_ir.modular.near_constants import NearConstants
from gdn_ir.modular.one_node import OneNode
from gdn_ir.modular.points import LOG2_BOUND, MOST_TRIALS, random_point, random_seed, unknowns
from gdn_ir.modular.unsupported import UnsupportedOp
from gdn_ir.verify import rounding

Status = Literal["PROVED", "DIFFERENT", "UNDECIDED", "UNSUPPORTED"]

_LEAST_TRIALS = 3
# What a trip count is in turn: nothing, less than, as much as and more than loops may be unrolled
# by. A random one would be some number in between.
_TRIPS = (0, 1, 2, 7, 16, 17, 35, 65)


@dataclass(frozen=True)
class Verdict:
    """What a comparison of two graphs came to.

    Attributes:
        status: PROVED equal at these shapes; DIFFERENT at a point where no hashed op has a part;
            UNDECIDED where one has, or where the models' constants differ and their values in
            float64 do not by more than those may be rounded; UNSUPPORTED where an op has no
            meaning here.
        reason: the output and index that differ, or the op; "" if PROVED.
        shapes: of the inputs by name, for which alone the verdict holds; one entry or several.
        log2_bound: log2 of the chance that graphs which differ were called equal.
        trials: random points tried.
        seed: reproduces them.
        sampled: inputs that are no floats: equal for as many random values of them as there were
            trials, which the bound does not cover.
        unified: pairs of constants up to 2 ulp apart that were taken for one number, and of
            numbers with the reciprocals that they were taken for.
    """

    status: Status
    reason: str
    shapes: tuple[Mapping[str, tuple[int, ...]], ...]
    log2_bound: float = 0.0
    trials: int = 0
    seed: int = 0
    sampled: tuple[str, ...] = ()
    unified: tuple[tuple[float, float], ...] = ()

    def __str__(self) -> str:
        if self.status == "PROVED":
            rounded = "".join(f"; {b!r} taken for {a!r}" for a, b in self.unified)
            bound = math.ceil(self.log2_bound)
            shapes = " and at ".join(map(_shapes_text, self.shapes))
            names = ", ".join(f"'{name}'" for name in self.sampled)
            sampled = f", for the {self.trials} values of {names} tried" if names else ""
            covered = f" (of {names} nothing else is said)" if names else ""
            chance = f"wrong with a chance below 2^{bound}{covered}"
            return f"PROVED at {shapes}{sampled}; {chance}{rounded}"
        return f"{self.status}: {self.reason}"


def prove(
    before: ir.Model,
    after: ir.Model,
    assumes: Iterable[Fact] = (),
    seed: int | None = None,
    log2_bound: float = LOG2_BOUND,
) -> Verdict:
    """Compares two models of one interface at random points of a prime field.

    Args:
        before, after: with static input shapes. Inputs of one name are one; each model may have
            some that the other lacks.
        assumes: facts under which they are to be equal; `strictly-lower` zeroes the unknowns on
            and above the diagonal.
        seed: of the points; drawn afresh if None, together with the primes. Trip counts of Loops
            are no part of it: those are small numbers around the usual factors of unrolling.
        log2_bound: log2 of the chance of error that is small enough.
    """
    for value in (*before.graph.inputs, *after.graph.inputs):
        if static_shape(value) is None:
            reason = f"input '{value.name}' has shape {value.shape}"
            return Verdict("UNSUPPORTED", reason, ())
    if seed is None:
        seed = random_seed()
    lower = {fact.value for fact in assumes if fact.property == "strictly-lower"}
    shapes = ({v.name or "": static_shape(v) or () for v in before.graph.inputs},)
    references = [OneNode(model.opset_imports) for model in (before, after)]
    counts = trip_counts(before)
    least = len(_TRIPS) if counts else _LEAST_TRIALS
    total, trial = 0.0, 0
    constants = NearConstants()
    while trial < least or total > log2_bound:
        if trial == MOST_TRIALS:
            reason = f"the bound is 2^{total:.0f} after {trial} trials"
            return Verdict("UNDECIDED", reason, shapes, total, trial, seed)
        point = random_point(seed, trial, constants)
        try:
            feeds = unknowns([*before.graph.inputs, *after.graph.inputs], point, lower)
            for name in counts:
                feeds[name] = np.full_like(feeds[name], _TRIPS[trial % len(_TRIPS)])
            results = [
                Interpreter(model, point, reference).run(feeds)
                for model, reference in zip((before, after), references, strict=True)
            ]
        except (UnsupportedOp, ValueError) as error:
            return Verdict("UNSUPPORTED", str(error), shapes, seed=seed)
        except CannotDecide as error:
            return Verdict("UNDECIDED", str(error), shapes, seed=seed)
        if constants.settle():
            # Seen at this point for the first time, such as those of a branch: from the start.
            total, trial = 0.0, 0
            continue
        difference = _first_difference(before, point, results)
        if difference is not None:
            status, reason = difference
            if status == "DIFFERENT" and constants.precision > 0:
                apart = rounding.distance(before, after, lower)
                if apart <= rounding.MOST_UNITS * constants.precision:
                    status = "UNDECIDED"
                    reason += f", by no more than constants may be rounded: {apart:.1e} of scale"
            return Verdict(status, reason, shapes, trials=trial + 1, seed=seed)
        degree = max((_degree(x) for result in results for x in result), default=0)
        bound = point.log2_bound(degree)
        if bound > -1:
            reason = "the degree is too high for a bound on the chance of error"
            return Verdict("UNDECIDED", reason, shapes, trials=trial + 1, seed=seed)
        total += bound
        trial += 1
    sampled = dict.fromkeys(
        value.name or ""
        for value in (*before.graph.inputs, *after.graph.inputs)
        if value.dtype is not None and not value.dtype.is_floating_point()
    )
    unified = tuple(sorted(constants.unified))
    return Verdict("PROVED", "", shapes, total, trial, seed, tuple(sampled), unified)


def _shapes_text(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return "{" + ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items()) + "}"


def _degree(value: Operand) -> float:
    return float(value.degree.max(initial=0)) if isinstance(value, Element) else 0.0


def _first_difference(
    model: ir.Model, point: Algebra, results: Sequence[Sequence[Operand]]
) -> tuple[Status, str] | None:
    undecided = None
    for value, old, new in zip(model.graph.outputs, *results, strict=True):
        if not isinstance(old, Element) and not isinstance(new, Element):
            if not _equal_arrays(old, new):
                return "DIFFERENT", f"output '{value.name}'"
            continue
        a, b = point.lift(old), point.lift(new)
        if a.shape != b.shape:
            return "DIFFERENT", f"output '{value.name}' has shape {b.shape}, not {a.shape}"
        differs = (a.residue != b.residue) | (a.is_minus_inf != b.is_minus_inf)
        clean = differs & ~(a.tainted | b.tainted)
        if clean.any():
            index = [int(i) for i in np.argwhere(clean)[0]]
            return "DIFFERENT", f"output '{value.name}' at {index}"
        if differs.any() and undecided is None:
            index = [int(i) for i in np.argwhere(differs)[0]]
            ops = ", ".join(sorted(point.uninterpreted))
            undecided = f"output '{value.name}' at {index} differs, by way of {ops}"
    return None if undecided is None else ("UNDECIDED", undecided)


def _equal_arrays(old: Array | Element, new: Array | Element) -> bool:
    first, second = np.asarray(old), np.asarray(new)
    return np.array_equal(first, second, equal_nan=first.dtype.kind == second.dtype.kind == "f")
