"""The chunk form that transformers has had since 5.17: fill with -inf, then exp, once.

All decays and the attention inside the chunks are made for all chunks at once; the loop over the
chunks holds only what the state needs.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gdn_ir.models import chunk_parts as parts
from gdn_ir.models.gdn_sizes import GdnSizes
from gdn_ir.models.graph_writer import GraphWriter

__all__ = ["fill_inf_rule"]


def fill_inf_rule(
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
    x = parts.heads_first(w, parts.repeat_key_heads(w, x, sizes), dtype)
    if l2norm:
        q = parts.l2_normalise(w, x.q, "q", ir.DataType.FLOAT)
        x = x._replace(q=q, k=parts.l2_normalise(w, x.k, "k", ir.DataType.FLOAT))
    x = parts.pad_to_chunks(w, x._replace(q=parts.scale_query(w, x.q, sizes)), sizes)
    chunks = parts.split_into_chunks(w, x, sizes)

    log_decay = w.op("CumSum", chunks.g, w.ints(3), name="log_decay", exclusive=0, reverse=0)
    decay = decay_mask(w, log_decay, sizes)
    k_t = w.op("Transpose", chunks.k, name="k_t", perm=[0, 1, 2, 4, 3])
    overlap = w.op("MatMul", chunks.k_beta, k_t, name="key_overlap")
    overlap = w.op("Mul", overlap, decay, name="key_overlap_decayed")
    attention = w.op("MatMul", chunks.q, k_t, name="attention")
    attention = w.op("Mul", attention, decay, name="attention_decayed")
    from_start = parts.decay_from_start(w, log_decay)
    k_decayed = w.op("Mul", chunks.k_beta, from_start, name="k_beta_decayed")

    strict = w.op("Trilu", overlap, w.ints(-1), name="key_overlap_strict", upper=0)
    inverse = parts.invert_rows(w, w.op("Neg", strict, name="A"), sizes)
    u = w.op("MatMul", inverse, chunks.v_beta, name="u")
    k_cumdecay = w.op("MatMul", inverse, k_decayed, name="k_cumdecay")

    q = w.op("Mul", chunks.q, from_start, name="q_decayed")
    k, chunk_decay = decay_to_end(w, chunks.k, log_decay)
    zeros = np.zeros((*sizes.state_shape[:2], sizes.chunks, sizes.chunk, sizes.value_dim))
    output = w.constant("zero_output", zeros.astype(np.float32))
    for chunk in range(sizes.chunks):
        this = f"chunk{chunk}"
        u_c = parts.pick_chunk(w, u, chunk, f"{this}_u")
        k_cumdecay_c = parts.pick_chunk(w, k_cumdecay, chunk, f"{this}_k_cumdecay")
        predicted = w.op("MatMul", k_cumdecay_c, state, name=f"{this}_predicted")
        v_new = w.op("Sub", u_c, predicted, name=f"{this}_v_new")
        q_c = parts.pick_chunk(w, q, chunk, f"{this}_q")
        from_state = w.op("MatMul", q_c, state, name=f"{this}_from_state")
        attention_c = parts.pick_chunk(w, attention, chunk, f"{this}_attention")
        inside = w.op("MatMul", attention_c, v_new, name=f"{this}_inside")
        o_c = w.op("Add", from_state, inside, name=f"{this}_o")
        output = parts.put_chunk(w, output, o_c, chunk, sizes)
        if chunk == sizes.chunks - 1 and not final_state:
            break  # an exporter drops what nobody reads
        decay_c = parts.pick_chunk(w, chunk_decay, chunk, f"{this}_decay")
        kept = w.op("Mul", state, decay_c, name=f"{this}_kept")
        k_c = parts.pick_chunk(w, k, chunk, f"{this}_k")
        k_c_t = w.op("Transpose", k_c, name=f"{this}_k_t", perm=[0, 1, 3, 2])
        written = w.op("MatMul", k_c_t, v_new, name=f"{this}_written")
        name = "final_state" if chunk == sizes.chunks - 1 else f"{this}_state"
        state = w.op("Add", kept, written, name=name)
    return parts.join_chunks(w, output, sizes, dtype), state if final_state else None


def decay_mask(w: GraphWriter, log_decay: ir.Value, sizes: GdnSizes) -> ir.Value:
    """exp(G_i - G_j) for j <= i and 0 above the diagonal, [B,H,N,C,C]."""
    to_token = w.op("Unsqueeze", log_decay, w.ints([4]), name="log_decay_column")
    from_token = w.op("Unsqueeze", log_decay, w.ints([3]), name="log_decay_row")
    pairs = w.op("Sub", to_token, from_token, name="log_decay_pairs")
    ahead = w.constant("ahead", ~np.tri(sizes.chunk, dtype=bool))
    minus_inf = w.constant("minus_inf", np.array(-np.inf, np.float32))
    masked = w.op("Where", ahead, minus_inf, pairs, name="log_decay_causal")
    return w.op("Exp", masked, name="decay")


def decay_to_end(w: GraphWriter, k: ir.Value, log_decay: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Keys decayed from their token to the chunk's end, and the whole chunk's decay [B,H,N,1,1]."""
    last_bounds = [w.ints([n]) for n in (-1, np.iinfo(np.int64).max, 3, 1)]
    last = w.op("Slice", log_decay, *last_bounds, name="log_decay_last")
    rest = w.op("Sub", last, log_decay, name="log_decay_to_end")
    rest = w.op("Exp", rest, name="decay_to_end")
    rest = w.op("Unsqueeze", rest, w.ints([-1]), name="decay_to_end_column")
    k = w.op("Mul", k, rest, name="k_decayed")
    whole = w.op("Gather", log_decay, w.ints(-1), name="log_decay_chunk", axis=3)
    whole = w.op("Exp", whole, name="decay_chunk")
    return k, w.op("Unsqueeze", whole, w.ints([3, 4]), name="decay_chunk_square")
