"""Constants of two models that differ by rounding alone, taken for one number.

Exporters fold 1 / sqrt(96) in different ways, and one ulp is no difference of algebra; nor is it
whether a model divides by 3 or multiplies by what 1/3 is rounded to.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from gdn_ir.evaluate import Array
from gdn_ir.structural_hash import array_digest

# Larger arrays are weights: exact, and compared as a whole.
_LARGEST = 4096
_MOST_RELATIVE = 1e-6


@dataclass
class _Seen:
    """What one model holds: its numbers that are no integers, with the size of two ulp."""

    numbers: dict[float, float] = field(default_factory=dict)
    divisors: set[float] = field(default_factory=set)
    # Numbers of many digits and digests of arrays, each with the precision of its type.
    rounded: dict[float | str, float] = field(default_factory=dict)


class NearConstants:
    """The constants of two models, and what those of the second, or the first, are taken for.

    A number of one model that the other lacks is taken for the other's nearest within two ulp, if
    that is none of the first model's own and no second number would be taken for it. Likewise a
    number stands for 1/d if it is 1/d rounded, only the other model divides by d, and the other has
    no such number. What is ambiguous stays exact.

    Both models must have been seen, by one evaluation each, before `settle` gives any a meaning.
    """

    def __init__(self) -> None:
        self._seen = [_Seen(), _Seen()]
        self._model = 1
        self._near: list[dict[float, float]] = [{}, {}]
        self._inverse_of: list[dict[float, float]] = [{}, {}]

    @property
    def unified(self) -> set[tuple[float, float]]:
        """Pairs of a number and another one that was taken for it."""
        near = {(to, x) for meaning in self._near for x, to in meaning.items()}
        return near | {(1 / d, x) for meaning in self._inverse_of for x, d in meaning.items()}

    @property
    def precision(self) -> float:
        """Relative rounding of the coarsest type in which the models' constants differ, or 0.

        Small integers and fractions such as 3/4 are exact in every type and do not count.
        """
        first, second = (
            {self._near[i].get(x, x) if isinstance(x, float) else x: eps for x, eps in seen}
            for i, seen in enumerate(s.rounded.items() for s in self._seen)
        )
        both = first | second
        return max((both[x] for x in first.keys() ^ second.keys()), default=0.0)

    def next_model(self) -> None:
        """What follows are the constants of the other model."""
        self._model = 1 - self._model

    def see(self, array: Array) -> None:
        """Takes note of a constant of the present model."""
        precision = _precision(array)
        if not precision:
            return
        rounded = self._seen[self._model].rounded
        if array.size > _LARGEST:
            rounded[array_digest(array)] = precision
            return
        wide = array.astype(np.float64)
        for number in np.unique(wide[np.isfinite(wide) & (wide != np.trunc(wide))]).tolist():
            if _is_long(number, precision):
                rounded[number] = precision
            if precision <= np.finfo(np.float32).eps:
                self._see_number(number, array.dtype)

    def _see_number(self, number: float, dtype: np.dtype[np.generic]) -> None:
        two_ulp = 2 * float(np.spacing(np.abs(number).astype(dtype)))
        if two_ulp <= _MOST_RELATIVE * abs(number):  # subnormal numbers have few digits
            self._seen[self._model].numbers[number] = two_ulp

    def see_divisor(self, array: Array) -> None:
        """Takes note of a constant by which the present model divides."""
        self.see(array)
        if array.size > _LARGEST:
            return
        wide = array.astype(np.float64)
        seen = self._seen[self._model]
        for divisor in np.unique(wide[np.isfinite(wide) & (wide != 0)]).tolist():
            if abs(np.frexp(divisor)[0]) != 0.5:  # else 1 / divisor is no rounded number
                seen.divisors.add(divisor)
                seen.rounded[f"1/{divisor}"] = _precision(array)

    def settle(self) -> bool:
        """Decides what stands for what; whether any constant has another meaning than before."""
        before = [dict(meaning) for meaning in (*self._near, *self._inverse_of)]
        for i, (own, other) in enumerate((self._seen, self._seen[::-1])):
            # Of two near numbers the second model's is taken for the first's.
            near = _nearest(own, sorted(other.numbers.keys() - own.numbers.keys())) if i else {}
            near = {x: to for x, to in near.items() if x not in other.numbers}
            self._near[i] = _one_each(near)
        for i, (own, other) in enumerate((self._seen, self._seen[::-1])):
            self._inverse_of[i] = {
                x: d
                for x, d in _one_each(_inverses(own, other)).items()
                if x not in self._near[i] and x not in self._near[1 - i].values()
            }
        return before != [*self._near, *self._inverse_of]

    def meaning(self, numbers: Array) -> Array:
        """The numbers, float64, with those that are taken for others replaced."""
        for number, to in self._near[self._model].items():
            numbers = np.where(numbers == number, to, numbers)
        return numbers

    @property
    def reciprocals(self) -> dict[float, float]:
        """Numbers of the present model that stand for 1/d, and d."""
        return self._inverse_of[self._model]


def _nearest(own: _Seen, others: list[float]) -> dict[float, float]:
    found = {}
    for number, two_ulp in own.numbers.items():
        start = bisect.bisect_left(others, number - two_ulp)
        near = [x for x in others[start : start + 8] if x <= number + two_ulp]
        if near:
            found[number] = min(near, key=lambda x: abs(x - number))
    return found


def _inverses(own: _Seen, other: _Seen) -> dict[float, float]:
    """Numbers that are the rounded 1/d, for a d that the other model alone divides by."""
    of = {1 / d: d for d in other.divisors - own.divisors}
    near = _nearest(own, sorted(of))
    taken = _nearest(other, sorted(of))
    return {x: of[r] for x, r in near.items() if x not in other.numbers and r not in taken.values()}


def _one_each(meaning: dict[float, float]) -> dict[float, float]:
    """Without those of which several would be taken for one."""
    targets = list(meaning.values())
    return {x: to for x, to in meaning.items() if targets.count(to) == 1}


def _precision(array: Array) -> float:
    """Distance of 1 from the next number of the array's type; 0 if it holds integers."""
    dtype = ir.DataType.from_numpy(array.dtype)
    return float(dtype.eps) if dtype.is_floating_point() else 0.0


def _is_long(number: float, precision: float) -> bool:
    """Whether the number has more than 12 significant bits, or half of what its type has.

    0.1 has, 0.75 has not.
    """
    bits = 12 if precision < 2**-22 else int(-np.log2(precision)) // 2
    mantissa, _ = np.frexp(number)
    return bool(mantissa * 2**bits != np.trunc(mantissa * 2**bits))
