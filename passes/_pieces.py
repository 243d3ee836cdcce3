"""Equal pieces of a tensor along an axis, one for each step; for hoist-chunk-work."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from gdn_ir.emitter import Emitter
from gdn_ir.facts import static_shape
from gdn_ir.graph_view import has_parameters, is_onnx
from gdn_ir.matching import array_of
from gdn_ir.passes._batched import to_front
from gdn_ir.structural_hash import combine


@dataclasses.dataclass(frozen=True)
class Cut:
    """A tensor cut along an axis into pieces of one size.

    Attributes:
        source: what is cut.
        axis: along which.
        count: the number of pieces.
        width: of a piece along the axis; 0 where it has no such axis, as a Gather takes it away.
    """

    source: ir.Value
    axis: int
    count: int
    width: int

    @property
    def digest(self) -> str:
        """Equal for pieces of one cut."""
        return combine("piece", str(id(self.source)), f"{self.axis}/{self.count}/{self.width}")

    def side_by_side(self, emit: Emitter) -> ir.Value:
        """All pieces along a new first axis."""
        value, dims = self.source, list(self.source.shape or ())
        if self.width:
            dims[self.axis : self.axis + 1] = [self.count, self.width]
            value = emit.op("Reshape", value, np.array(dims))
        result = to_front(emit, value, self.axis, len(dims))
        if result is not self.source:
            count = dims.pop(self.axis)
            known = [size if isinstance(size, int) else None for size in (count, *dims)]
            result.type, result.shape = self.source.type, ir.Shape(known)
        return result


def cut_by(node: ir.Node) -> tuple[Cut, int] | None:
    """A cut, and the number of the piece that is the node's (first) output; None if it is none."""
    if not is_onnx(node) or has_parameters(node) or node.op_type not in _READERS:
        return None
    source = node.inputs[0]
    if source is None or not source.shape:
        return None
    found = _READERS[node.op_type](node, source, len(source.shape))
    if found is None or found[0].count < 2:
        return None
    # Windows are made by a Reshape, which must know all sizes.
    shape = static_shape(source)
    return found if not found[0].width or (shape is not None and all(shape)) else None


def _gathered(node: ir.Node, source: ir.Value, rank: int) -> tuple[Cut, int] | None:
    axis, index = _axis(node, rank), array_of(node.inputs[1])
    size = source.shape[axis] if source.shape is not None else None
    if index is None or index.size != 1 or index.ndim > 1 or not isinstance(size, int) or not size:
        return None
    return Cut(source, axis, size, index.ndim), int(index.item()) % size


def _sliced(node: ir.Node, source: ir.Value, rank: int) -> tuple[Cut, int] | None:
    bounds = [array_of(value) for value in node.inputs[1:]]
    if len(bounds) < 3 or any(array is None or array.size != 1 for array in bounds):
        return None
    start, end, axis, *stride = (int(array.item()) for array in bounds if array is not None)
    axis %= rank
    size = source.shape[axis] if source.shape is not None else None
    if not isinstance(size, int) or (stride and stride != [1]):
        return None
    window = range(*slice(start, end).indices(size))
    width = len(window)
    if not width or size % width or window.start % width:
        return None
    return Cut(source, axis, size // width, width), window.start // width


def _split(node: ir.Node, source: ir.Value, rank: int) -> tuple[Cut, int] | None:
    axis = _axis(node, rank)
    sizes = {None if v.shape is None else v.shape[axis] for v in node.outputs}
    width = sizes.pop()
    if sizes or not isinstance(width, int) or not width:
        return None
    return Cut(source, axis, len(node.outputs), width), 0


def _axis(node: ir.Node, rank: int) -> int:
    attr = node.attributes.get("axis")
    return (0 if attr is None else attr.as_int()) % rank


_READERS = {"Gather": _gathered, "Slice": _sliced, "Split": _split}
