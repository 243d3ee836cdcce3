"""Random points: the inputs of a model as unknowns, and what the model computes from them."""

from __future__ import annotations

import math
import secrets
from collections.abc import Collection, Iterable, Mapping

import numpy as np
import onnx_ir as ir

from gdn_ir.evaluate import Array
from gdn_ir.graph_view import index_bound, is_onnx
from gdn_ir.modular.algebra import Algebra
from gdn_ir.modular.element import Element, Operand
from gdn_ir.modular.interpreter import Interpreter
from gdn_ir.modular.near_constants import NearConstants
from gdn_ir.modular.one_node import OneNode
from gdn_ir.modular.prime_field import SAFE_PRIMES, PrimeField
from gdn_ir.open_shapes import TRIED, trial_shape

# A statement that is wrong passes as true with a chance below 2^-40.
LOG2_BOUND = -40.0
MOST_TRIALS = 24

_MOST_SIZE = 100
_MOST_NUMBER = 2**15
_COMPUTE = frozenset({
    "Abs", "Add", "Cast", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max",
    "Min", "Mul", "Neg", "Sub",
})  # fmt: skip


def random_seed() -> int:
    """A seed that no graph can have been made for; the primes follow from it."""
    return secrets.randbelow(2**31)


def random_point(seed: int, trial: int = 0, constants: NearConstants | None = None) -> Algebra:
    """The algebra at a point that the seed and the number of the trial give.

    Each trial has another prime: a coefficient that is a multiple of one vanishes there only.
    """
    field = PrimeField(SAFE_PRIMES[(seed + trial) % len(SAFE_PRIMES)])
    return Algebra(field, seed + trial, constants)


def unknowns(
    inputs: Iterable[ir.Value],
    point: Algebra,
    strictly_lower: Collection[str] = (),
    open_size: int = TRIED[0],
) -> dict[str, Operand]:
    """Fresh unknowns for floating inputs, random numbers for others; one for each name.

    Args:
        inputs: of known rank.
        point: draws them.
        strictly_lower: names of those that are zero on and above the diagonal.
        open_size: of every open dimension.

    Raises:
        ValueError: a rank or a type is unknown.
    """
    feeds: dict[str, Operand] = {}
    for value in inputs:
        name = value.name or ""
        shape = trial_shape(value, open_size)
        if shape is None or value.dtype is None:
            raise ValueError(f"input '{name}' has shape {value.shape} and type {value.dtype}")
        if name in feeds:
            continue
        if value.dtype.is_floating_point():
            zero = np.zeros(shape, bool)
            if name in strictly_lower:
                zero |= np.triu(np.ones(shape[-2:], bool))
            feeds[name] = point.variable(name, zero)
        else:
            feeds[name] = _drawn(value, shape, point.seed)
    return feeds


def _drawn(value: ir.Value, shape: tuple[int, ...], seed: int) -> Array:
    """Integers or booleans; below what they index, where they index something.

    Sizes, trip counts and the like are small and positive. What is only compared, computed with or
    cast is negative, too, and large in every other trial. One boolean alone takes both values.
    """
    assert value.dtype is not None
    dtype = value.dtype.numpy()
    rng = np.random.default_rng(seed)
    if value.dtype == ir.DataType.BOOL:
        drawn = rng.integers(0, 2, shape) if math.prod(shape) > 1 else np.full(shape, seed % 2)
        return drawn.astype(dtype)
    most = index_bound(value, otherwise=_MOST_SIZE)
    if most < _MOST_SIZE or not _is_only_a_number(value):
        return rng.integers(0, most, shape).astype(dtype)
    most = _MOST_NUMBER if seed % 2 else _MOST_SIZE
    least, most = max(-most, int(value.dtype.min)), min(most, int(value.dtype.max))
    return rng.integers(least, most, shape, endpoint=True).astype(dtype)


def _is_only_a_number(value: ir.Value) -> bool:
    """Whether what is made of it is made by arithmetic, until it is a real or a boolean."""
    stack, seen = [value], {value}
    while stack:
        for node, _ in stack.pop().uses():
            if not is_onnx(node) or node.op_type not in _COMPUTE:
                return False
            result = node.outputs[0]
            is_integer = result.dtype is None or result.dtype.is_integer()
            if is_integer and result not in seen:
                seen.add(result)
                stack.append(result)
    return True


def value_at(model: ir.Model, point: Algebra, feeds: Mapping[str, Operand]) -> Element:
    """The only output of a model at a point.

    Raises:
        CannotDecide: an op has no meaning in the algebra.
    """
    (result,) = Interpreter(model, point, OneNode(model.opset_imports)).run(feeds)
    return point.lift(result)
