"""The uses of a causal decay: the masks, picks and products between it and other work."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import onnx_ir as ir

from gdn_ir.constants import compute
from gdn_ir.emitter import Emitter
from gdn_ir.evaluate import Array
from gdn_ir.graph_view import is_onnx
from gdn_ir.matching import Constant, Op, Var, array_of
from gdn_ir.modular.algebra import CannotDecide
from gdn_ir.modular.points import random_point, random_seed, unknowns, value_at
from gdn_ir.open_shapes import trial_shape
from gdn_ir.region import OpenRegion, Region, is_constant

_ZERO = Constant("zero", lambda array: bool((array == 0).all()), "zero")
_CHOICE = Constant("mask", lambda array: array.dtype == np.bool_, "a constant choice")
_ZERO_ONE = Constant("mask", lambda a: bool(np.isin(a, (0, 1)).all()) and a.ndim > 1, "a 0/1 mask")
# What sets constant positions of x to zero and leaves the others alone.
_ZERO_MASKS = (
    Op("Trilu", Var("x")),
    Op("Where", _CHOICE, _ZERO, Var("x")),
    Op("Where", _CHOICE, Var("x"), _ZERO),
    Op("Mul", Var("x"), _ZERO_ONE, commutes=True),
)
# What picks or renames axes before the last two, such as one chunk of all.
PICKS = frozenset({"Gather", "Reshape", "Slice", "Squeeze", "Unsqueeze"})


_MOST_BYTES = 2**30


@dataclasses.dataclass(frozen=True)
class DecayUse:
    """A value that the decay ends in, and how it comes there.

    Attributes:
        tail: the value, whose other consumers are none of the decay's business.
        path: picks and at most one Mul, each with the operand that the decay flows through.
        factor: the other operand of that Mul.
        masks: the nodes on the way that set positions to zero.
        zeros: where the tail is zero: "strict" on and above the diagonal, "inclusive" above it,
            None for anything else.
    """

    tail: ir.Value
    path: tuple[tuple[ir.Node, ir.Value], ...] = ()
    factor: ir.Value | None = None
    masks: tuple[ir.Node, ...] = ()
    zeros: Literal["strict", "inclusive"] | None = None

    def emit(self, emit: Emitter, decay: ir.Value) -> ir.Value:
        """The path again, without its masks, from another decay."""
        value = decay
        for node, operand in self.path:
            value = emit.like(node, *[value if v is operand else v for v in node.inputs])
        return value


def decay_uses(model: ir.Model, g: ir.Value, E: ir.Value) -> list[DecayUse]:
    """All uses of the decay E, a function of log-decays g, in the order of their tails."""
    found = []
    stack = [DecayUse(E)]
    while stack:
        use = stack.pop()
        steps = [_step(model, use, node) for node in use.tail.consumers()]
        stack.extend(step for step in reversed(steps) if step is not None)
        if use.tail.is_graph_output() or None in steps:
            found.append(dataclasses.replace(use, zeros=_zeros(model, g, use)))
    return found


def _step(model: ir.Model, use: DecayUse, node: ir.Node) -> DecayUse | None:
    """The use continued by a consumer of its tail; None where the consumer is other work."""
    value, result = use.tail, node.outputs[0]
    if not is_onnx(node) or node.graph is not value.graph:
        return None
    for mask in _ZERO_MASKS:
        match = mask.match(node)
        if match and match["x"] is value:
            return dataclasses.replace(use, tail=result, masks=(*use.masks, node))
    path = (*use.path, (node, value))
    if node.op_type in PICKS and node.inputs[0] is value and _keeps_matrices(model, node):
        return dataclasses.replace(use, tail=result, path=path)
    if node.op_type == "Mul" and use.factor is None and node.inputs[0] is not node.inputs[1]:
        factor = node.inputs[1] if node.inputs[0] is value else node.inputs[0]
        if factor is not None and factor.shape is not None and not is_constant(factor):
            return dataclasses.replace(use, tail=result, path=path, factor=factor)
    return None


def _keeps_matrices(model: ir.Model, pick: ir.Node) -> bool:
    """Whether a pick leaves the diagonal of [C, C] matrices where it is, and so all masks.

    It may take whole matrices, or a leading block of each.
    """
    value = pick.inputs[0]
    shape = None if value is None else trial_shape(value)
    if shape is None or len(shape) < 2:
        return False
    matrix = np.arange(shape[-2] * shape[-1]).reshape(shape[-2:])

    def array(operand: ir.Value) -> Array | None:
        return np.broadcast_to(matrix, shape) if operand is value else array_of(operand)

    picked = compute(pick, model.opset_imports, _MOST_BYTES, array)
    if picked is None or picked[0].ndim < 2:
        return False
    rows, columns = picked[0].shape[-2:]
    block = matrix[:rows, :columns]
    return block.shape == (rows, columns) and bool((picked[0] == block).all())


def _zeros(model: ir.Model, g: ir.Value, use: DecayUse) -> Literal["strict", "inclusive"] | None:
    inputs = [g] if use.factor is None else [g, use.factor]
    point = random_point(random_seed())
    try:
        piece = Region.between(inputs, [use.tail]).to_model(model)
        pattern = value_at(piece, point, unknowns(inputs, point)).residue != 0
    except (OpenRegion, CannotDecide):
        return None
    if pattern.ndim < 2 or pattern.shape[-1] != pattern.shape[-2]:
        return None
    if (pattern == np.tri(pattern.shape[-1], k=-1, dtype=np.bool_)).all():
        return "strict"
    return "inclusive" if (pattern == np.tri(pattern.shape[-1], dtype=np.bool_)).all() else None


def is_fixed(value: ir.Value | None) -> bool:
    """Whether the operand is absent or a constant."""
    return value is None or is_constant(value)


def flag(node: ir.Node, name: str) -> bool:
    """An integer attribute that is 0 unless given, as a truth value."""
    attr = node.attributes.get(name)
    return attr is not None and attr.as_int() != 0
