"""Random points: the inputs of a model as unknowns, and what the model computes from them."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping

import numpy as np
import onnx_ir as ir

from gdn_ir.graph_view import index_bound
from gdn_ir.modular.algebra import Algebra
from gdn_ir.modular.element import Element, Operand
from gdn_ir.modular.interpreter import Interpreter
from gdn_ir.modular.one_node import OneNode
from gdn_ir.modular.prime_field import SAFE_PRIMES, PrimeField
from gdn_ir.open_shapes import trial_shape

# A statement that is wrong passes as true with a chance below 2^-40.
LOG2_BOUND = -40.0
MOST_TRIALS = 24


def random_seed() -> int:
    """A seed that no graph can have been made for; the prime follows from it."""
    return secrets.randbelow(2**31)


def random_point(seed: int, trial: int = 0) -> Algebra:
    """The algebra at a point that the seed and the number of the trial give."""
    field = PrimeField(SAFE_PRIMES[seed % len(SAFE_PRIMES)])
    return Algebra(field, seed + trial)


def unknowns(
    inputs: Iterable[ir.Value], point: Algebra, strictly_lower: Collection[str] = ()
) -> dict[str, Operand]:
    """Fresh unknowns for floating inputs, random numbers for others; one for each name.

    Those are below what they index where they index something, else below 100; of booleans, both.

    Args:
        inputs: of known rank; open dimensions are 2.
        point: draws them.
        strictly_lower: names of those that are zero on and above the diagonal.

    Raises:
        ValueError: a rank or a type is unknown.
    """
    feeds: dict[str, Operand] = {}
    rng = np.random.default_rng(point.seed)
    for value in inputs:
        name = value.name or ""
        shape = trial_shape(value)
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
            most = 2 if value.dtype == ir.DataType.BOOL else index_bound(value, otherwise=100)
            feeds[name] = rng.integers(0, most, shape).astype(value.dtype.numpy())
    return feeds


def value_at(model: ir.Model, point: Algebra, feeds: Mapping[str, Operand]) -> Element:
    """The only output of a model at a point.

    Raises:
        CannotDecide: an op has no meaning in the algebra.
    """
    (result,) = Interpreter(model, point, OneNode(model.opset_imports)).run(feeds)
    return point.lift(result)
