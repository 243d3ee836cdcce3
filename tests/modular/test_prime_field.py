"""Arithmetic modulo safe primes, against Python's integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdn_ir.modular.prime_field import SAFE_PRIMES, PrimeField, mix


def is_prime(n: int) -> bool:
    """Miller-Rabin with bases that decide every n below 3.3e24."""
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41):
        x = pow(base, odd, n)
        if x in (1, n - 1):
            continue
        if not any((x := x * x % n) == n - 1 for _ in range(twos - 1)):
            return False
    return True


def test_at_least_eight_safe_primes_below_2_to_31():
    assert len(set(SAFE_PRIMES)) >= 8
    for p in SAFE_PRIMES:
        assert p < 2**31
        assert is_prime(p)
        assert is_prime((p - 1) // 2)


@pytest.mark.parametrize("p", SAFE_PRIMES)
def test_squares_have_order_q(p):
    field = PrimeField(p)
    # q is prime, so the order of a square is 1 or q.
    for root in (2, 3, 12345):
        assert pow(root * root, field.q, p) == 1
    assert field.power(4, np.array([0, 1, 2])).tolist() == [1, 4, 16]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 70), (70, 5)),
        ((2, 4, 33), (2, 33, 2)),
        ((33,), (33, 2)),
        ((5, 64), (64,)),
        ((2, 0), (0, 3)),
    ],
)
def test_matmul_is_exact(left, right):
    field = PrimeField(SAFE_PRIMES[0])
    rng = np.random.default_rng(0)
    # The largest residues make the largest partial sums.
    a = field.p - 1 - rng.integers(0, 3, left)
    b = field.p - 1 - rng.integers(0, 3, right)
    expected = np.matmul(a.astype(object), b.astype(object)) % field.p
    assert np.array_equal(field.matmul(a, b), expected.astype(np.int64))


def test_matmul_by_another_modulus():
    field = PrimeField(SAFE_PRIMES[1])
    a = np.array([[field.q - 1, 5]])
    assert field.matmul(a, a.T, field.q).tolist() == [[((field.q - 1) ** 2 + 25) % field.q]]


@given(st.integers(1, 2**31 - 1000))
def test_inverse(a):
    field = PrimeField(SAFE_PRIMES[2])
    inverse = int(field.inverse(np.array([a % field.p]))[0])
    assert a * inverse % field.p == 1


@settings(max_examples=200)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_embed_is_exact(x):
    field = PrimeField(SAFE_PRIMES[0])
    numerator, denominator = float(x).as_integer_ratio()
    expected = numerator * pow(denominator, -1, field.p) % field.p
    assert int(field.embed(np.array([x], np.float32))[0]) == expected


def test_mix_tells_order_key_and_value_apart():
    one, two = np.array([1]), np.array([2])
    hashes = {
        int(mix(*parts)[0]) for parts in [(7, one, two), (7, two, one), (8, one, two), (7, one)]
    }
    assert len(hashes) == 4
    assert np.unique(mix(3, np.arange(10_000))).size == 10_000
