"""Arithmetic modulo a safe prime p = 2q + 1 below 2^31, on int64 arrays.

Sums, products and powers of w (of order q) stand for sums, products and exponentials of reals:
exponents live modulo q, since w^a w^b = w^(a + b mod q).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Residues = npt.NDArray[np.int64]

# q and p = 2q + 1 are both prime. Each trial takes another: no coefficient that a graph can hold is
# a multiple of three of them, and which three is drawn.
SAFE_PRIMES = (
    2147483579, 2147483123, 2147482763, 2147481563, 2147481143, 2147480927, 2147480327, 2147479823,
    2147479787, 2147478899, 2147478083, 2147477807, 2147477687, 2147477159, 2147473283, 2147473127,
    2147472659, 2147472023, 2147471759, 2147471147, 2147470727, 2147470019, 2147468783, 2147468507,
    2147467919, 2147467067, 2147466683, 2147466359, 2147465267, 2147464043, 2147463299, 2147462579,
)  # fmt: skip

# Products of a 16-bit limb and a residue below 2^31, 32 of them, stay below 2^53: exact in float64.
_LIMB = 16
_BLOCK = 32


@dataclass(frozen=True)
class PrimeField:
    """The integers modulo p. Every square but 0 and 1 is a w, of order q."""

    p: int

    @property
    def q(self) -> int:
        """The order of w, the modulus of exponents."""
        return (self.p - 1) // 2

    def matmul(self, a: Residues, b: Residues, modulus: int | None = None) -> Residues:
        """a @ b as numpy broadcasts it, exact, through float64 BLAS."""
        m = modulus or self.p
        low, high = (a & ((1 << _LIMB) - 1)).astype(np.float64), (a >> _LIMB).astype(np.float64)
        wide = b.astype(np.float64)
        vector = b.ndim == 1
        total: Residues | None = None
        for start in range(0, a.shape[-1], _BLOCK):
            inner = slice(start, start + _BLOCK)
            right = wide[inner] if vector else wide[..., inner, :]
            part_low = np.matmul(low[..., inner], right).astype(np.int64) % m
            part_high = np.matmul(high[..., inner], right).astype(np.int64) % m
            part = (part_high * (1 << _LIMB) + part_low) % m
            total = part if total is None else (total + part) % m
        if total is None:
            return np.zeros(np.matmul(low, wide).shape, np.int64)
        return np.asarray(total)

    def power(
        self, base: Residues | int, exponent: Residues | int, modulus: int | None = None
    ) -> Residues:
        """base^exponent, elementwise, by squaring."""
        m = modulus or self.p
        base, exponent = np.broadcast_arrays(
            np.asarray(base, np.int64) % m, np.asarray(exponent, np.int64)
        )
        base, exponent = base.copy(), exponent.copy()
        result = np.ones(base.shape, np.int64)
        while exponent.any():
            odd = (exponent & 1).astype(bool)
            result = np.where(odd, result * base % m, result)
            base = base * base % m
            exponent >>= 1
        return result

    def inverse(self, a: Residues, modulus: int | None = None) -> Residues:
        """1 / a, elementwise; 0 where a is 0, which the caller must have ruled out."""
        m = modulus or self.p
        return self.power(a, m - 2, m)

    def embed(self, array: npt.NDArray[np.floating], modulus: int | None = None) -> Residues:
        """Finite floats as residues, exactly: every float is n 2^k, and 2 has an inverse."""
        m = modulus or self.p
        mantissa, exponent = np.frexp(array.astype(np.float64))
        whole = (mantissa * 2.0**53).astype(np.int64)
        shift = exponent.astype(np.int64) - 53
        places, which = np.unique(shift, return_inverse=True)
        powers = np.array([pow(2, int(k), m) for k in places], np.int64)
        factors = powers[which].reshape(shift.shape) if shift.size else shift
        return np.asarray(whole % m * factors % m)

    def embed_integers(
        self, array: npt.NDArray[np.integer], modulus: int | None = None
    ) -> Residues:
        """Integers and booleans as residues, exactly, also those beyond 2^53."""
        wide = array.astype(np.uint64 if array.dtype.kind == "u" else np.int64)
        return np.asarray(wide % wide.dtype.type(modulus or self.p), np.int64)


def mix(*parts: Residues | int) -> npt.NDArray[np.uint64]:
    """A keyed hash of int64 arrays, elementwise; parts are broadcast and their order counts."""
    with np.errstate(over="ignore"):
        state = np.uint64(0x9E3779B97F4A7C15)
        result: npt.NDArray[np.uint64] = np.asarray(state)
        for part in parts:
            word = np.asarray(part, np.int64).astype(np.uint64)
            result = result ^ (word + state + (result << np.uint64(6)) + (result >> np.uint64(2)))
            # splitmix64's finalizer
            result = (result ^ (result >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            result = (result ^ (result >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            result = result ^ (result >> np.uint64(31))
    return result
