"""Element: a tensor of unknowns, as the residues and the records that a proof keeps of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gdn_ir.evaluate import Array
from gdn_ir.modular.prime_field import Residues

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

# Marks, among the inputs of an exponent, a hash of something that is not linear.
HASHED = "hash of "


@dataclass(frozen=True)
class Element:
    """A tensor of algebra elements; all arrays have its shape.

    Attributes:
        residue: each element modulo p; 0 where `is_minus_inf`.
        exponent: each element modulo q as it counts in an exponent: linear in unknowns and in
            hashed products of them. None for what nothing takes an exp of in practice (products of
            matrices); should anything do so, that exp is hashed.
        is_minus_inf: the mask value -inf, which exp turns into 0.
        degree: total degree of each element as a polynomial; -inf for a constant zero.
        weight: sum of the absolute coefficients that each element has as a linear exponent, and of
            the constant beside them.
        tainted: whether a hash reaches each element.
        exponent_inputs: names and sizes of the inputs that `exponent` is made of.
        places: binary places of the coefficients with which it is.
        is_integer: whether it stands for integers or booleans, with which arithmetic rounds.
    """

    residue: Residues
    exponent: Residues | None
    is_minus_inf: Bools
    degree: Floats
    weight: Floats
    tainted: Bools
    exponent_inputs: frozenset[tuple[str, int]] = frozenset()
    places: int = 0
    is_integer: bool = False

    @property
    def exponent_is_hashed(self) -> bool:
        """Whether a hash counts in the exponent, where it hides what it is made of."""
        return any(name.startswith(HASHED) for name, _ in self.exponent_inputs)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all its arrays."""
        return self.residue.shape

    def map(self, function: Callable[[Array], Array]) -> Element:
        """The function on each array: for what only moves elements."""
        return replace(
            self,
            residue=function(self.residue),
            exponent=None if self.exponent is None else function(self.exponent),
            is_minus_inf=function(self.is_minus_inf),
            degree=function(self.degree),
            weight=function(self.weight),
            tainted=function(self.tainted),
        )


def map_together(elements: Sequence[Element], function: Callable[..., Array]) -> Element:
    """The function on the arrays of several elements, kind by kind."""
    first = elements[0]
    exponents = [e.exponent for e in elements]
    return Element(
        residue=function(*(e.residue for e in elements)),
        exponent=None if any(e is None for e in exponents) else function(*exponents),
        is_minus_inf=function(*(e.is_minus_inf for e in elements)),
        degree=function(*(e.degree for e in elements)),
        weight=function(*(e.weight for e in elements)),
        tainted=function(*(e.tainted for e in elements)),
        exponent_inputs=first.exponent_inputs.union(*(e.exponent_inputs for e in elements)),
        places=max(e.places for e in elements),
        is_integer=any(e.is_integer for e in elements),
    )


# What an interpreter handles: an element, or an array that is known.
Operand = Element | Array
