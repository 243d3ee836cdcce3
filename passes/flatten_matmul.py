"""flatten-matmul: a product with a transposed chunk is taken at rank 3, where runtimes fuse it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from gdn_ir.emitter import Emitter
from gdn_ir.facts import static_shape
from gdn_ir.graph_view import is_onnx, scopes
from gdn_ir.matching import OpIndex
from gdn_ir.pass_base import Pass
from gdn_ir.region import Region, replace
from gdn_ir.rewrite import Declined, Rewrite, random_samples


@dataclasses.dataclass(frozen=True)
class FlattenMatMul(Pass):
    """X Y^T of tensors beyond rank 4 becomes the same product of [batch, rows, columns].

    Identity: MatMul and a Transpose of the last two axes act on each matrix alone, so the axes
    before may be one axis. Holds for equal, static leading axes (nothing is broadcast).

    Cost: Reshapes, which move no data. It pays because ONNX Runtime folds a rank-3 transpose into
    the product, but merges the rank-5 one of an export's [B, H, N, C, D] chunks with the
    transposition of heads before it, into one that is slow and folds into nothing: 2.1 of 10.5 ms
    at B = 1, T = 512, H = 8, D = 128 on two cores. NPUs want rank 4 at most anyway.
    """

    name: ClassVar[str] = "flatten-matmul"

    def rewrites(self, model: ir.Model) -> Iterator[Rewrite | Declined]:
        """Every MatMul one operand of which is transposed in its last two axes."""
        for graph in scopes(model):
            for node in OpIndex(graph).of("MatMul"):
                operands = [v for v in node.inputs if v is not None]
                shapes = [static_shape(v) for v in operands]
                if not any(map(_is_transposed, operands)):
                    continue
                if None in shapes or None in map(static_shape, map(_source, operands)):
                    continue
                if len(shapes[0] or ()) > 4 and (shapes[0] or ())[:-2] == (shapes[1] or ())[:-2]:
                    yield self._rewrite(model, node, operands)

    def _rewrite(self, model: ir.Model, node: ir.Node, operands: Sequence[ir.Value]) -> Rewrite:
        inputs = list(dict.fromkeys(map(_source, operands)))
        region = Region.between(inputs, [node.outputs[0]])
        where = node.outputs[0].name or ""
        shape = static_shape(operands[0]) or ()
        columns = (static_shape(operands[1]) or ())[-1]
        out = np.array([*shape[:-1], columns])

        def build(emit: Emitter) -> list[ir.Value]:
            flat = [_flatten(emit, value) for value in operands]
            return [emit.op("Reshape", emit.op("MatMul", *flat), out)]

        before, after = replace(model, region, build, tag=str(self))
        return Rewrite(
            pass_text=str(self),
            where=where,
            found=f"product with a transposed operand at rank {len(shape)}",
            before=before,
            after=after,
            assumes=(),
            samples=lambda: random_samples(inputs),
        )


def _is_transposed(value: ir.Value) -> bool:
    node = value.producer()
    if node is None or not is_onnx(node, "Transpose") or "perm" not in node.attributes:
        return False
    perm = list(node.attributes["perm"].as_ints())
    rank = len(perm)
    return rank > 2 and perm == [*range(rank - 2), rank - 1, rank - 2]


def _source(value: ir.Value) -> ir.Value:
    """What the Transpose of the last two axes is taken of, or the value if there is none."""
    node = value.producer() if _is_transposed(value) else None
    return value if node is None or node.inputs[0] is None else node.inputs[0]


def _flatten(emit: Emitter, value: ir.Value) -> ir.Value:
    source = _source(value)
    shape = static_shape(source) or ()
    flat = emit.op("Reshape", source, np.array([-1, *shape[-2:]]))
    return emit.op("Transpose", flat, perm=[0, 2, 1]) if _is_transposed(value) else flat
