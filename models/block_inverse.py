"""(I - A)^-1 of a strictly lower A from 16 by 16 blocks: eight of them in a chunk of 128.

Each diagonal block is inverted row by row, on its own; then pairs of neighbours are merged until
one is left. With X and Y the inverses of the diagonal blocks of I - A, and A_21 the block of A to
the left of the second:

    [[X^-1, 0], [-A_21, Y^-1]]^-1 = [[X, 0], [Y A_21 X, Y]]

The plus sign comes from I - A, whose lower-left block is -A_21.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from gdn_ir.models.chunk_form import Invert
from gdn_ir.models.graph_writer import Dim, GraphWriter

__all__ = ["BLOCK", "invert_blocks", "splits_into_blocks"]

BLOCK = 16  # rows of a diagonal block, the tile of the hardware that this form was written for


def splits_into_blocks(chunk: int) -> bool:
    """Whether merging pairs of blocks ends in the whole chunk: 16, 32, 64, 128 and so on."""
    blocks, rest = divmod(chunk, BLOCK)
    return rest == 0 and blocks > 0 and blocks & (blocks - 1) == 0


def invert_blocks(
    w: GraphWriter, a: ir.Value, shape: Sequence[Dim], *, invert_rows: Invert
) -> ir.Value:
    """The inverse of A, of `shape` [B,H,N,C,C]; C must satisfy `splits_into_blocks`.

    `invert_rows` inverts a block [B,H,N,16,16]; its names are put under `block0_` and so on.
    """
    chunk = shape[-1]
    assert isinstance(chunk, int) and splits_into_blocks(chunk)
    inverses = []
    for index in range(chunk // BLOCK):
        with w.prefixed(f"block{index}_"):
            block = _block(w, a, index, index, BLOCK, "A")
            inverses.append(invert_rows(w, block, (*shape[:3], BLOCK, BLOCK)))
    size = BLOCK
    while len(inverses) > 1:
        pairs = zip(inverses[::2], inverses[1::2], strict=True)
        inverses = [_merge(w, a, index, *pair, size) for index, pair in enumerate(pairs)]
        size *= 2
    return inverses[0]


def _merge(
    w: GraphWriter, a: ir.Value, pair: int, upper: ir.Value, lower: ir.Value, size: int
) -> ir.Value:
    """The inverse of the square of 2 * `size` rows whose diagonal blocks have these inverses."""
    with w.prefixed(f"merge{2 * size}_{pair}_"):
        between = _block(w, a, 2 * pair + 1, 2 * pair, size, "A")
        corner = w.op("MatMul", lower, between, name="lower_A")
        corner = w.op("MatMul", corner, upper, name="corner")
        zeros_right = w.ints([0] * 9 + [size])
        top = w.op("Pad", upper, zeros_right, name="top", mode="constant")
        bottom = w.op("Concat", corner, lower, name="bottom", axis=-1)
        return w.op("Concat", top, bottom, name="inverse", axis=-2)


def _block(w: GraphWriter, a: ir.Value, row: int, column: int, size: int, name: str) -> ir.Value:
    """The block of A [B,H,N,C,C] that starts at row * size, column * size."""
    for axis, start, cut in ((3, row, f"{name}_rows"), (4, column, name)):
        bounds = [w.ints([n]) for n in (start * size, (start + 1) * size, axis, 1)]
        a = w.op("Slice", a, *bounds, name=cut)
    return a
