"""Tensors side by side along an axis, and apart again, without copies that undo one another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from gdn_ir.emitter import Emitter, Operand
from gdn_ir.evaluate import Array
from gdn_ir.graph_view import has_parameters, is_onnx, only_consumer, operands
from gdn_ir.matching import array_of
from gdn_ir.passes._tail_local import tail_of
from gdn_ir.region import is_constant


def agree(values: Sequence[ir.Value], *, but: int | None = None) -> bool:
    """Whether types and shapes are known to be equal, but for an axis counted from the end.

    Open dimensions are known to be equal where they have one name.
    """
    first = values[0]
    if first.shape is None or first.dtype is None:
        return False
    rank = len(first.shape)
    axes = [axis for axis in range(rank) if axis - rank != but]
    for value in values:
        if value.dtype != first.dtype or value.shape is None or len(value.shape) != rank:
            return False
        for axis in axes:
            size = value.shape[axis]
            if size != first.shape[axis] or (isinstance(size, ir.SymbolicDim) and not size.value):
                return False
    return True


def sources(values: Sequence[ir.Value], width: int) -> list[ir.Value]:
    """What `join` puts side by side to put the values there, each `width` wide.

    That is the operand of a Split that makes just these values, and those of Concats.
    """
    if any(tail_of(value) != width for value in values):
        return list(values)  # they are widened first
    split = values[0].producer()
    if split is not None and _splits_tail(split) and list(split.outputs) == list(values):
        return [value for value in split.inputs[:1] if value is not None]
    found: list[ir.Value] = []
    for value in values:
        node = value.producer()
        joins = node is not None and is_onnx(node, "Concat") and _is_along_tail(node)
        found += operands(node) if node is not None and joins else [value]
    return found


def join(emit: Emitter, values: Sequence[ir.Value], width: int) -> Operand:
    """The values along the tail, each broadcast to the width; of constants, a constant."""
    arrays = [array_of(value) for value in values]
    known = [_widened(array, width) for array in arrays if array is not None]
    if len(known) == len(values):
        return np.concatenate(known, axis=-1)
    parts = sources(values, width)
    if parts == list(values):
        parts = [
            value if tail_of(value) == width else _expand(emit, value, width) for value in parts
        ]
    return parts[0] if len(parts) == 1 else emit.op("Concat", *parts, axis=-1)


def _widened(array: Array, width: int) -> Array:
    widened: Array = np.broadcast_to(array, (*array.shape[:-1], width))
    return widened


def _expand(emit: Emitter, value: ir.Value, width: int) -> ir.Value:
    ones = [1] * (len(value.shape or ()) - 1)
    return emit.op("Expand", value, np.array([*ones, width]))


def ends(values: Sequence[ir.Value]) -> list[ir.Value]:
    """What the values are cut into along the tail, if nothing else is done with them; or they."""
    found: list[ir.Value] = []
    for value in values:
        split = only_consumer(value)
        cut = split is not None and _splits_tail(split)
        found += split.outputs if split is not None and cut else [value]
    return found


def cut(emit: Emitter, value: ir.Value, sizes: Sequence[int], axis: int = -1) -> list[ir.Value]:
    """Apart again; each piece has a size."""
    return list(emit.ops("Split", value, np.array(sizes), outputs=len(sizes), axis=axis))


def needs(values: Iterable[ir.Value], nodes: set[ir.Node], graph: ir.Graph) -> ir.Value | None:
    """One of the values that needs what one of the nodes makes, or None."""
    stack = [(value, value) for value in values]
    visited = {value for value, _ in stack}
    while stack:
        value, origin = stack.pop()
        node = value.producer()
        if node is None or node.graph is not graph:
            continue
        if node in nodes:
            return origin
        above = [v for v in operands(node) if v not in visited]
        visited.update(above)
        stack += [(v, origin) for v in above]
    return None


def _splits_tail(node: ir.Node) -> bool:
    if not is_onnx(node, "Split") or not _is_along_tail(node):
        return False
    # Sizes that are computed would be one more input of the region, for pieces of unknown size.
    given = all(value is None or is_constant(value) for value in node.inputs[1:])
    return given and None not in map(tail_of, node.outputs)


def _is_along_tail(node: ir.Node) -> bool:
    attr, value = node.attributes.get("axis"), node.inputs[0]
    if attr is None or has_parameters(node) or value is None or value.shape is None:
        return False
    return attr.as_int() in (-1, len(value.shape) - 1)
