"""The parts of the chunk form that its older and today's source text have in common.

Each function appends the nodes that torch.onnx (dynamo) makes of one step. Axes are B (batch), T
(tokens), H (value heads), N (chunks), C (tokens in a chunk), K and V (head dims).
"""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir

from gdn_ir.models.chunk_lengths import ChunkLengths
from gdn_ir.models.gdn_sizes import GdnSizes
from gdn_ir.models.graph_writer import GraphWriter

__all__ = [
    "Chunks",
    "Operands",
    "decay_from_start",
    "heads_first",
    "join_chunks",
    "l2_normalise",
    "pad_to_chunks",
    "pick_chunk",
    "repeat_key_heads",
    "scale_query",
    "split_into_chunks",
    "tokens_first",
]


class Operands(NamedTuple):
    """The five operands of the rule, token by token."""

    q: ir.Value
    k: ir.Value
    v: ir.Value
    beta: ir.Value
    g: ir.Value


class Chunks(NamedTuple):
    """The operands in chunks: q, k, k_beta [B,H,N,C,K], v_beta [B,H,N,C,V], g [B,H,N,C]."""

    q: ir.Value
    k: ir.Value
    k_beta: ir.Value
    v_beta: ir.Value
    g: ir.Value


def repeat_key_heads(w: GraphWriter, x: Operands, sizes: GdnSizes) -> Operands:
    """q, k [B,T,Hk,K] to [B,T,H,K]: each key head stands for `repeats` value heads in a row."""
    if sizes.repeats == 1:
        return x

    def repeat(value: ir.Value, name: str) -> ir.Value:
        copies = w.op("Unsqueeze", value, w.ints([3]), name=f"{name}_unsqueezed")
        expanded_shape = w.ints([1, 1, 1, sizes.repeats, 1])
        copies = w.op("Expand", copies, expanded_shape, name=f"{name}_expanded")
        shape = w.ints([sizes.batch, -1, sizes.heads, sizes.head_dim])
        return w.op("Reshape", copies, shape, name=f"{name}_repeated", allowzero=0)

    return x._replace(q=repeat(x.q, "q"), k=repeat(x.k, "k"))


def heads_first(w: GraphWriter, x: Operands, dtype: ir.DataType) -> Operands:
    """[B,T,H,...] of type `dtype` to [B,H,T,...] in float32."""
    return _reorder(w, x, dtype, [0, 2, 1], "heads_first")


def tokens_first(w: GraphWriter, x: Operands, dtype: ir.DataType) -> Operands:
    """[B,T,H,...] of type `dtype` to [T,B,H,...] in float32."""
    return _reorder(w, x, dtype, [1, 0, 2], "tokens_first")


def _reorder(
    w: GraphWriter, x: Operands, dtype: ir.DataType, order: list[int], now: str
) -> Operands:
    def move(value: ir.Value, name: str, perm: list[int]) -> ir.Value:
        moved = w.op("Transpose", value, name=f"{name}_{now}", perm=perm)
        # In a half precision layer g alone is float32 already.
        if ir.DataType.FLOAT in (dtype, value.dtype):
            return moved
        return w.op("Cast", moved, name=f"{name}_f32", to=ir.DataType.FLOAT.value)

    return Operands(
        q=move(x.q, "q", [*order, 3]),
        k=move(x.k, "k", [*order, 3]),
        v=move(x.v, "v", [*order, 3]),
        beta=move(x.beta, "beta", order),
        g=move(x.g, "g", order),
    )


def l2_normalise(w: GraphWriter, x: ir.Value, name: str, dtype: ir.DataType) -> ir.Value:
    """x / sqrt(sum(x^2) + 1e-6) over the last axis; `dtype` is the type of x.

    The sum alone is always taken in float32, as torch does.
    """
    half = dtype != ir.DataType.FLOAT
    squares = w.op("Mul", x, x, name=f"{name}_squares")
    if half:
        squares = w.op("Cast", squares, name=f"{name}_squares_f32", to=ir.DataType.FLOAT.value)
    total = w.op(
        "ReduceSum",
        squares,
        w.ints([-1]),
        name=f"{name}_square_sum_f32" if half else f"{name}_square_sum",
        keepdims=1,
        noop_with_empty_axes=0,
    )
    if half:
        total = w.op("Cast", total, name=f"{name}_square_sum", to=dtype.value)
    total = w.op("Add", total, w.scalar(1e-6, dtype), name=f"{name}_square_sum_eps")
    norm = w.op("Sqrt", total, name=f"{name}_norm")
    inverse = w.op("Reciprocal", norm, name=f"{name}_inverse_norm")
    return w.op("Mul", x, inverse, name=f"{name}_normalised")


def scale_query(w: GraphWriter, q: ir.Value, sizes: GdnSizes) -> ir.Value:
    """q / sqrt(K)."""
    scale = w.scalar(sizes.head_dim**-0.5, ir.DataType.FLOAT)
    return w.op("Mul", q, scale, name="q_scaled")


def pad_to_chunks(w: GraphWriter, x: Operands, lengths: ChunkLengths) -> Operands:
    """Fills the token axis with zeros up to whole chunks; nodes that add nothing are kept."""

    def pad(value: ir.Value, name: str, rank: int) -> ir.Value:
        return w.op("Pad", value, lengths.pads(w, rank), name=f"{name}_padded", mode="constant")

    return Operands(
        q=pad(x.q, "q", 4),
        k=pad(x.k, "k", 4),
        v=pad(x.v, "v", 4),
        beta=pad(x.beta, "beta", 3),
        g=pad(x.g, "g", 3),
    )


def split_into_chunks(w: GraphWriter, x: Operands, sizes: GdnSizes) -> Chunks:
    """[B,H,T,...] to [B,H,N,C,...], with beta applied to k and v."""
    beta = w.op("Unsqueeze", x.beta, w.ints([-1]), name="beta_column")
    v_beta = w.op("Mul", x.v, beta, name="v_beta")
    k_beta = w.op("Mul", x.k, beta, name="k_beta")

    def split(value: ir.Value, name: str, *dims: int) -> ir.Value:
        shape = w.ints([sizes.batch, sizes.heads, -1, sizes.chunk, *dims])
        return w.op("Reshape", value, shape, name=f"{name}_chunks", allowzero=1)

    return Chunks(
        q=split(x.q, "q", sizes.head_dim),
        k=split(x.k, "k", sizes.head_dim),
        k_beta=split(k_beta, "k_beta", sizes.head_dim),
        v_beta=split(v_beta, "v_beta", sizes.value_dim),
        g=split(x.g, "g"),
    )


def decay_from_start(w: GraphWriter, log_decay: ir.Value) -> ir.Value:
    """The decay from the chunk's start to each token, [B,H,N,C,1]."""
    decay = w.op("Exp", log_decay, name="decay_from_start")
    return w.op("Unsqueeze", decay, w.ints([-1]), name="decay_from_start_column")


def pick_chunk(w: GraphWriter, value: ir.Value, chunk: ir.Value, name: str) -> ir.Value:
    """value[:, :, chunk]."""
    return w.op("Gather", value, chunk, name=name, axis=2)


def join_chunks(
    w: GraphWriter,
    chunks: ir.Value,
    sizes: GdnSizes,
    lengths: ChunkLengths,
    dtype: ir.DataType,
) -> ir.Value:
    """[B,H,N,C,V] to o [B,T,H,V] in `dtype`, without the filled end."""
    shape = w.ints([sizes.batch, sizes.heads, -1, sizes.value_dim])
    joined = w.op("Reshape", chunks, shape, name="output_joined", allowzero=1)
    joined = lengths.cut(w, joined)
    if dtype == ir.DataType.FLOAT:
        return w.op("Transpose", joined, name="o", perm=[0, 2, 1, 3])
    tokens_first = w.op("Transpose", joined, name="o_f32", perm=[0, 2, 1, 3])
    return w.op("Cast", tokens_first, name="o", to=dtype.value)
