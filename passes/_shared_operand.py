"""MatMuls that share an operand: L R1, L R2 is L [R1, R2]; L1 R, L2 R is [L1; L2] R."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from gdn_ir.emitter import Emitter, Operand
from gdn_ir.facts import static_shape
from gdn_ir.matching import OpIndex, array_of
from gdn_ir.passes._side_by_side import agree, cut, needs
from gdn_ir.passes._tail_local import tail_of
from gdn_ir.region import is_constant


@dataclasses.dataclass(frozen=True)
class Products:
    """MatMuls of one scope with one operand in common.

    Attributes:
        nodes: the MatMuls, in order.
        shared: 0 if they share the left operand, 1 if the right one.
    """

    nodes: tuple[ir.Node, ...]
    shared: int

    @property
    def results(self) -> list[ir.Value]:
        """What they make."""
        return [node.outputs[0] for node in self.nodes]

    @property
    def operands(self) -> list[ir.Value]:
        """The operands that differ."""
        return [v for node in self.nodes if (v := node.inputs[1 - self.shared]) is not None]

    @property
    def common(self) -> ir.Value:
        """The operand that they share."""
        value = self.nodes[0].inputs[self.shared]
        assert value is not None, "a MatMul has two operands"
        return value

    @property
    def axis(self) -> int:
        """Along which the operands are put together, and the result is cut."""
        return -1 if self.shared == 0 else -2

    @property
    def boundary(self) -> list[ir.Value]:
        """The region's inputs."""
        values = dict.fromkeys([*self.operands, self.common])
        return [value for value in values if not is_constant(value)]

    @property
    def width(self) -> int:
        """Of all results side by side."""
        return sum(tail_of(value) or 0 for value in self.results)

    def misfit(self) -> str | None:
        """Why the operands cannot be put together; None if they can."""
        results = self.results
        matrices = [self.common, *self.operands]
        if any(value.shape is None or len(value.shape) < 2 for value in matrices):
            return "the rank of an operand is below 2 or not known"
        if not all(isinstance(size, int) for size in self._sizes()) or not agree(
            results, but=self.axis
        ):
            return "the shapes of the results are not known to be equal but for one axis"
        if agree(self.operands, but=self.axis):
            return None
        if None in map(static_shape, self.operands):
            return "the batch axes of the operands are not known to be equal"
        return None

    def clash(self, graph: ir.Graph) -> str | None:
        """Why they cannot run at the same time; None if they can."""
        late = needs(self.operands, set(self.nodes), graph)
        return None if late is None else f"'{late.name}' needs what another of them makes"

    def emit(self, emit: Emitter) -> list[ir.Value]:
        """The one MatMul, and its pieces."""
        stacked = self._stacked(emit)
        pair = (self.common, stacked) if self.shared == 0 else (stacked, self.common)
        sizes = [size for size in self._sizes() if isinstance(size, int)]
        return cut(emit, emit.op("MatMul", *pair), sizes, self.axis)

    def _sizes(self) -> list[object]:
        return [None if v.shape is None else v.shape[self.axis] for v in self.results]

    def _stacked(self, emit: Emitter) -> Operand:
        values = self._of_one_batch(emit)
        arrays = [array_of(value) for value in values if isinstance(value, ir.Value)]
        known = [array for array in arrays if array is not None]
        if len(known) == len(values):
            return np.concatenate(known, axis=self.axis)
        return emit.op("Concat", *values, axis=self.axis)

    def _of_one_batch(self, emit: Emitter) -> list[ir.Value]:
        """The operands with the axes before the last two that they have after broadcasting."""
        if agree(self.operands, but=self.axis):
            return self.operands
        shapes = [static_shape(value) or () for value in self.operands]
        batch = np.broadcast_shapes(*(shape[:-2] for shape in shapes))
        return [
            value
            if shape[:-2] == batch
            else emit.op("Expand", value, np.array([*batch, *shape[-2:]]))
            for value, shape in zip(self.operands, shapes, strict=True)
        ]


def groups(graph: ir.Graph) -> Iterator[Products]:
    """All MatMuls that share an operand, two at least; of the left operand first."""
    for shared in (0, 1):
        found: dict[ir.Value | None, list[ir.Node]] = {}
        for node in OpIndex(graph).of("MatMul"):
            found.setdefault(node.inputs[shared], []).append(node)
        for nodes in found.values():
            if len(nodes) > 1:
                yield Products(tuple(nodes), shared)


def subset(products: Products, nodes: Sequence[ir.Node]) -> Products:
    """Some of them."""
    return Products(tuple(nodes), products.shared)
