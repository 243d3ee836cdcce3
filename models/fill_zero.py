"""The older chunk form: exp between two triangle cuts, then fill with zeros.

It is what transformers had up to 5.15 and what many copies of it still have: the attention inside a
chunk and every exp of the chunk loop are made anew in each step. It also normalises q and k before
it casts them to float32.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gdn_ir.models import chunk_parts as parts
from gdn_ir.models.gdn_sizes import GdnSizes
from gdn_ir.models.graph_writer import GraphWriter

__all__ = ["fill_zero_rule"]


def fill_zero_rule(
    w: GraphWriter,
    x: parts.Operands,
    state: ir.Value,
    sizes: GdnSizes,
    *,
    l2norm: bool,
    dtype: ir.DataType,
    final_state: bool,
) -> tuple[ir.Value, ir.Value | None]:
    """From the graph's inputs, of type `dtype`, to o and, if asked for, the final state."""
    x = parts.repeat_key_heads(w, x, sizes)
    if l2norm:
        q = parts.l2_normalise(w, x.q, "q", dtype)
        x = x._replace(q=q, k=parts.l2_normalise(w, x.k, "k", dtype))
    x = parts.pad_to_chunks(w, parts.heads_first(w, x, dtype), sizes)
    x = x._replace(q=parts.scale_query(w, x.q, sizes))
    chunks = parts.split_into_chunks(w, x, sizes)

    log_decay = w.op("CumSum", chunks.g, w.ints(-1), name="log_decay", exclusive=0, reverse=0)
    decay = decay_mask(w, log_decay)
    k_t = w.op("Transpose", chunks.k, name="k_t", perm=[0, 1, 2, 4, 3])
    overlap = w.op("MatMul", chunks.k_beta, k_t, name="key_overlap")
    overlap = w.op("Mul", overlap, decay, name="key_overlap_decayed")
    zero = w.scalar(0.0, ir.DataType.FLOAT)
    not_behind = w.constant("not_behind", ~np.tri(sizes.chunk, k=-1, dtype=bool))
    strict = w.op("Where", not_behind, zero, overlap, name="key_overlap_strict")

    inverse = parts.invert_rows(w, w.op("Neg", strict, name="A"), sizes)
    u = w.op("MatMul", inverse, chunks.v_beta, name="u")
    from_start = parts.decay_from_start(w, log_decay)
    k_decayed = w.op("Mul", chunks.k_beta, from_start, name="k_beta_decayed")
    k_cumdecay = w.op("MatMul", inverse, k_decayed, name="k_cumdecay")

    ahead = w.constant("ahead", ~np.tri(sizes.chunk, dtype=bool))
    zeros = np.zeros((*sizes.state_shape[:2], sizes.chunks, sizes.chunk, sizes.value_dim))
    output = w.constant("zero_output", zeros.astype(np.float32))
    for chunk in range(sizes.chunks):
        this = f"chunk{chunk}"
        q_c = parts.pick_chunk(w, chunks.q, chunk, f"{this}_q")
        k_c = parts.pick_chunk(w, chunks.k, chunk, f"{this}_k")
        u_c = parts.pick_chunk(w, u, chunk, f"{this}_u")
        k_c_t = w.op("Transpose", k_c, name=f"{this}_k_t", perm=[0, 1, 3, 2])
        attention = w.op("MatMul", q_c, k_c_t, name=f"{this}_attention")
        decay_c = parts.pick_chunk(w, decay, chunk, f"{this}_decay_pairs")
        attention = w.op("Mul", attention, decay_c, name=f"{this}_attention_decayed")
        attention = w.op("Where", ahead, zero, attention, name=f"{this}_attention_causal")

        k_cumdecay_c = parts.pick_chunk(w, k_cumdecay, chunk, f"{this}_k_cumdecay")
        predicted = w.op("MatMul", k_cumdecay_c, state, name=f"{this}_predicted")
        v_new = w.op("Sub", u_c, predicted, name=f"{this}_v_new")
        log_decay_c = parts.pick_chunk(w, log_decay, chunk, f"{this}_log_decay")
        start = w.op("Unsqueeze", log_decay_c, w.ints([3]), name=f"{this}_log_decay_column")
        start = w.op("Exp", start, name=f"{this}_decay_from_start")
        q_decayed = w.op("Mul", q_c, start, name=f"{this}_q_decayed")
        from_state = w.op("MatMul", q_decayed, state, name=f"{this}_from_state")
        inside = w.op("MatMul", attention, v_new, name=f"{this}_inside")
        o_c = w.op("Add", from_state, inside, name=f"{this}_o")
        output = parts.put_chunk(w, output, o_c, chunk, sizes)
        if chunk == sizes.chunks - 1 and not final_state:
            break  # an exporter drops what nobody reads
        state = next_state(
            w, state, k_c, v_new, log_decay_c, chunk=chunk, last=chunk == sizes.chunks - 1
        )
    return parts.join_chunks(w, output, sizes, dtype), state if final_state else None


def decay_mask(w: GraphWriter, log_decay: ir.Value) -> ir.Value:
    """exp(G_i - G_j) for j <= i and 0 above the diagonal, [B,H,N,C,C].

    The first cut keeps exp from overflowing, the second removes the ones that exp(0) left.
    """
    to_token = w.op("Unsqueeze", log_decay, w.ints([-1]), name="log_decay_column")
    from_token = w.op("Unsqueeze", log_decay, w.ints([-2]), name="log_decay_row")
    pairs = w.op("Sub", to_token, from_token, name="log_decay_pairs")
    pairs = w.op("Trilu", pairs, w.ints(0), name="log_decay_causal", upper=0)
    ones_ahead = w.op("Exp", pairs, name="decay_with_ones_ahead")
    return w.op("Trilu", ones_ahead, w.ints(0), name="decay", upper=0)


def next_state(
    w: GraphWriter,
    state: ir.Value,
    k: ir.Value,
    v_new: ir.Value,
    log_decay: ir.Value,
    *,
    chunk: int,
    last: bool,
) -> ir.Value:
    """exp(G_last) S + (diag(exp(G_last - G)) K)^T V' of one chunk."""
    this = f"chunk{chunk}"
    log_decay_last = w.op("Gather", log_decay, w.ints(-1), name=f"{this}_log_decay_last", axis=2)
    whole = w.op("Unsqueeze", log_decay_last, w.ints([2, 3]), name=f"{this}_log_decay_square")
    whole = w.op("Exp", whole, name=f"{this}_decay")
    kept = w.op("Mul", state, whole, name=f"{this}_kept")
    rest = w.op("Unsqueeze", log_decay_last, w.ints([2]), name=f"{this}_log_decay_end")
    rest = w.op("Sub", rest, log_decay, name=f"{this}_log_decay_to_end")
    rest = w.op("Exp", rest, name=f"{this}_decay_to_end")
    rest = w.op("Unsqueeze", rest, w.ints([3]), name=f"{this}_decay_to_end_column")
    k = w.op("Mul", k, rest, name=f"{this}_k_decayed")
    k_t = w.op("Transpose", k, name=f"{this}_k_decayed_t", perm=[0, 1, 3, 2])
    written = w.op("MatMul", k_t, v_new, name=f"{this}_written")
    return w.op("Add", kept, written, name="final_state" if last else f"{this}_state")
