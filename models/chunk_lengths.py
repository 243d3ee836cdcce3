"""How many tokens fill the last chunk, and how many chunks there are: known, or to be measured."""

from __future__ import annotations

import onnx_ir as ir

from gdn_ir.models.gdn_sizes import GdnSizes
from gdn_ir.models.graph_writer import GraphWriter

__all__ = ["ChunkLengths", "KnownLengths", "MeasuredLengths", "chunk_lengths"]


class KnownLengths:
    """Lengths of a static number of tokens: all of it is constants."""

    def __init__(self, seq: int, chunk: int) -> None:
        self._seq = seq
        self._fill = -seq % chunk
        self.chunks = (seq + self._fill) // chunk

    @property
    def dim(self) -> int:
        """The number of chunks, as a dimension."""
        return self.chunks

    def count(self, w: GraphWriter) -> ir.Value:
        """The number of chunks, the filled one included, rank 0."""
        return w.ints(self.chunks)

    def pads(self, w: GraphWriter, rank: int) -> ir.Value:
        """The pads that fill axis 2; zeros are kept, as exporters keep them."""
        at_the_end = [0] * rank
        at_the_end[2] = self._fill
        return w.ints([0] * rank + at_the_end)

    def cut(self, w: GraphWriter, x: ir.Value) -> ir.Value:
        """x [B,H,N*C,V] without the filled end, [B,H,T,V]."""
        if not self._fill:
            return x
        bounds = [w.ints([n]) for n in (0, self._seq, 2, 1)]
        return w.op("Slice", x, *bounds, name="output_cut")


class MeasuredLengths:
    """Lengths that the graph computes from the shape of its input `g` [B,T,H].

    With T tokens, (C - T % C) % C of them are filled in, and that makes (T + fill) / C chunks.
    """

    dim = "N"

    def __init__(self, w: GraphWriter, g: ir.Value, chunk: int) -> None:
        size = w.ints(chunk)
        tokens = w.op("Gather", w.op("Shape", g, name="g_shape"), w.ints(1), name="seq", axis=0)
        over = w.op("Mod", tokens, size, name="seq_over")
        fill = w.op("Mod", w.op("Sub", size, over, name="seq_lacks"), size, name="seq_fill")
        self._count = w.op("Div", w.op("Add", tokens, fill, name="seq_filled"), size, name="chunks")
        self._tokens = w.op("Unsqueeze", tokens, w.ints([0]), name="seq_vector")
        self._fill = w.op("Unsqueeze", fill, w.ints([0]), name="seq_fill_vector")
        self._pads: dict[int, ir.Value] = {}

    def count(self, w: GraphWriter) -> ir.Value:
        """As `KnownLengths.count`."""
        return self._count

    def pads(self, w: GraphWriter, rank: int) -> ir.Value:
        """As `KnownLengths.pads`; made once for each rank."""
        if rank not in self._pads:
            parts = [w.ints([0] * (rank + 2)), self._fill]
            if rank > 3:
                parts.append(w.ints([0] * (rank - 3)))
            self._pads[rank] = w.op("Concat", *parts, name=f"pads_rank{rank}", axis=0)
        return self._pads[rank]

    def cut(self, w: GraphWriter, x: ir.Value) -> ir.Value:
        """As `KnownLengths.cut`; there may be nothing to cut."""
        bounds = [w.ints([0]), self._tokens, w.ints([2]), w.ints([1])]
        return w.op("Slice", x, *bounds, name="output_cut")


ChunkLengths = KnownLengths | MeasuredLengths


def chunk_lengths(w: GraphWriter, g: ir.Value, sizes: GdnSizes) -> ChunkLengths:
    """The lengths of a rule with operand g [B,T,H]; appends nodes only where T is open."""
    if sizes.seq is None:
        return MeasuredLengths(w, g, sizes.chunk)
    return KnownLengths(sizes.seq, sizes.chunk)
