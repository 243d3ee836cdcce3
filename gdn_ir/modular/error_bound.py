"""The chance that two different graphs agree at a random point, by what was done on the way."""

from __future__ import annotations

import math

import numpy as np

from gdn_ir.modular.element import HASHED, Element
from gdn_ir.modular.prime_field import PrimeField, Residues


class ErrorBound:
    """Counts what can go wrong at one point: denominators, exponentials, operands of hashes."""

    def __init__(self, field: PrimeField) -> None:
        self._field = field
        self._inverted: Residues = np.zeros(0, np.int64)
        self._inverted_degree = 1.0
        self._exponent_inputs: frozenset[tuple[str, int]] = frozenset()
        self._places = 0
        self._hashed: dict[str, Residues] = {}
        self._hashed_degree = 1.0

    def exponential(self, a: Element) -> None:
        """An exp was taken of the element."""
        self._exponent_inputs |= a.exponent_inputs
        self._places = max(self._places, a.places)
        if a.exponent_is_hashed:
            self._hashed_degree = max(self._hashed_degree, _degree(a))

    def inverse(self, a: Element) -> None:
        """The element was inverted."""
        self._inverted = np.union1d(self._inverted, a.residue)
        self._inverted_degree = max(self._inverted_degree, _degree(a))

    def hash(self, name: str, residues: Residues, *operands: Element) -> None:
        """The elements were hashed to these residues."""
        self._hashed[name] = np.union1d(self._hashed.get(name, residues), residues)
        self._hashed_degree = max(self._hashed_degree, *map(_degree, operands))

    def log2(self, degree: float) -> float:
        """log2 of the chance that two different outputs of this degree agree.

        Schwartz-Zippel over sets of size at least q, after multiplying out every w^x and every
        denominator, each at most `degree` times; plus the chance that two different operands of a
        hash collide.
        """
        # One more for w itself, which a constant in an exponent is a power of.
        exponents = 1 + sum(size for _, size in self._exponent_inputs)
        clearing = 1 + exponents * 2**self._places + self._inverted.size * self._inverted_degree
        different = max(degree, 1) * 2**self._places * clearing
        pairs = sum(known.size * (known.size - 1) / 2 for known in self._hashed.values())
        # Of hashes in exponents the names and sizes are known: as many operands in each graph.
        pairs += sum(2 * n**2 for name, n in self._exponent_inputs if name.startswith(HASHED))
        return math.log2((different + pairs * self._hashed_degree * clearing) / self._field.q)


def _degree(a: Element) -> float:
    return float(a.degree.max(initial=1))
