"""Algebra: constants as elements."""

import numpy as np
import pytest

from gdn_ir.modular.algebra import CannotDecide
from gdn_ir.modular.points import random_point


@pytest.mark.parametrize(
    "array",
    [
        np.array([2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)], np.int64),
        np.array([2**64 - 1, 3], np.uint64),
        np.array([-128, 127], np.int8),
        np.array([True, False]),
        np.array([0.5, -3.25, 2.0**100], np.float64),
    ],
    ids=lambda array: array.dtype.name,
)
def test_constants_are_exact(array):
    point = random_point(seed=3)
    p = point.field.p
    scale = 2**4  # of the floats, to make integers of them
    expected = [int(x * scale) % p for x in array.tolist()]
    assert (point.lift(array).residue * scale % p).tolist() == expected


def test_infinities():
    point = random_point(seed=3)
    lifted = point.lift(np.array([-np.inf, 1.0]))
    assert lifted.is_minus_inf.tolist() == [True, False]
    for number in (np.inf, np.nan):
        with pytest.raises(CannotDecide, match=r"NaN or \+inf"):
            point.lift(np.array(number))
