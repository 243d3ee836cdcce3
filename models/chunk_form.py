"""What the older and today's source text of the chunk form have in common as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import onnx_ir as ir

from gdn_ir.models.graph_writer import Dim, GraphWriter

__all__ = ["ChunkForm", "Invert", "Step"]

Invert = Callable[[GraphWriter, ir.Value, Sequence[Dim]], ir.Value]
"""Appends (I - A)^-1 of the strictly lower A, given with its shape [B,H,N,C,C]."""


class Step(NamedTuple):
    """One chunk: its output [B,H,C,V], and what appends the next state under a given name.

    `advance` is left out after the last chunk if nobody asks for the final state: an exporter drops
    what nobody reads.
    """

    output: ir.Value
    advance: Callable[[str], ir.Value]


class ChunkForm(Protocol):
    """The operands of the loop over the chunks, prepared for all chunks at once."""

    def step(self, w: GraphWriter, chunk: ir.Value, state: ir.Value, this: str) -> Step:
        """Appends what the loop does for one chunk.

        `chunk` is its number (rank 0), `state` [B,H,K,V] what the chunks before it left; names
        begin with `this`.
        """
