"""Constants of two models that differ by rounding alone, taken for one number."""

from __future__ import annotations

import bisect

import numpy as np

from gdn_ir.evaluate import Array

_LARGEST = 4096
_MOST_RELATIVE = 1e-6


class NearConstants:
    """The numbers of several models, up to 2 ulp apart from one model to another.

    Exporters fold 1 / sqrt(96) in different ways, and one ulp is no difference of algebra. Two
    numbers of one model stay two, and what has few digits (float16, subnormal numbers) stays too.
    Division by 3 is multiplication by what 1/3 is rounded to: the one exporter writes this, the
    other that. The rounded number then stands for 1/3 itself, unless it was a number of its own.

    Attributes:
        unified: pairs of a number and another one that was taken for it.
        divisors: rounded reciprocals, and what they are the reciprocals of.
    """

    def __init__(self) -> None:
        self.unified: set[tuple[float, float]] = set()
        self.divisors: dict[float, float] = {}
        self._of_others: list[float] = []
        self._own: set[float] = set()
        self._taken: dict[float, float] = {}
        self._divided_by: set[float] = set()

    @property
    def differ(self) -> bool:
        """Whether this model has numbers of many digits that the others lack, or they some."""
        return {x for x in self._own if _is_long(x)} != {x for x in self._of_others if _is_long(x)}

    def next_model(self) -> None:
        """What follows are the numbers of another model."""
        self._of_others = sorted({*self._of_others, *self._own})
        self._own, self._taken, self._divided_by = set(), {}, set()

    def unify(self, array: Array) -> Array:
        """The array, with numbers close to one of another model replaced by it.

        Integers are exact and stay; so do large arrays, which are weights.
        """
        if array.dtype not in (np.float32, np.float64) or array.size > _LARGEST:
            return array
        result = array.astype(np.float64)
        for number in np.unique(result[np.isfinite(result) & (result != np.trunc(result))]):
            ulp = float(np.spacing(np.abs(number).astype(array.dtype)))
            near = self._near(float(number), 2 * ulp)
            # Another number of this model may be the one that is meant.
            if 2 * ulp > _MOST_RELATIVE * abs(number) or near is None:
                near = float(number)
            if self._taken.setdefault(near, float(number)) != number:
                near = float(number)
            self._own.add(near)
            if near != number:
                self.unified.add((near, float(number)))
                result[result == number] = near
            elif near in self.divisors and near not in self._divided_by:
                self.unified.add((1 / self.divisors[near], float(number)))
        return result

    def reciprocals(self, array: Array) -> Array | None:
        """Numbers of the array's type that stand for 1 / array, or None if none can.

        They cannot for zeros, integers, types of few digits and large arrays.
        """
        if array.dtype not in (np.float32, np.float64) or array.size > _LARGEST:
            return None
        with np.errstate(all="ignore"):
            rounded = 1 / array
        if not np.isfinite(rounded).all() or (rounded == 0).any():
            return None
        for divisor, number in zip(array.flat, rounded.flat, strict=True):
            self._divide_by(float(divisor), float(number), 2 * float(np.spacing(np.abs(number))))
        return np.asarray(rounded)

    def _divide_by(self, divisor: float, rounded: float, distance: float) -> None:
        if rounded * divisor == 1:
            return
        self._divided_by.add(rounded)
        near = self._near(rounded, distance)
        if near is None and rounded not in self._own:
            self.divisors[rounded] = divisor
            self._own.add(rounded)
        elif near is not None and near not in self.divisors:
            self.unified.add((near, 1 / divisor))

    def _near(self, number: float, distance: float) -> float | None:
        index = bisect.bisect_left(self._of_others, number - distance)
        near = self._of_others[index : index + 8]
        close = [other for other in near if other <= number + distance]
        return min(close, key=lambda other: abs(other - number), default=None)


def _is_long(number: float) -> bool:
    """Whether the number has more than 12 significant bits: 0.1, but not 0.75."""
    mantissa, _ = np.frexp(number)
    return bool(mantissa * 2**12 != np.trunc(mantissa * 2**12))
