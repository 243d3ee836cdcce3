"""The algebra in which graphs are proved equal: residues in place of reals.

An input element x becomes two independent random numbers: x mod p, which sums and products act on,
and an exponent mod q, so that exp(x) = w^(x mod q) turns sums into products as the real exp does.
w is one more random number, of order q: what exp(1) is, no graph can know.
What is no polynomial (sqrt, sigmoid, max) is a keyed hash of its operands: equal where they are
equal, and otherwise a fresh variable. Two graphs whose outputs agree at random points are then
equal but for a chance that `Algebra.log2_bound` states.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gdn_ir.evaluate import Array
from gdn_ir.modular.element import HASHED, Bools, Element, Operand
from gdn_ir.modular.error_bound import ErrorBound
from gdn_ir.modular.near_constants import NearConstants
from gdn_ir.modular.prime_field import PrimeField, Residues, mix

# Each binary place of a coefficient doubles the degree of the exp that it stands in; beyond this
# many, what it multiplies counts as an unknown of its own.
_MOST_PLACES = 12
# As a summand in an exponent a constant c is w^c, of degree |c| in w: so only if it is small and
# has few binary places; others are hashed.
_MOST_SUMMAND = 64
_SUMMAND_PLACES = 3


class CannotDecide(Exception):
    """The algebra has no meaning for what a node asks for; says what that is."""


class Algebra:
    """Operations on elements, at one random point.

    Attributes:
        field: the residues' field.
        seed: of the point.
        uninterpreted: the ops that were hashed.

    Args:
        constants: what those of two models are taken for; without it each is itself alone.
    """

    def __init__(
        self, field: PrimeField, seed: int, constants: NearConstants | None = None
    ) -> None:
        self.field = field
        self.seed = seed
        self._rng = np.random.default_rng(seed)
        self._key = int(self._rng.integers(1 << 62))
        # The w of this point: that of all points would make exp(1) a number that a graph can hold.
        root = int(self._rng.integers(2, field.p - 1))
        self._base = root * root % field.p
        self.uninterpreted: set[str] = set()
        self._constants = constants
        self._bound = ErrorBound(field)

    def next_model(self) -> None:
        """What follows are the constants of another model."""
        if self._constants is not None:
            self._constants.next_model()

    def variable(self, name: str, zero: Bools) -> Element:
        """Fresh unknowns, but where `zero` says that they are known to be 0."""
        shape = zero.shape
        residue = np.where(zero, 0, self._rng.integers(0, self.field.p, shape))
        exponent = np.where(zero, 0, self._rng.integers(0, self.field.q, shape))
        one = np.where(zero, -np.inf, 1.0)
        return Element(
            residue=residue,
            exponent=exponent,
            is_minus_inf=np.zeros(shape, bool),
            degree=one,
            weight=np.maximum(one, 0),
            tainted=np.zeros(shape, bool),
            exponent_inputs=frozenset({(name, residue.size)}),
        )

    def lift(self, value: Operand) -> Element:
        """A constant as an element: finite numbers exactly, -inf as the mask."""
        if isinstance(value, Element):
            return value
        array = np.asarray(value)
        if self._constants is None or array.dtype.kind in "biu":
            return self.exactly(array)
        self._constants.see(array)
        return self._constant(self._constants.meaning(array.astype(np.float64)))

    def exactly(self, array: Array) -> Element:
        """Numbers as an element that are taken for no others, such as those drawn for an input."""
        # Integers are exact, also those that no float64 holds.
        is_integer = array.dtype.kind in "biu"
        return self._constant(array if is_integer else array.astype(np.float64), exactly=True)

    def _constant(self, numbers: Array, *, exactly: bool = False) -> Element:
        is_integer = numbers.dtype.kind in "biu"
        masked = np.zeros(numbers.shape, bool) if is_integer else np.isneginf(numbers)
        if not (np.isfinite(numbers) | masked).all():
            raise CannotDecide("a constant holds NaN or +inf")
        numbers = np.where(masked, 0, numbers)
        residue = self.field.embed_integers(numbers) if is_integer else self.field.embed(numbers)
        if self._constants is not None and not exactly:
            for number, divisor in self._constants.reciprocals.items():
                if (here := numbers == number).any():
                    residue = np.where(here, self._one_over(np.array(divisor)), residue)
        element = Element(
            residue=residue,
            exponent=None,
            is_minus_inf=masked,
            degree=np.where(numbers == 0, -np.inf, 0.0),
            weight=np.zeros(numbers.shape),
            tainted=np.zeros(numbers.shape, bool),
            is_integer=is_integer,
        )
        return self._as_summand(element, numbers.astype(np.float64))

    def _as_summand(self, constant: Element, numbers: Array) -> Element:
        """The constant with the exponent that it adds to others."""
        fine = numbers * 2.0**_SUMMAND_PLACES
        small = (np.abs(numbers) <= _MOST_SUMMAND) & (fine == np.trunc(fine))
        exponent = self.field.embed(np.where(small, numbers, 0), self.field.q)
        inputs: frozenset[tuple[str, int]] = frozenset()
        if not small.all():
            hashed = self._hash_residues("constant in an exponent", self.field.q, constant.residue)
            exponent = np.where(small, exponent, hashed)
            distinct = np.unique(constant.residue[~small]).size
            inputs = frozenset({(f"{HASHED}constants", distinct)})
        return replace(
            constant,
            exponent=exponent,
            weight=np.where(small, np.abs(numbers), 1.0),
            exponent_inputs=inputs,
            places=_binary_places(np.where(small, numbers, 0)),
        )

    def _one_over(self, divisors: Array) -> Residues:
        return self.field.inverse(self.field.embed(divisors))

    def _real(self, constant: Array) -> Array:
        """The numbers, float64, that a constant is taken for."""
        numbers = constant.astype(np.float64)
        return numbers if self._constants is None else self._constants.meaning(numbers)

    def add(self, a: Element, b: Element) -> Element:
        """a + b; -inf plus anything is -inf."""
        is_minus_inf = a.is_minus_inf | b.is_minus_inf
        exponent = None
        if a.exponent is not None and b.exponent is not None:
            exponent = np.where(is_minus_inf, 0, (a.exponent + b.exponent) % self.field.q)
        return Element(
            residue=np.where(is_minus_inf, 0, (a.residue + b.residue) % self.field.p),
            exponent=exponent,
            is_minus_inf=is_minus_inf,
            degree=np.maximum(a.degree, b.degree),
            weight=a.weight + b.weight,
            tainted=a.tainted | b.tainted,
            exponent_inputs=a.exponent_inputs | b.exponent_inputs,
            places=max(a.places, b.places),
        )

    def negative(self, a: Element) -> Element:
        """-a."""
        self._refuse_minus_inf("Neg", a)
        exponent = None if a.exponent is None else -a.exponent % self.field.q
        return replace(a, residue=-a.residue % self.field.p, exponent=exponent)

    def multiply(self, a: Operand, b: Operand) -> Element:
        """a * b, elementwise. As an exponent it is linear where one is a constant, else a hash.

        -inf times a positive constant is -inf.
        """
        left, right = self.lift(a), self.lift(b)
        if isinstance(a, Element) and isinstance(b, Element):
            self._refuse_minus_inf("Mul", left, right)
            return self._as_unknown_exponent("Mul", self._product(left, right))
        constant, unknown = (b, left) if isinstance(a, Element) else (a, right)
        factor = self._real(np.asarray(constant))
        return self._scaled(unknown, self.lift(constant), factor, _binary_places(factor))

    def _product(self, a: Element, b: Element) -> Element:
        residue = a.residue * b.residue % self.field.p
        return Element(
            residue=residue,
            exponent=None,
            is_minus_inf=a.is_minus_inf | b.is_minus_inf,
            degree=a.degree + b.degree,
            weight=np.ones(residue.shape),
            tainted=a.tainted | b.tainted,
        )

    def _scaled(self, unknown: Element, constant: Element, factor: Array, places: int) -> Element:
        """The unknown times a constant, of which `factor` is the value and has binary places."""
        self._refuse_minus_inf("Mul", constant)
        if (unknown.is_minus_inf & (factor <= 0)).any():
            raise CannotDecide("Mul of -inf by a number that is not positive")
        product = self._product(unknown, constant)
        if unknown.exponent is None:
            return product
        places += unknown.places
        if places > _MOST_PLACES:
            return self._as_unknown_exponent("Mul", product)
        coefficient = self.field.embed(factor, self.field.q)
        return replace(
            product,
            exponent=unknown.exponent * coefficient % self.field.q,
            weight=unknown.weight * np.abs(factor),
            exponent_inputs=unknown.exponent_inputs,
            places=places,
        )

    def _as_unknown_exponent(self, name: str, a: Element) -> Element:
        """In exponents, an unknown of its own: equal to itself, related to nothing else."""
        zero = np.isneginf(a.degree)
        hashed = self._hash_residues(f"{name} in an exponent", self.field.q, a.residue)
        return replace(
            a,
            exponent=np.where(zero, 0, hashed),
            weight=np.where(zero, 0.0, 1.0),
            exponent_inputs=frozenset({(f"{HASHED}{name}", a.residue.size)}),
            places=0,
        )

    def matmul(self, a: Operand, b: Operand) -> Element:
        """a @ b as numpy has it."""
        left, right = self.lift(a), self.lift(b)
        self._refuse_minus_inf("MatMul", left, right)
        residue = self.field.matmul(left.residue, right.residue)
        exponent, weight, places = None, np.zeros(residue.shape), 0
        unknown = left if isinstance(a, Element) else right
        both = isinstance(a, Element) and isinstance(b, Element)
        if not both and unknown.exponent is not None:
            constant = self._real(np.asarray(b if isinstance(a, Element) else a))
            places = unknown.places + _binary_places(constant)
            factors = self.field.embed(constant, self.field.q)
            if isinstance(a, Element):
                exponent = self.field.matmul(unknown.exponent, factors, self.field.q)
                weight = left.weight @ np.abs(constant)
            else:
                exponent = self.field.matmul(factors, unknown.exponent, self.field.q)
                weight = np.abs(constant) @ right.weight
        # Exact would be the largest over k of left[i, k] + right[k, j]; this is at most more.
        degree = _row_and_column(left.degree, right.degree)
        tainted = _row_and_column(left.tainted, right.tainted)
        product = Element(
            residue=residue,
            exponent=exponent,
            is_minus_inf=np.zeros(residue.shape, bool),
            degree=np.broadcast_to(degree[0] + degree[1], residue.shape).copy(),
            weight=weight,
            tainted=np.broadcast_to(tainted[0] | tainted[1], residue.shape).copy(),
            exponent_inputs=frozenset() if exponent is None else unknown.exponent_inputs,
            places=places,
        )
        too_fine = exponent is not None and places > _MOST_PLACES
        return self._as_unknown_exponent("MatMul", product) if too_fine else product

    def reduce_sum(self, a: Element, axes: tuple[int, ...], keepdims: bool) -> Element:
        """Sum along axes; any -inf among the summands makes the sum -inf."""

        def total(array: Array) -> Array:
            return np.asarray(array.sum(axis=axes, keepdims=keepdims))

        is_minus_inf = total(a.is_minus_inf) > 0
        exponent = None
        if a.exponent is not None:
            exponent = np.where(is_minus_inf, 0, total(a.exponent) % self.field.q)
        return Element(
            residue=np.where(is_minus_inf, 0, total(a.residue) % self.field.p),
            exponent=exponent,
            is_minus_inf=is_minus_inf,
            degree=a.degree.max(axis=axes, keepdims=keepdims, initial=-np.inf),
            weight=total(a.weight),
            tainted=total(a.tainted) > 0,
            exponent_inputs=a.exponent_inputs,
            places=a.places,
        )

    def cumsum(self, a: Element, axis: int, exclusive: bool, reverse: bool) -> Element:
        """Running sums as onnx's CumSum has them."""
        p, q = self.field.p, self.field.q
        if not -len(a.shape) <= axis < len(a.shape):
            raise CannotDecide(f"CumSum along axis {axis} of shape {list(a.shape)}")
        if a.shape[axis] == 0:
            return a

        def along(array: Array, accumulate: Callable[[Array], Array], empty: object) -> Array:
            if reverse:
                array = np.flip(array, axis)
            result = accumulate(array)
            if exclusive:
                first = np.full_like(np.take(result, [0], axis), empty)
                kept = np.take(result, range(result.shape[axis] - 1), axis)
                result = np.concatenate([first, kept], axis)
            return np.flip(result, axis) if reverse else result

        is_minus_inf = along(a.is_minus_inf, lambda x: np.logical_or.accumulate(x, axis), False)
        exponent = None
        if a.exponent is not None:
            total = along(a.exponent, lambda x: np.cumsum(x, axis) % q, 0)
            exponent = np.where(is_minus_inf, 0, total)
        residue = along(a.residue, lambda x: np.cumsum(x, axis) % p, 0)
        return Element(
            residue=np.where(is_minus_inf, 0, residue),
            exponent=exponent,
            is_minus_inf=is_minus_inf,
            degree=along(a.degree, lambda x: np.maximum.accumulate(x, axis), -np.inf),
            weight=along(a.weight, lambda x: np.cumsum(x, axis), 0),
            tainted=along(a.tainted, lambda x: np.logical_or.accumulate(x, axis), False),
            exponent_inputs=a.exponent_inputs,
            places=a.places,
        )

    def exp(self, a: Element) -> Element:
        """w^a where a is linear in unknowns, 0 where it is -inf; a hash where it is not linear.

        What is linear in unknowns makes exp a monomial in independent w^x, so the bound is
        rigorous. A hash keeps equal exponents equal and knows nothing else about exp.
        """
        if a.exponent is None:
            result = self.hash("Exp", a)
        else:
            self._bound.exponential(a)
            if a.exponent_is_hashed:
                self.uninterpreted.add("Exp of a product or a constant")
            residue = self.field.power(self._base, a.exponent)
            tainted = a.tainted | a.exponent_is_hashed
            result = replace(a, residue=residue, degree=a.weight, tainted=tainted)
        zero = a.is_minus_inf
        masked = replace(
            result,
            residue=np.where(zero, 0, result.residue),
            is_minus_inf=np.zeros(a.shape, bool),
            degree=np.where(zero, -np.inf, result.degree),
        )
        return self._as_unknown_exponent("Exp", masked)

    def divide(self, a: Operand, b: Operand) -> Element:
        """a / b, exactly: 1/3 is no float, and 3 has an inverse modulo p and modulo q."""
        if isinstance(b, Element):
            return self.multiply(self.lift(a), self.reciprocal(b))
        constant = np.asarray(b)
        if self._constants is not None:
            self._constants.see_divisor(constant)
        divisor, real = self.lift(constant), self._real(constant)
        self._refuse_minus_inf("Div by", divisor)
        if not real.all():
            raise CannotDecide("a division by zero")
        inverse = replace(divisor, residue=self._one_over(real))
        # The reciprocal of any other number is no number of few places, however it is rounded.
        is_power = (np.abs(np.frexp(real)[0]) == 0.5).all()
        places = _binary_places(1 / real) if is_power else _MOST_PLACES + 1
        return self._scaled(self.lift(a), inverse, 1 / real, places)

    def reciprocal(self, a: Element) -> Element:
        """1 / a in the field."""
        self._refuse_minus_inf("Reciprocal", a)
        if (a.residue == 0).any():
            raise CannotDecide("a division by something that is zero at a random point")
        self._bound.inverse(a)
        return replace(
            a,
            residue=self.field.inverse(a.residue),
            exponent=None,
            degree=np.ones(a.shape),
        )

    def hash(self, name: str, *operands: Operand) -> Element:
        """An uninterpreted function of its operands, elementwise with broadcasting."""
        lifted = [self.lift(operand) for operand in operands]
        self.uninterpreted.add(name)
        parts = [part for e in lifted for part in (e.residue, e.is_minus_inf.astype(np.int64))]
        residue = self._hash_residues(name, self.field.p, *parts)
        self._bound.hash(name, residue, *lifted)
        hashed = Element(
            residue=residue,
            exponent=None,
            is_minus_inf=np.zeros(residue.shape, bool),
            degree=np.ones(residue.shape),
            weight=np.ones(residue.shape),
            tainted=np.ones(residue.shape, bool),
        )
        return self._as_unknown_exponent(name, hashed)

    def hash_axis(self, name: str, a: Element, axis: int) -> Element:
        """An uninterpreted function of all elements along an axis in any order; the axis stays."""
        residues = np.sort(a.residue, axis=axis)
        # As large along the axis as a sum of nothing: there may be nothing to take.
        state: Residues = np.zeros_like(residues.sum(axis=axis, keepdims=True))
        for index in range(residues.shape[axis]):
            following = np.take(residues, [index], axis)
            state = self._hash_residues(name, self.field.p, state, following)
        masked = a.is_minus_inf.sum(axis=axis, keepdims=True)
        combined = replace(
            self.lift(np.zeros(state.shape)),
            residue=state,
            degree=a.degree.max(axis=axis, keepdims=True, initial=-np.inf),
        )
        return self.hash(name, combined, masked)

    def _hash_residues(self, name: str, modulus: int, *parts: Residues) -> Residues:
        label = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=7).digest(), "little")
        return (mix(self._key, label, *parts) % np.uint64(modulus)).astype(np.int64)

    def _refuse_minus_inf(self, op: str, *elements: Element) -> None:
        if any(e.is_minus_inf.any() for e in elements):
            raise CannotDecide(f"{op} of -inf")

    def log2_bound(self, degree: float) -> float:
        """log2 of the chance that two different outputs of this degree agree at this point."""
        return self._bound.log2(degree)


def _row_and_column(left: Array, right: Array) -> tuple[Array, Array]:
    """The largest of each row and of each column, shaped to broadcast to the product of the two."""
    row = np.asarray(left.max(axis=-1, initial=_least(left)))
    column = np.asarray(right.max(axis=-2 if right.ndim > 1 else 0, initial=_least(right)))
    if left.ndim > 1 and right.ndim > 1:
        return row[..., None], column[..., None, :]
    return row, column


def _least(array: Array) -> Any:
    """What the largest of nothing is."""
    return False if array.dtype == np.bool_ else -np.inf


def _binary_places(array: Array) -> int:
    """How many binary places the numbers have: 0 for integers, 3 for 1/8."""
    fraction, places = array.astype(np.float64), 0
    while (fraction != np.trunc(fraction)).any():
        fraction, places = fraction * 2, places + 1
    return places
