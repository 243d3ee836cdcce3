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

    Attributes:
        unified: pairs of a number and another one that was taken for it.
    """

    def __init__(self) -> None:
        self.unified: set[tuple[float, float]] = set()
        self._of_others: list[float] = []
        self._own: set[float] = set()
        self._taken: dict[float, float] = {}

    def next_model(self) -> None:
        """What follows are the numbers of another model."""
        self._of_others = sorted({*self._of_others, *self._own})
        self._own, self._taken = set(), {}

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
        return result

    def _near(self, number: float, distance: float) -> float | None:
        index = bisect.bisect_left(self._of_others, number - distance)
        near = self._of_others[index : index + 8]
        close = [other for other in near if other <= number + distance]
        return min(close, key=lambda other: abs(other - number), default=None)
