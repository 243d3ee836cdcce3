"""Both gates on any two models of one interface, also ones that no pass of ours made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from gdn_ir import runtime
from gdn_ir.evaluate import Array, CannotEvaluate
from gdn_ir.normal_form import normalise
from gdn_ir.rewrite import Sample
from gdn_ir.structural_hash import constant_digest
from gdn_ir.verify.equivalence import Comparison, check_interfaces, compare
from gdn_ir.verify.numeric import RegionError, is_small_enough, measure
from gdn_ir.verify.shapes import Sizes, bind, choices, symbols


@dataclass
class AtShape:
    """What the gates say with symbolic dimensions bound to numbers.

    Attributes:
        sizes: the numbers, empty where both models are static.
        comparison: of the proof gate; None if it was not asked for.
        errors: of the numeric gate, for each output and sample.
        notes: what could not be checked and why.
    """

    sizes: Sizes
    comparison: Comparison | None = None
    errors: list[RegionError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def verify_models(
    before: ir.Model,
    after: ir.Model,
    *,
    proof: bool = True,
    numeric: bool = True,
    seed: int | None = None,
) -> Iterator[AtShape]:
    """Checks two models at the shapes they have, or at several where those can vary.

    A dimension that one model leaves open takes the number that it has in the other.

    Args:
        before, after: of one interface; `before` is the one that is taken to be right.
        proof: whether to prove the outputs equal in exact arithmetic.
        numeric: whether to run both on ONNX Runtime, against `before` in float64.
        seed: of the proof's random points.

    Raises:
        ValueError: their interfaces differ.
    """
    before, after = before.clone(), after.clone()
    for model in (before, after):
        normalise(model)
    check_interfaces(before, after)
    _share_shapes(before, after)
    for sizes in choices(dict.fromkeys([*symbols(before), *symbols(after)])):
        old, new = bind(before, sizes), bind(after, sizes)
        found = AtShape(sizes)
        if proof:
            found.comparison = compare(old, new, seed)
        if numeric:
            _run(old, new, found)
        yield found


def _share_shapes(before: ir.Model, after: ir.Model) -> None:
    for old, new in zip(before.graph.inputs, after.graph.inputs, strict=True):
        if constant_digest(old) != constant_digest(new):
            raise ValueError(f"input '{old.name}' has another default in one model")
        if old.shape is None or new.shape is None:
            old.shape = new.shape = old.shape or new.shape
            continue
        differ = [a != b for a, b in zip(old.shape, new.shape, strict=False) if _are_known(a, b)]
        if len(old.shape) != len(new.shape) or any(differ):
            raise ValueError(
                f"input '{old.name}' is {old.shape} in one model and {new.shape} in the other"
            )
        pairs = zip(old.shape, new.shape, strict=True)
        old.shape = new.shape = ir.Shape(b if isinstance(b, int) else a for a, b in pairs)


def _are_known(*sizes: int | ir.SymbolicDim) -> bool:
    return all(isinstance(size, int) for size in sizes)


def _run(old: ir.Model, new: ir.Model, found: AtShape) -> None:
    if not is_small_enough(old):
        found.notes.append("not run: more than 1 GiB of weights")
        return
    try:
        samples = list(_samples(old))
    except ValueError as error:
        found.notes.append(f"not run: {error}")
        return
    try:
        for _, errors in measure(old, new, samples, "the second model"):
            found.errors += errors
    except (runtime.RunFailed, CannotEvaluate) as error:
        found.notes.append(f"not run: {error}")


def _samples(model: ir.Model) -> Iterator[Sample]:
    """Random inputs, and such as are alike at every position.

    Alike positions make alike keys, on which an inverse that is not stable loses its digits;
    independent random ones hide that.
    """
    feeds = runtime.random_inputs(model)
    yield Sample("random inputs", feeds)
    alike = {name: _alike(array) for name, array in feeds.items()}
    yield Sample("equal tokens", alike)
    # At beta 1 the inverse of equal keys is hardest; beta is one of the inputs without features.
    rank = max((array.ndim for array in feeds.values()), default=0)
    gates = {name: a for name, a in alike.items() if a.dtype.kind == "f" and 2 <= a.ndim < rank}
    zeros = {name: np.zeros_like(array) for name, array in gates.items()}
    for name, array in gates.items():
        one = {**alike, **zeros, name: np.ones_like(array)}
        yield Sample(f"equal tokens, '{name}' = 1", one)


def _alike(array: Array) -> Array:
    """The array with all positions between the batch and the last axis as the first one."""
    if array.ndim < 2:
        return array
    middle = range(1, array.ndim - 1) if array.ndim > 2 else (1,)
    for axis in middle:
        first = np.take(array, [0], axis)
        array = np.broadcast_to(first, array.shape)
    return np.ascontiguousarray(array)
