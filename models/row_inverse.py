"""(I - A)^-1 of a strictly lower A, row by row, as the Python loop of the source text does.

Row i becomes A_i + A_i (rows above it), written back in place; the identity is added last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from gdn_ir.models.graph_writer import Dim, GraphWriter
from gdn_ir.models.loops import counted_loop

__all__ = ["InvertRows", "invert_rows_looped", "invert_rows_unrolled"]

InvertRows = Callable[[GraphWriter, ir.Value, Sequence[Dim]], ir.Value]


def invert_rows_unrolled(w: GraphWriter, a: ir.Value, shape: Sequence[Dim]) -> ir.Value:
    """The inverse of A, of static `shape` [B,H,N,n,n], as n - 1 copies of the row step."""
    n = _rows(shape)
    inverse = a
    for row in range(1, n):
        inverse = _substitute_row(
            w, inverse, _known_row(w, row, shape), f"row{row}", f"substituted{row}"
        )
    return _add_identity(w, inverse, n)


def invert_rows_looped(w: GraphWriter, a: ir.Value, shape: Sequence[Dim]) -> ir.Value:
    """The inverse of A, of `shape` [B,H,N,n,n] with N perhaps symbolic, as a Loop over the rows."""
    n = _rows(shape)
    row_shape = _row_shape(w, a, shape)

    def turn(body: GraphWriter, number: ir.Value, square: ir.Value) -> Sequence[ir.Value]:
        row = _counted_row(body, number, row_shape)
        return [_substitute_row(body, square, row, "row", "row_substituted")]

    (inverse,) = counted_loop(w, "rows", w.ints(n - 1), a, shape, turn, result="substituted")
    return _add_identity(w, inverse, n)


class _Row(NamedTuple):
    """A row i >= 1, in the ways that a step needs it."""

    number: ir.Value  # i, rank 0
    end: ir.Value  # [i]
    columns: ir.Value  # 0 to i - 1, [i,1]
    positions: ir.Value  # i throughout, [B,H,N,1,n]


def _known_row(w: GraphWriter, row: int, shape: Sequence[Dim]) -> _Row:
    index_shape = _known((*shape[:3], 1, shape[4]))
    index_name = f"row{row}_index_" + "_".join(map(str, index_shape))
    return _Row(
        number=w.ints(row),
        end=w.ints([row]),
        columns=w.shared(f"row{row}_columns", np.arange(row, dtype=np.int64)[:, None]),
        positions=w.shared(index_name, np.full(index_shape, row, np.int64)),
    )


def _counted_row(w: GraphWriter, turn: ir.Value, row_shape: ir.Value) -> _Row:
    """The row of a turn: turn 0 is row 1."""
    number = w.op("Add", turn, w.ints(1), name="row_number")
    columns = w.op("Range", w.ints(0), number, w.ints(1), name="row_range")
    return _Row(
        number=number,
        end=w.op("Unsqueeze", number, w.ints([0]), name="row_end"),
        columns=w.op("Unsqueeze", columns, w.ints([-1]), name="row_columns"),
        positions=w.op("Expand", number, row_shape, name="row_index"),
    )


def _row_shape(w: GraphWriter, a: ir.Value, shape: Sequence[Dim]) -> ir.Value:
    """[B,H,N,1,n], measured where N is symbolic."""
    if isinstance(shape[2], int):
        return w.ints(_known((*shape[:3], 1, shape[4])))
    measured = w.op("Shape", a, name="A_shape", start=0, end=3)
    return w.op("Concat", measured, w.ints([1, _rows(shape)]), name="row_shape", axis=0)


def _substitute_row(
    w: GraphWriter, square: ir.Value, row: _Row, this: str, result: str
) -> ir.Value:
    """square[..., i, :i] += sum_j square[..., i, j] * square[..., j, :i]."""

    def first(value: ir.Value, axis: int, name: str) -> ir.Value:
        return w.op("Slice", value, w.ints([0]), row.end, w.ints([axis]), w.ints([1]), name=name)

    def swap_first_and_last(value: ir.Value, name: str) -> ir.Value:
        return w.op("Transpose", value, name=name, perm=[3, 1, 2, 0])

    whole = w.op("Gather", square, row.number, name=this, axis=3)
    known = first(whole, 3, f"{this}_known")
    above = first(first(square, 3, f"{this}_rows_above"), 4, f"{this}_square_above")
    column = w.op("Unsqueeze", known, w.ints([-1]), name=f"{this}_column")
    products = w.op("Mul", column, above, name=f"{this}_products")
    correction = w.op(
        "ReduceSum",
        products,
        w.ints([-2]),
        name=f"{this}_correction",
        keepdims=0,
        noop_with_empty_axes=0,
    )
    solved = w.op("Add", known, correction, name=f"{this}_solved")

    # row[..., :i] = solved. ScatterND writes along axis 0 only, hence the transposes.
    solved_t = swap_first_and_last(solved, f"{this}_solved_t")
    whole_t = swap_first_and_last(whole, f"{this}_t")
    written_t = w.op(
        "ScatterND", whole_t, row.columns, solved_t, name=f"{this}_written_t", reduction="none"
    )
    written = swap_first_and_last(written_t, f"{this}_written")

    # square[..., i, :] = row
    written = w.op("Unsqueeze", written, w.ints([3]), name=f"{this}_update")
    return w.op(
        "ScatterElements", square, row.positions, written, name=result, axis=3, reduction="none"
    )


def _add_identity(w: GraphWriter, inverse: ir.Value, n: int) -> ir.Value:
    eye = w.shared(f"eye_{n}", np.eye(n, dtype=np.float32))
    return w.op("Add", inverse, eye, name="inverse")


def _rows(shape: Sequence[Dim]) -> int:
    return _known(shape[-1:])[0]


def _known(shape: Sequence[Dim]) -> list[int]:
    known = [dim for dim in shape if isinstance(dim, int)]
    assert len(known) == len(shape)
    return known
