"""Facts about values that an identity needs, each established before a pass relies on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import onnx_ir as ir

from gdn_ir.evaluate import evaluate
from gdn_ir.graph_view import VIEW_OPS, is_onnx
from gdn_ir.region import OpenRegion, Region, is_constant

Property = Literal["strictly-lower", "finite"]

_STATED = "gdn_ir.stated_facts"
_MOST_LEVELS = 12
_TRIALS = 3

# What a zero pattern may be read off by evaluation: each element of these is a fixed rational or
# exponential function of the inputs, so one that vanishes at random points vanishes everywhere.
# No op that selects by value (Relu, Max, a Where on data) belongs here.
_SMOOTH_OPS = VIEW_OPS | {
    "Add", "Cast", "Concat", "CumSum", "Div", "Einsum", "Exp", "Expand", "Gather", "MatMul",
    "Mul", "Neg", "Pad", "ReduceSum", "ScatterElements", "ScatterND", "Slice", "Split", "Sub",
    "Trilu", "Where",
}  # fmt: skip


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
        ValueError: no such property, or no value of that name.
    """
    name, _, stated = text.rpartition(":")
    if stated not in get_args(Property):
        raise ValueError(
            f"--assume {text}: '{stated}' is no property; write NAME:PROPERTY with one of "
            + ", ".join(get_args(Property))
        )
    values = ir.convenience.create_value_mapping(model.graph)
    if name not in values:
        raise ValueError(f"--assume {text}: the model has no value '{name}'")
    values[name].meta.setdefault(_STATED, set()).add(stated)


def strictly_lower(model: ir.Model, value: ir.Value) -> Fact | None:
    """Establishes that a square value is strictly lower triangular, or returns None.

    The slice above the value is widened, level by level, until evaluating it on random boundary
    inputs leaves zeros on and above the diagonal.
    """
    name = value.name or ""
    if "strictly-lower" in value.meta.get(_STATED, ()):
        return Fact(name, "strictly-lower", "stated by the user")
    boundary = {value}
    for _ in range(_MOST_LEVELS):
        wider = _widen(boundary)
        if wider == boundary:
            return None
        boundary = wider
        if _is_strictly_lower(model, value, boundary):
            origin = ", ".join(sorted(f"'{v.name}'" for v in boundary)) or "constants"
            return Fact(name, "strictly-lower", f"whatever {origin} are")
    return None


def _widen(boundary: set[ir.Value]) -> set[ir.Value]:
    """One level up, where the producer is an op that evaluation can be trusted on."""
    wider: set[ir.Value] = set()
    for value in boundary:
        node = value.producer()
        if node is None or not is_onnx(node) or not _is_smooth(node):
            wider.add(value)
        else:
            wider.update(v for v in node.inputs if v is not None and not is_constant(v))
    return wider


def _is_smooth(node: ir.Node) -> bool:
    if node.op_type not in _SMOOTH_OPS:
        return False
    if (
        node.op_type == "Cast"
        and not ir.DataType(node.attributes["to"].as_int()).is_floating_point()
    ):
        return False
    # The first input carries the data of all of these but Where, whose first is the choice;
    # everything that says where to go (indices, axes, shapes, conditions) must be constant.
    routing = node.inputs[:1] if node.op_type == "Where" else node.inputs[1:]
    if node.op_type in {"Add", "Concat", "Div", "Einsum", "MatMul", "Mul", "Sub"}:
        routing = ()
    elif node.op_type in {"ScatterElements", "ScatterND"}:
        routing = node.inputs[1:2]
    return all(v is None or is_constant(v) for v in routing)


def _is_strictly_lower(model: ir.Model, value: ir.Value, boundary: set[ir.Value]) -> bool:
    inputs = sorted(boundary, key=lambda v: v.name or "")
    if value in boundary or not all(_is_sampled(v) for v in inputs):
        return False
    try:
        piece = Region.between(inputs, [value]).to_model(model)
    except OpenRegion:
        return False
    rng = np.random.default_rng(0)
    for _ in range(_TRIALS):
        feeds = {v.name or "": rng.standard_normal(static_shape(v) or ()) / 8 for v in inputs}
        (result,) = evaluate(piece, feeds)
        if result.ndim < 2 or result.shape[-1] != result.shape[-2] or np.triu(result).any():
            return False
    return True


def _is_sampled(value: ir.Value) -> bool:
    """Whether random numbers can stand for the value."""
    known = static_shape(value) is not None
    return known and value.dtype is not None and value.dtype.is_floating_point()


def static_shape(value: ir.Value) -> tuple[int, ...] | None:
    """The value's shape where every dimension is a known number, else None."""
    if value.shape is None or not value.shape.is_static():
        return None
    return value.shape.numpy()
