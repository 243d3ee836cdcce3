"""scatter-to-concat: scatters that together write a whole tensor become one Concat."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from gdn_ir.emitter import Emitter
from gdn_ir.evaluate import Array
from gdn_ir.facts import open_shape, static_shape
from gdn_ir.graph_view import SCATTER_OPS, is_onnx, only_consumer, scopes
from gdn_ir.matching import Op, OpIndex, Var
from gdn_ir.modular.algebra import CannotDecide
from gdn_ir.modular.points import random_point, random_seed, value_at
from gdn_ir.pass_base import Pass
from gdn_ir.region import OpenRegion, Region, is_constant, replace
from gdn_ir.rewrite import Declined, Rewrite, random_samples
from gdn_ir.wording import counted


@dataclasses.dataclass(frozen=True)
class ScatterToConcat(Pass):
    """A chain of scatters that writes every slice of a constant once becomes one Concat.

    Identity: if the updates u_1, ..., u_N fill disjoint slices along one axis and leave nothing of
    the constant they are written into, the result is Concat(u in the order of the slices). Which
    element comes from where is read off by evaluating the chain on numbered updates. Holds for
    constant indices and no reduction.

    Cost: one copy of the result in place of N. A runtime copies the whole tensor in each scatter.
    """

    name: ClassVar[str] = "scatter-to-concat"

    def rewrites(self, model: ir.Model) -> Iterator[Rewrite | Declined]:
        """Every maximal chain of scatters into a constant."""
        for graph in scopes(model):
            for chain in _chains(OpIndex(graph)):
                yield self._rewrite_chain(model, chain)

    def _rewrite_chain(self, model: ir.Model, chain: Sequence[ir.Node]) -> Rewrite | Declined:
        tail = chain[-1].outputs[0]
        updates = [node.inputs[2] for node in chain]
        pieces = [value for value in updates if value is not None]
        base = chain[0].inputs[0]
        assert base is not None, "a scatter writes into something"
        reason = "the scatters do not write each slice just once"
        # The exporters' [B, H, C, D] pieces get an axis to be written, which a Reshape removes
        # again: without both, the pieces are concatenated along the tokens.
        for inputs, output in ((list(map(_without_axis, pieces)), _reshaped(tail)), (pieces, tail)):
            if missing := open_shape([output, *inputs]):
                reason = missing
                continue
            try:
                # The base is an input too: what it holds does not matter.
                region = Region.between([*inputs, base], [output])
            except OpenRegion as error:
                reason = f"the scatters have no constant indices: {error}"
                continue
            found = _as_concat(region.to_model(model), inputs, output)
            if found is None:
                continue
            axis, order = found
            where = output.name or ""
            build = _concat([inputs[i] for i in order], axis)
            before, after = replace(model, region, build, tag=str(self))
            return Rewrite(
                pass_text=str(self),
                where=where,
                found=f"{counted(len(chain), 'scatter')} into a constant",
                before=before,
                after=after,
                assumes=(),
                samples=partial(random_samples, region.inputs),
            )
        return Declined(str(self), tail.name or "", reason)


def _chains(index: OpIndex) -> Iterator[list[ir.Node]]:
    """Maximal runs of scatters, each writing into the result of the one before, from a constant."""
    inner: set[ir.Node] = set()
    for last in reversed(list(index.of(*SCATTER_OPS))):
        if last in inner:
            continue
        chain = [last]
        while (above := _scatter_into(chain[-1])) is not None:
            chain.append(above)
        inner.update(chain)
        base = chain[-1].inputs[0]
        if base is not None and is_constant(base) and len(set(_updates(chain))) == len(chain):
            yield chain[::-1]


def _scatter_into(node: ir.Node) -> ir.Node | None:
    """The scatter that makes what the node writes into, if nothing else uses that."""
    data = node.inputs[0]
    above = None if data is None else data.producer()
    if data is None or above is None or only_consumer(data) is not node:
        return None
    return above if is_onnx(above) and above.op_type in SCATTER_OPS else None


def _updates(chain: Sequence[ir.Node]) -> list[ir.Value | None]:
    return [node.inputs[2] for node in chain]


def _without_axis(value: ir.Value) -> ir.Value:
    """The value before an Unsqueeze by constant axes, or itself."""
    match = Op("Unsqueeze", Var("x")).match_value(value)
    return match["x"] if match else value


def _reshaped(value: ir.Value) -> ir.Value:
    """The Reshape of a value, if nothing else is done with it, or itself."""
    consumer = only_consumer(value)
    return consumer.outputs[0] if consumer and is_onnx(consumer, "Reshape") else value


def _concat(values: Sequence[ir.Value], axis: int) -> Callable[[Emitter], Sequence[ir.Value]]:
    return lambda emit: [emit.op("Concat", *values, axis=axis)]


def _as_concat(
    piece: ir.Model, inputs: Sequence[ir.Value], output: ir.Value
) -> tuple[int, list[int]] | None:
    """The axis and the order in which concatenating the inputs gives what the piece computes."""
    shape = static_shape(output) or ()
    numbered: list[Array] = []
    start = 1  # 0 is what the base holds
    for value in inputs:
        size = int(np.prod(static_shape(value) or ()))
        numbers = np.arange(start, start + size, dtype=np.float64)
        numbered.append(numbers.reshape(static_shape(value) or ()))
        start += size
    if start - 1 != np.prod(shape) or any(a.ndim != len(shape) for a in numbered):
        return None
    # As elements of the algebra they are moved, whatever their type, and never taken for constants.
    point = random_point(random_seed())
    base = np.zeros(static_shape(piece.graph.inputs[-1]) or ())
    names = [value.name or "" for value in piece.graph.inputs]
    feeds = {n: point.lift(a) for n, a in zip(names, [*numbered, base], strict=True)}
    try:
        result = value_at(piece, point, feeds).residue
    except CannotDecide:
        return None
    for axis in range(len(shape)):
        order = sorted(range(len(numbered)), key=lambda i: _first_index(result, numbered[i], axis))
        if len({(*a.shape[:axis], *a.shape[axis + 1 :]) for a in numbered}) > 1:
            continue
        if np.array_equal(np.concatenate([numbered[i] for i in order], axis), result):
            return axis, order
    return None


def _first_index(result: Array, update: Array, axis: int) -> int:
    """Where along the axis the update's first element ended up; the end if it was overwritten."""
    where = np.argwhere(result == update.flat[0])
    return int(where[0, axis]) if len(where) else result.shape[axis]
