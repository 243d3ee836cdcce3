"""flatten-matmul: a product with a transposed chunk is taken at rank 3, where runtimes fuse it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from gdn_ir.emitter import Emitter
from gdn_ir.graph_view import is_onnx, scopes
from gdn_ir.matching import OpIndex
from gdn_ir.pass_base import Pass
from gdn_ir.region import Region, replace
from gdn_ir.rewrite import Declined, Rewrite, random_samples


@dataclasses.dataclass(frozen=True)
class FlattenMatMul(Pass):
    """X Y^T of tensors beyond rank 4 becomes the same product of [batch, rows, columns].

    Identity: MatMul and a Transpose of the last two axes act on each matrix alone, so the axes
    before may be one axis. Holds for equal leading axes (nothing is broadcast), of which one may
    be open, if it has one name in both operands.

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
                if any(map(_is_transposed, operands)) and _are_stacks(operands):
                    yield self._rewrite(model, node, operands)

    def _rewrite(self, model: ir.Model, node: ir.Node, operands: Sequence[ir.Value]) -> Rewrite:
        inputs = list(dict.fromkeys(map(_source, operands)))
        region = Region.between(inputs, [node.outputs[0]])
        where = node.outputs[0].name or ""
        shape, columns = _sizes(operands[0]), _sizes(operands[1])[-1]
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


def _are_stacks(operands: Sequence[ir.Value]) -> bool:
    """Whether both are matrices of known size beyond rank 4, as many, one axis open at most."""
    all_known = (*operands, *map(_source, operands))
    if any(value.shape is None or len(value.shape) < 5 for value in all_known):
        return False
    for value in all_known:
        open_axes = _sizes(value).count(-1)
        if open_axes > 1 or -1 in _sizes(value)[-2:] or (open_axes and 0 in _sizes(value)):
            return False
    first, second = operands
    assert first.shape is not None and second.shape is not None, "checked above"
    pairs = list(zip(first.shape[:-2], second.shape[:-2], strict=False))
    return len(first.shape) == len(second.shape) and all(map(_is_one_size, pairs))


def _is_one_size(pair: tuple[int | ir.SymbolicDim, int | ir.SymbolicDim]) -> bool:
    """Whether two sizes are known to be equal: one number, or one name."""
    first, second = pair
    return first == second and (isinstance(first, int) or first.value is not None)


def _sizes(value: ir.Value) -> list[int]:
    """The value's shape, -1 where it is open."""
    return [size if isinstance(size, int) else -1 for size in value.shape or ()]


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
    flat = emit.op("Reshape", source, np.array([-1, *_sizes(source)[-2:]]))
    return emit.op("Transpose", flat, perm=[0, 2, 1]) if _is_transposed(value) else flat
