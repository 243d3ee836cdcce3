"""Shapes with open dimensions, and what recognition tries those at."""

from __future__ import annotations

import onnx_ir as ir

# Small, and not 1, which would be broadcast. Not one alone: a Reshape or a constant mask may suit
# it by chance.
TRIED = (2, 3, 7)


def trial_shape(value: ir.Value, size: int = TRIED[0]) -> tuple[int, ...] | None:
    """The value's shape with one size in the place of open dimensions; None if its rank is unknown.

    One number for all of them: what a graph computes elementwise has the same length everywhere,
    whatever names inference gave it.
    """
    if value.shape is None:
        return None
    return tuple(known if isinstance(known, int) else size for known in value.shape)


def shape_text(value: ir.Value) -> str:
    """The shape for a report: `[1, 2, ?, 64, 64]`."""
    return "[" + ", ".join(str(s) if isinstance(s, int) else "?" for s in value.shape or ()) + "]"


def has_square_matrices(value: ir.Value) -> bool:
    """Whether the last two dimensions are one known number."""
    shape = value.shape
    return (
        shape is not None
        and len(shape) >= 2
        and isinstance(shape[-1], int)
        and shape[-1] == shape[-2]
    )
