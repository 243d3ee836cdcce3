"""Row-by-row inverses of several squares at once, side by side: one chain of row steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from gdn_ir.emitter import Emitter
from gdn_ir.passes._row_inverses import Form


def invert(emit: Emitter, squares: Sequence[ir.Value], form: Form) -> ir.Value:
    """The inverses [..., n, n k] of k strictly lower squares [..., n, n], in one chain.

    Row i of X is untouched until step i, so its coefficients can be taken from X before any step:
    R[i, j, n b + c] = X[i, n b + j], each broadcast across the tile b that it belongs to. Then each
    step is the same for all columns: Y[i] = X[i] + sum_(j < i) R[i, j] * Y[j]. Row 0 of X is zero
    and row 1 of the inverse is that of X, which leaves n - 2 steps.
    """
    A = squares[0]
    assert A.dtype is not None and A.shape is not None
    rank, n = len(A.shape), A.shape[-1]
    assert isinstance(n, int)
    X = emit.op("Concat", *squares, axis=-1)
    R = _coefficients(emit, squares, rank, n)
    if form.negated:
        X, R = emit.op("Neg", X), emit.op("Neg", R)
    rows = rank - 2
    Y = X if n == 2 else _slice(emit, X, 0, 2, rows)
    for i in range(2, n):
        known = _slice(emit, emit.op("Gather", R, np.array(i), axis=rows), 0, i, rows)
        products = emit.op("Mul", known, Y)
        correction = emit.op("ReduceSum", products, np.array([rows]), keepdims=1)
        row = emit.op("Add", _slice(emit, X, i, i + 1, rows), correction)
        Y = emit.op("Concat", Y, row, axis=rows)
    if not form.with_identity:
        return Y
    return emit.op("Add", Y, np.tile(np.eye(n, dtype=A.dtype.numpy()), len(squares)))


def _coefficients(emit: Emitter, squares: Sequence[ir.Value], rank: int, n: int) -> ir.Value:
    """R [..., n, n, n k]."""
    widened = [
        emit.op("Expand", emit.op("Unsqueeze", A, np.array([rank])), np.array([1] * rank + [n]))
        for A in squares
    ]
    return emit.op("Concat", *widened, axis=rank)


def _slice(emit: Emitter, value: ir.Value, start: int, end: int, axis: int) -> ir.Value:
    return emit.op("Slice", value, np.array([start]), np.array([end]), np.array([axis]))
