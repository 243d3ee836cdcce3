"""Facts about values that an identity needs, each established before a pass relies on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir

from gdn_ir.evaluate import Array
from gdn_ir.modular.algebra import CannotDecide
from gdn_ir.modular.interpreter import is_exact
from gdn_ir.modular.points import (
    LOG2_BOUND,
    MOST_TRIALS,
    random_point,
    random_seed,
    unknowns,
    value_at,
)
from gdn_ir.open_shapes import TRIED, has_square_matrices, trial_shape
from gdn_ir.region import OpenRegion, Region, is_constant
from gdn_ir.wording import did_you_mean

Property = Literal["strictly-lower", "finite"]

# What a pass can make use of; that numbers are finite, all of them suppose anyway.
MAY_BE_STATED: tuple[Property, ...] = ("strictly-lower",)
# The basis of a fact that nothing but the user's word is behind.
BY_USER = "stated by the user"
_STATED = "gdn_ir.stated_facts"
_MOST_LEVELS = 12


@dataclass(frozen=True)
class Fact:
    """A property of a value and how it is known.

    `strictly-lower`: on the last two axes, zero on and above the diagonal. `finite`: neither
    infinite nor NaN; exact arithmetic over the reals implies it, so it is reported, not derived.
    """

    value: str
    property: Property
    basis: str

    def __str__(self) -> str:
        return f"'{self.value}' is {self.property.replace('-', ' ')} ({self.basis})"

    @staticmethod
    def describe(facts: Iterable[Fact]) -> list[str]:
        """One line for each property and basis."""
        groups: dict[tuple[str, str], dict[str, None]] = {}
        for fact in facts:
            groups.setdefault((fact.property, fact.basis), {})[f"'{fact.value}'"] = None
        return [
            f"{', '.join(values)} {property_.replace('-', ' ')} ({basis})"
            for (property_, basis), values in groups.items()
        ]


def finite(value: ir.Value) -> Fact:
    """That a value is finite, as every identity over the reals supposes."""
    return Fact(value.name or "", "finite", "real arithmetic")


def state(model: ir.Model, text: str) -> None:
    """Takes a user's word for a fact: `A:strictly-lower`.

    Raises:
        ValueError: no fact that can be stated, no value of that name, or one of another shape.
    """
    name, _, property_ = text.rpartition(":")
    if property_ not in MAY_BE_STATED:
        raise ValueError(
            f"--assume {text}: '{property_}' is no fact that can be stated; write NAME:FACT, "
            f"where FACT is {' or '.join(MAY_BE_STATED)}"
        )
    values = ir.convenience.create_value_mapping(model.graph)
    if name not in values:
        raise ValueError(
            f"--assume {text}: the model has no value '{name}'{did_you_mean(name, values, most=3)}"
        )
    if not _may_be_square(values[name]):
        raise ValueError(
            f"--assume {text}: '{name}' has shape {values[name].shape}; "
            "name a value that is square on its last two axes"
        )
    values[name].meta.setdefault(_STATED, set()).add(property_)


def _may_be_square(value: ir.Value) -> bool:
    """As far as its shape is known."""
    if value.shape is None:
        return True
    if len(value.shape) < 2:
        return False
    rows, columns = value.shape[-2:]
    return rows == columns or not (isinstance(rows, int) and isinstance(columns, int))


def stated(model: ir.Model) -> tuple[Fact, ...]:
    """What the user stated about values of the model."""
    values = ir.convenience.create_value_mapping(model.graph)
    return tuple(
        Fact(name, property_, BY_USER)
        for name, value in values.items()
        for property_ in sorted(value.meta.get(_STATED, ()))
    )


def satisfy(model: ir.Model, feeds: dict[str, Array]) -> None:
    """Makes numbers for the inputs of a model agree with what the user stated about them."""
    for value in model.graph.inputs:
        name = value.name or ""
        if name in feeds and "strictly-lower" in value.meta.get(_STATED, ()):
            feeds[name] = np.tril(feeds[name], -1)


def strictly_lower(model: ir.Model, value: ir.Value) -> Fact | None:
    """Establishes that a square value is strictly lower triangular, or returns None.

    The slice above the value is widened, level by level, until evaluating it on unknowns leaves
    zeros on and above the diagonal, but for a chance below 2^-40. Open dimensions are 2, 3 and 7 in
    turn, as the basis of the fact then says.
    """
    name = value.name or ""
    if "strictly-lower" in value.meta.get(_STATED, ()):
        return Fact(name, "strictly-lower", BY_USER)
    if not has_square_matrices(value):
        return None
    boundary = {value}
    for _ in range(_MOST_LEVELS):
        wider = _widen(model, boundary)
        if wider == boundary:
            return None
        boundary = wider
        if _is_strictly_lower(model, value, boundary):
            origin = ", ".join(sorted(f"'{v.name}'" for v in boundary)) or "constants"
            sizes = _sizes(value, *boundary)
            tried = f"; ? tried at {', '.join(map(str, sizes))}" if len(sizes) > 1 else ""
            return Fact(name, "strictly-lower", f"whatever {origin} are{tried}")
    return None


def _widen(model: ir.Model, boundary: set[ir.Value]) -> set[ir.Value]:
    """One level up, where the producer is an op that evaluation gives its meaning."""
    wider: set[ir.Value] = set()
    for value in boundary:
        node = value.producer()
        if node is None or not is_exact(node):
            wider.add(value)
            continue
        needed = {v for v in node.inputs if v is not None and not is_constant(v)}
        # What says where to go (indices, axes, shapes, conditions) must be constant.
        known_where = all(map(_is_floating, needed))
        wider |= needed if known_where and _agree(model, needed, value) else {value}
    return wider


def _agree(model: ir.Model, needed: set[ir.Value], value: ir.Value) -> bool:
    """Whether open dimensions of the operands can be what they are tried at.

    A Reshape into chunks needs whole chunks, which 2 tokens are not.
    """
    if all(v.shape is not None and v.shape.is_static() for v in needed):
        return True
    inputs = sorted(needed, key=lambda v: v.name or "")
    try:
        piece = Region.between(inputs, [value]).to_model(model)
        point = random_point(random_seed())
        return all(
            value_at(piece, point, unknowns(piece.graph.inputs, point, (), size)).shape
            == trial_shape(value, size)
            for size in TRIED
        )
    except (OpenRegion, CannotDecide, ValueError):
        return False


def _is_strictly_lower(model: ir.Model, value: ir.Value, boundary: set[ir.Value]) -> bool:
    inputs = sorted(boundary, key=lambda v: v.name or "")
    if value in boundary or not all(map(_can_be_unknown, inputs)):
        return False
    try:
        piece = Region.between(inputs, [value]).to_model(model)
        return all(_is_strictly_lower_at(piece, size) for size in _sizes(value, *inputs))
    except (OpenRegion, CannotDecide):
        return False


def _sizes(*values: ir.Value) -> Sequence[int]:
    """What open dimensions are tried at; any number will do where there are none."""
    is_open = any(v.shape is not None and not v.shape.is_static() for v in values)
    return TRIED if is_open else TRIED[:1]


def _is_strictly_lower_at(piece: ir.Model, open_size: int) -> bool:
    (value,) = piece.graph.outputs
    seed, log2_bound = random_seed(), 0.0
    for trial in range(MOST_TRIALS):
        point = random_point(seed, trial)
        feeds = unknowns(piece.graph.inputs, point, (), open_size)
        result = value_at(piece, point, feeds)
        if result.shape != trial_shape(value, open_size):
            return False
        if np.triu(result.residue).any() or np.triu(result.is_minus_inf).any():
            return False
        log2_bound += min(0.0, point.log2_bound(float(result.degree.max(initial=0))))
        if log2_bound <= LOG2_BOUND:
            return True
    return False


def _can_be_unknown(value: ir.Value) -> bool:
    return _is_floating(value) and value.shape is not None


def _is_floating(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


def static_shape(value: ir.Value) -> tuple[int, ...] | None:
    """The value's shape where every dimension is a known number, else None."""
    if value.shape is None or not value.shape.is_static():
        return None
    return value.shape.numpy()


def open_shape(values: Iterable[ir.Value]) -> str | None:
    """Of the first value without a static shape: what is missing and what to do; None if none."""
    for value in values:
        if value.shape is None:
            return f"the shape of '{value.name}' is not known; put infer-shapes before this pass"
        if not value.shape.is_static():
            return (
                f"the shape {value.shape} of '{value.name}' is not static; "
                "bind it with --dim, or export the model at fixed sizes"
            )
    return None
