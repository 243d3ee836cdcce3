"""Constants that differ by rounding alone, taken for one number."""

from __future__ import annotations

import bisect
import math

import numpy as np

from gdn_ir.evaluate import Array

_LARGEST = 4096


class NearConstants:
    """The numbers seen at one point, up to 2 ulp apart.

    Exporters fold 1 / sqrt(96) in different ways, and one ulp is no difference of algebra.

    Attributes:
        unified: pairs of a number and another one that was taken for it.
    """

    def __init__(self) -> None:
        self.unified: set[tuple[float, float]] = set()
        self._seen: list[float] = []

    def unify(self, array: Array) -> Array:
        """The array, with numbers close to one seen before replaced by it.

        Integers are exact and stay; so do large arrays, which are weights.
        """
        if array.dtype.kind != "f" or array.size > _LARGEST:
            return array
        result = array.astype(np.float64)
        for number in np.unique(result[np.isfinite(result) & (result != np.trunc(result))]):
            ulp = float(np.spacing(np.abs(number).astype(array.dtype)))
            index = bisect.bisect_left(self._seen, number - 2 * ulp)
            near = self._seen[index] if index < len(self._seen) else math.inf
            if near > number + 2 * ulp:
                bisect.insort(self._seen, float(number))
            elif near != number:
                self.unified.add((float(near), float(number)))
                result[result == number] = near
        return result
