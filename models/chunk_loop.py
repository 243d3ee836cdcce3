"""The loop over the chunks: a copy of its body for each of them, or an ONNX Loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from gdn_ir.models.chunk_form import ChunkForm
from gdn_ir.models.chunk_lengths import ChunkLengths, KnownLengths
from gdn_ir.models.gdn_sizes import GdnSizes
from gdn_ir.models.graph_writer import GraphWriter
from gdn_ir.models.loops import counted_loop

__all__ = ["ChunkLoop", "loop_chunks", "unroll_chunks"]

ChunkLoop = Callable[
    [GraphWriter, ChunkForm, ir.Value, GdnSizes, ChunkLengths, bool],
    tuple[ir.Value, ir.Value | None],
]
"""From the first state [B,H,K,V] to the output [B,H,N,C,V] and, if asked for, the last state."""


def unroll_chunks(
    w: GraphWriter,
    form: ChunkForm,
    state: ir.Value,
    sizes: GdnSizes,
    lengths: ChunkLengths,
    final_state: bool,
) -> tuple[ir.Value, ir.Value | None]:
    """A copy of the step for each chunk, which writes its output into zeros, as torch does."""
    assert isinstance(lengths, KnownLengths)
    chunks = lengths.chunks
    zeros = np.zeros((*sizes.state_shape[:2], chunks, sizes.chunk, sizes.value_dim), np.float32)
    output = w.constant("zero_output", zeros)
    for chunk in range(chunks):
        last = chunk == chunks - 1
        step = form.step(w, w.ints(chunk), state, f"chunk{chunk}")
        output = _put_chunk(w, output, step.output, chunk, sizes)
        if not last:
            state = step.advance(f"chunk{chunk}_state")
        elif final_state:
            state = step.advance("final_state")
    return output, state if final_state else None


def loop_chunks(
    w: GraphWriter,
    form: ChunkForm,
    state: ir.Value,
    sizes: GdnSizes,
    lengths: ChunkLengths,
    final_state: bool,
) -> tuple[ir.Value, ir.Value | None]:
    """A Loop that carries the state and collects the outputs; its body captures the operands."""

    def turn(body: GraphWriter, number: ir.Value, before: ir.Value) -> Sequence[ir.Value]:
        step = form.step(body, number, before, "chunk")
        return [step.advance("chunk_state"), step.output]

    last, outputs = counted_loop(
        w,
        "chunks",
        lengths.count(w),
        state,
        sizes.state_shape,
        turn,
        result="final_state" if final_state else "unused_state",
        collected="chunk_outputs",
        collected_shape=(lengths.dim, *sizes.state_shape[:2], sizes.chunk, sizes.value_dim),
    )
    output = w.op("Transpose", outputs, name="output_chunks", perm=[1, 2, 0, 3, 4])
    return output, last if final_state else None


def _put_chunk(
    w: GraphWriter, whole: ir.Value, value: ir.Value, chunk: int, sizes: GdnSizes
) -> ir.Value:
    """whole[:, :, chunk] = value, with whole [B,H,N,C,V]."""
    update = w.op("Unsqueeze", value, w.ints([2]), name=f"chunk{chunk}_update")
    index_shape = (sizes.batch, sizes.heads, 1, sizes.chunk, sizes.value_dim)
    index = w.shared(f"chunk{chunk}_index", np.full(index_shape, chunk, np.int64))
    return w.op(
        "ScatterElements",
        whole,
        index,
        update,
        name=f"output{chunk}",
        axis=2,
        reduction="none",
    )
