"""Shapes with open dimensions, and what recognition tries those at."""

from __future__ import annotations

import onnx_ir as ir

# Small, and not 1, which would be broadcast. One number for all of them: what a graph computes
# elementwise has the same length everywhere, whatever names inference gave it.
_TRIED = 2


def trial_shape(value: ir.Value) -> tuple[int, ...] | None:
    """The value's shape with 2 in the place of each open dimension; None if its rank is unknown."""
    if value.shape is None:
        return None
    return tuple(size if isinstance(size, int) else _TRIED for size in value.shape)


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
