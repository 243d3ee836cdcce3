"""How the gated delta rule is written down: which loops, which inverse, which masks."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection
from typing import Literal, NamedTuple

import onnx_ir as ir

from gdn_ir.models import chunk_parts as parts
from gdn_ir.models.block_inverse import BLOCK, invert_blocks, splits_into_blocks
from gdn_ir.models.chunk_form import Invert
from gdn_ir.models.chunk_lengths import chunk_lengths
from gdn_ir.models.chunk_loop import ChunkLoop, loop_chunks, unroll_chunks
from gdn_ir.models.fill_inf import FillInf
from gdn_ir.models.fill_zero import FillZero
from gdn_ir.models.gdn_sizes import GdnSizes
from gdn_ir.models.graph_writer import GraphWriter
from gdn_ir.models.row_inverse import invert_rows_looped, invert_rows_unrolled
from gdn_ir.models.token_scan import scan_tokens

__all__ = ["Form", "Inverse", "Mask", "RuleForm"]

Form = Literal["unrolled", "loop", "scan"]
Mask = Literal["fill-zero", "fill-inf"]
Inverse = Literal["rows", "blocks"]


class _Loops(NamedTuple):
    invert_rows: Invert
    chunks: ChunkLoop


_CHUNK_LOOPS = {
    "unrolled": _Loops(invert_rows_unrolled, unroll_chunks),
    "loop": _Loops(invert_rows_looped, loop_chunks),
}
_INVERSES = ("rows", "blocks")
_MASKS: dict[str, type[FillZero] | type[FillInf]] = {"fill-zero": FillZero, "fill-inf": FillInf}


@dataclasses.dataclass(frozen=True)
class RuleForm:
    """One way to write the rule.

    Attributes:
        form: `unrolled` copies the body of each loop for one number of tokens, `loop` leaves ONNX
            Loops, `scan` goes token by token in an ONNX Scan.
        mask: of the chunk forms, `fill-inf` (the default) or `fill-zero`; see the modules of these
            names.
        inverse: of the chunk forms, `rows` (the default), one serial chain of C - 1 row steps, or
            `blocks`, C / 16 chains of 15 steps each and the merges that build the whole.
        chunk: C, tokens in a chunk, at least 2; 64 by default. With `blocks`, 16 times a power of
            two.

    What is None gets its default; `scan` has neither chunks nor masks nor an inverse.
    Raises ValueError, naming the argument and what it may be.
    """

    form: Form
    mask: Mask | None = None
    inverse: Inverse | None = None
    chunk: int | None = None

    def __post_init__(self) -> None:
        _check_choice("form", self.form, (*_CHUNK_LOOPS, "scan"))
        if self.form == "scan":
            self._check_nothing_of_chunks()
        if self.mask is not None:
            _check_choice("mask", self.mask, _MASKS)
        if self.inverse is not None:
            _check_choice("inverse", self.inverse, _INVERSES)

    def _check_nothing_of_chunks(self) -> None:
        for field in dataclasses.fields(self)[1:]:
            value = getattr(self, field.name)
            if value is not None:
                raise ValueError(
                    f"{field.name} is {value!r}, but form scan goes token by token; "
                    f"leave {field.name} out, or take form loop"
                )

    def sizes(
        self,
        *,
        batch: int,
        seq: int | None,
        heads: int,
        key_heads: int | None,
        head_dim: int,
        value_dim: int | None,
    ) -> GdnSizes:
        """The sizes of a rule in this form, with `key_heads` and `value_dim` as `heads` and
        `head_dim` where they are None.

        Raises ValueError where this form cannot have them, naming the argument and the remedy.
        """
        sizes = GdnSizes(
            batch=batch,
            seq=seq,
            heads=heads,
            key_heads=heads if key_heads is None else key_heads,
            head_dim=head_dim,
            value_dim=head_dim if value_dim is None else value_dim,
            **({} if self.chunk is None else {"chunk": self.chunk}),
        )
        if self.inverse == "blocks" and not splits_into_blocks(sizes.chunk):
            raise ValueError(
                f"chunk is {sizes.chunk}; with inverse blocks it must be {BLOCK} times a power of "
                f"two, such as {4 * BLOCK} or {8 * BLOCK}"
            )
        if seq is None and self.form == "unrolled":
            raise ValueError("seq is None; form unrolled needs a number, loop and scan do not")
        return sizes

    def write(
        self,
        w: GraphWriter,
        x: parts.Operands,
        state: ir.Value,
        sizes: GdnSizes,
        *,
        l2norm: bool,
        dtype: ir.DataType,
        final_state: bool,
    ) -> tuple[ir.Value, ir.Value | None]:
        """Appends the rule.

        Args:
            w: writes the graph.
            x: the operands, [B,T,...] as in `gdn_ir.models.reference`, of type `dtype`; any of them
                may be float32 already, and says so.
            state: [B,H,K,V] in float32.
            sizes: from `sizes`.
            l2norm: whether q and k are normalised here.
            dtype: of the operands and the output; everything between is float32.
            final_state: whether anybody reads the last state.

        Returns o [B,T,H,V] and, if asked for, the last state.
        """
        if self.form == "scan":
            return scan_tokens(
                w, x, state, sizes, l2norm=l2norm, dtype=dtype, final_state=final_state
            )
        loops = _CHUNK_LOOPS[self.form]
        invert = loops.invert_rows
        if self.inverse == "blocks":
            invert = functools.partial(invert_blocks, invert_rows=loops.invert_rows)
        lengths = chunk_lengths(w, x.g, sizes)
        chunks = _MASKS[self.mask or "fill-inf"].prepare(
            w, x, sizes, lengths, invert=invert, l2norm=l2norm, dtype=dtype
        )
        output, last = loops.chunks(w, chunks, state, sizes, lengths, final_state)
        return parts.join_chunks(w, output, sizes, lengths, dtype), last


def _check_choice(name: str, value: object, choices: Collection[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(choices)}")
