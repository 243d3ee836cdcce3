"""The older chunk form: exp between two triangle cuts, then fill with zeros.

It is what transformers had up to 5.15 and what many copies of it still have: the attention inside a
chunk and every exp of the chunk loop are made anew in each step. It also normalises q and k before
it casts them to float32.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from gdn_ir.models import chunk_parts as parts
from gdn_ir.models.chunk_form import Invert, Step
from gdn_ir.models.chunk_lengths import ChunkLengths
from gdn_ir.models.gdn_sizes import GdnSizes
from gdn_ir.models.graph_writer import GraphWriter

__all__ = ["FillZero"]


@dataclasses.dataclass(frozen=True)
class FillZero:
    """What the loop over the chunks reads, made for all chunks at once.

    u [B,H,N,C,V], k_cumdecay, q and k [B,H,N,C,K], log_decay [B,H,N,C], decay [B,H,N,C,C]; `ahead`
    and `zero` are what each chunk fills its attention with.
    """

    u: ir.Value
    k_cumdecay: ir.Value
    q: ir.Value
    k: ir.Value
    log_decay: ir.Value
    decay: ir.Value
    ahead: ir.Value
    zero: ir.Value

    @classmethod
    def prepare(
        cls,
        w: GraphWriter,
        x: parts.Operands,
        sizes: GdnSizes,
        lengths: ChunkLengths,
        *,
        invert: Invert,
        l2norm: bool,
        dtype: ir.DataType,
    ) -> FillZero:
        """From the rule's operands [B,T,...], of type `dtype`."""
        x = parts.repeat_key_heads(w, x, sizes)
        if l2norm:
            q = parts.l2_normalise(w, x.q, "q", dtype)
            x = x._replace(q=q, k=parts.l2_normalise(w, x.k, "k", dtype))
        x = parts.pad_to_chunks(w, parts.heads_first(w, x, dtype), lengths)
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

        shape = (*sizes.state_shape[:2], lengths.dim, sizes.chunk, sizes.chunk)
        inverse = invert(w, w.op("Neg", strict, name="A"), shape)
        u = w.op("MatMul", inverse, chunks.v_beta, name="u")
        from_start = parts.decay_from_start(w, log_decay)
        k_decayed = w.op("Mul", chunks.k_beta, from_start, name="k_beta_decayed")
        k_cumdecay = w.op("MatMul", inverse, k_decayed, name="k_cumdecay")
        ahead = w.constant("ahead", ~np.tri(sizes.chunk, dtype=bool))
        return cls(u, k_cumdecay, chunks.q, chunks.k, log_decay, decay, ahead, zero)

    def step(self, w: GraphWriter, chunk: ir.Value, state: ir.Value, this: str) -> Step:
        """As `ChunkForm.step`."""
        q = parts.pick_chunk(w, self.q, chunk, f"{this}_q")
        k = parts.pick_chunk(w, self.k, chunk, f"{this}_k")
        u = parts.pick_chunk(w, self.u, chunk, f"{this}_u")
        k_t = w.op("Transpose", k, name=f"{this}_k_t", perm=[0, 1, 3, 2])
        attention = w.op("MatMul", q, k_t, name=f"{this}_attention")
        decay = parts.pick_chunk(w, self.decay, chunk, f"{this}_decay_pairs")
        attention = w.op("Mul", attention, decay, name=f"{this}_attention_decayed")
        attention = w.op("Where", self.ahead, self.zero, attention, name=f"{this}_attention_causal")

        k_cumdecay = parts.pick_chunk(w, self.k_cumdecay, chunk, f"{this}_k_cumdecay")
        predicted = w.op("MatMul", k_cumdecay, state, name=f"{this}_predicted")
        v_new = w.op("Sub", u, predicted, name=f"{this}_v_new")
        log_decay = parts.pick_chunk(w, self.log_decay, chunk, f"{this}_log_decay")
        start = w.op("Unsqueeze", log_decay, w.ints([3]), name=f"{this}_log_decay_column")
        start = w.op("Exp", start, name=f"{this}_decay_from_start")
        q_decayed = w.op("Mul", q, start, name=f"{this}_q_decayed")
        from_state = w.op("MatMul", q_decayed, state, name=f"{this}_from_state")
        inside = w.op("MatMul", attention, v_new, name=f"{this}_inside")

        def advance(name: str) -> ir.Value:
            return next_state(w, state, k, v_new, log_decay, this, name)

        return Step(w.op("Add", from_state, inside, name=f"{this}_o"), advance)


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
    this: str,
    name: str,
) -> ir.Value:
    """exp(G_last) S + (diag(exp(G_last - G)) K)^T V' of one chunk."""
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
    return w.op("Add", kept, written, name=name)
