"""The chunk form that transformers has had since 5.17: fill with -inf, then exp, once.

All decays and the attention inside the chunks are made for all chunks at once; the loop over the
chunks holds only what the state needs.
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

__all__ = ["FillInf"]


@dataclasses.dataclass(frozen=True)
class FillInf:
    """What the loop over the chunks reads, made for all chunks at once.

    u [B,H,N,C,V], k_cumdecay, q and k [B,H,N,C,K], attention [B,H,N,C,C], decay [B,H,N,1,1].
    """

    u: ir.Value
    k_cumdecay: ir.Value
    q: ir.Value
    attention: ir.Value
    k: ir.Value
    decay: ir.Value

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
    ) -> FillInf:
        """From the rule's operands [B,T,...], of type `dtype`."""
        x = parts.heads_first(w, parts.repeat_key_heads(w, x, sizes), dtype)
        if l2norm:
            q = parts.l2_normalise(w, x.q, "q", ir.DataType.FLOAT)
            x = x._replace(q=q, k=parts.l2_normalise(w, x.k, "k", ir.DataType.FLOAT))
        x = parts.pad_to_chunks(w, x._replace(q=parts.scale_query(w, x.q, sizes)), lengths)
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
        shape = (*sizes.state_shape[:2], lengths.dim, sizes.chunk, sizes.chunk)
        inverse = invert(w, w.op("Neg", strict, name="A"), shape)
        u = w.op("MatMul", inverse, chunks.v_beta, name="u")
        k_cumdecay = w.op("MatMul", inverse, k_decayed, name="k_cumdecay")

        q = w.op("Mul", chunks.q, from_start, name="q_decayed")
        k, chunk_decay = decay_to_end(w, chunks.k, log_decay)
        return cls(u=u, k_cumdecay=k_cumdecay, q=q, attention=attention, k=k, decay=chunk_decay)

    def step(self, w: GraphWriter, chunk: ir.Value, state: ir.Value, this: str) -> Step:
        """As `ChunkForm.step`."""
        u = parts.pick_chunk(w, self.u, chunk, f"{this}_u")
        k_cumdecay = parts.pick_chunk(w, self.k_cumdecay, chunk, f"{this}_k_cumdecay")
        predicted = w.op("MatMul", k_cumdecay, state, name=f"{this}_predicted")
        v_new = w.op("Sub", u, predicted, name=f"{this}_v_new")
        q = parts.pick_chunk(w, self.q, chunk, f"{this}_q")
        from_state = w.op("MatMul", q, state, name=f"{this}_from_state")
        attention = parts.pick_chunk(w, self.attention, chunk, f"{this}_attention")
        inside = w.op("MatMul", attention, v_new, name=f"{this}_inside")

        def advance(name: str) -> ir.Value:
            decay = parts.pick_chunk(w, self.decay, chunk, f"{this}_decay")
            kept = w.op("Mul", state, decay, name=f"{this}_kept")
            k = parts.pick_chunk(w, self.k, chunk, f"{this}_k")
            k_t = w.op("Transpose", k, name=f"{this}_k_t", perm=[0, 1, 3, 2])
            written = w.op("MatMul", k_t, v_new, name=f"{this}_written")
            return w.op("Add", kept, written, name=name)

        return Step(w.op("Add", from_state, inside, name=f"{this}_o"), advance)


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
