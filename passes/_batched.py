"""A body's nodes for all steps at once: the step becomes the first axis; for hoist-chunk-work."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from gdn_ir.emitter import Emitter
from gdn_ir.evaluate import Array
from gdn_ir.facts import static_shape
from gdn_ir.graph_view import has_parameters, is_onnx
from gdn_ir.matching import array_of
from gdn_ir.passes._windows import lies_inside

_ELEMENTWISE = frozenset({
    "Abs", "Add", "And", "Cast", "Ceil", "Cos", "Div", "Elu", "Equal", "Erf", "Exp", "Floor",
    "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "Identity", "IsInf", "IsNaN", "LeakyRelu",
    "Less", "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow",
    "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Softplus", "Sqrt", "Sub", "Sum",
    "Tanh", "Where", "Xor",
})  # fmt: skip
_REDUCTIONS = frozenset({
    "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "ReduceSumSquare",
})  # fmt: skip
# These read their axes from constants; the first axis of a step is the second of all steps.
_BY_AXIS_INPUT = frozenset({"CumSum", "Squeeze", "Unsqueeze"}) | _REDUCTIONS
_BY_AXIS_ATTRIBUTE = frozenset({"LogSoftmax", "Softmax"})
# Which take pieces out of tensors, or arrange them, and compute nothing.
_MOVES = frozenset({
    "Cast", "Concat", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze",
})  # fmt: skip


def rank(value: ir.Value) -> int | None:
    """Of the value in one step."""
    return None if value.shape is None else len(value.shape)


def is_work(node: ir.Node) -> bool:
    """Whether the node computes reals: what runs faster for all steps at once."""
    dtype = node.outputs[0].dtype
    return node.op_type not in _MOVES and dtype is not None and dtype.is_floating_point()


def can_be_batched(node: ir.Node) -> bool:
    """Whether `Batch.node` knows the op and all that it needs of it is constant."""
    if not is_onnx(node) or has_parameters(node):
        return False
    operands = [value for value in node.inputs if value is not None]
    if any(rank(value) is None for value in (*operands, *node.outputs)):
        return False
    op = node.op_type
    if op == "Split":
        return len(operands) == 1 or array_of(node.inputs[1]) is not None
    if len(node.outputs) != 1:
        return False
    if op == "Pad":
        return len(node.inputs) < 4 and array_of(node.inputs[1]) is not None
    if op == "Concat":
        return True
    if op in _ELEMENTWISE or op in _BY_AXIS_ATTRIBUTE or op == "Trilu":
        return True
    if op in _BY_AXIS_INPUT:
        axes = array_of(node.inputs[1]) if len(node.inputs) > 1 else None
        return axes is not None and axes.size > 0
    if op == "MatMul":
        return all((rank(value) or 0) >= 2 for value in operands)
    if op == "Transpose":
        return "perm" in node.attributes
    if op == "Gather":
        return True
    if op == "Slice":
        return _constant_axes(node) is not None or _window(node) is not None
    return op == "Reshape" and _row_sizes(node) is not None


class Batch:
    """Emits nodes of one step with the step as an axis before all others.

    Values of the scope around it, and what follows from those alone, have no such axis.

    Args:
        emit: takes the nodes.
        count: how many steps there are, if that is known.

    Attributes:
        of_steps: values of one step, and what they are for all steps.
        number: the value that is the number of the step, if there is one.
    """

    def __init__(self, emit: Emitter, count: int | None) -> None:
        self._emit = emit
        # An open number of steps has a name, so that later passes see that it is one number.
        self.steps: int | ir.SymbolicDim = ir.SymbolicDim(f"{emit.prefix}/steps")
        if count is not None:
            self.steps = count
        self._alike: dict[ir.Value, ir.Value] = {}
        self.of_steps: dict[ir.Value, ir.Value] = {}
        self.number: ir.Value | None = None

    def __getitem__(self, value: ir.Value) -> ir.Value:
        """The value for all steps, or the one that it is in each of them."""
        if value in self.of_steps:
            return self.of_steps[value]
        if value not in self._alike:
            array = array_of(value)
            self._alike[value] = value if array is None else self._emit.constant(array)
        return self._alike[value]

    def node(self, node: ir.Node) -> None:
        """Emits the node; its operands must have been."""
        operands = [value for value in node.inputs if value is not None]
        alike = self.of_steps.keys().isdisjoint(operands)
        if node.op_type == "Split":
            emitted = self._split(node)
        elif alike:
            inputs = [None if value is None else self[value] for value in node.inputs]
            emitted = (self._emit.like(node, *inputs),)
        else:
            emitted = (self._emitted(node),)
        for result, value in zip(node.outputs, emitted, strict=True):
            value.type = result.type
            sizes = map(_known, result.shape or ())
            value.shape = ir.Shape(sizes if alike else [self.steps, *sizes])
            (self._alike if alike else self.of_steps)[result] = value

    def _split(self, node: ir.Node) -> tuple[ir.Value, ...]:
        x, *sizes = (self[value] for value in node.inputs if value is not None)
        attributes = {name: attr.value for name, attr in node.attributes.items()}
        if node.inputs[0] in self.of_steps:
            axis = node.attributes.get("axis")
            dims = rank(node.outputs[0]) or 1
            attributes["axis"] = (0 if axis is None else axis.as_int()) % dims + 1
        return self._emit.ops("Split", x, *sizes, outputs=len(node.outputs), **attributes)

    def _emitted(self, node: ir.Node) -> ir.Value:
        emit, op = self._emit, node.op_type
        x = node.inputs[0]
        assert x is not None, "these ops have a first input"
        if op in _ELEMENTWISE or op == "MatMul":
            most = max(rank(value) or 0 for value in node.inputs if value is not None)
            return emit.like(node, *(self._aligned(value, most) for value in node.inputs))
        if op == "Gather":
            return self._gather(node)
        if op == "Slice":
            return self._slice(node)
        if op == "Transpose":
            perm = [axis + 1 for axis in node.attributes["perm"].as_ints()]
            return emit.op("Transpose", self[x], perm=[0, *perm])
        if op == "Reshape":
            return emit.op("Reshape", self[x], np.array([-1, *(_row_sizes(node) or ())]))
        if op == "Concat":
            axis = node.attributes["axis"].as_int() % (rank(x) or 1) + 1
            return emit.op("Concat", *(self[v] for v in node.inputs if v is not None), axis=axis)
        if op == "Pad":
            pads = array_of(node.inputs[1])
            assert pads is not None, "checked before"
            begins, ends = np.split(np.asarray(pads, np.int64), 2)
            new = np.concatenate([[0], begins, [0], ends])
            fill = [self[value] for value in node.inputs[2:] if value is not None]
            return emit.like(node, self[x], new, *fill)
        if op == "Trilu":
            return emit.like(
                node, *(None if value is None else self[value] for value in node.inputs)
            )
        ranked = node.outputs[0] if op == "Unsqueeze" else x
        dims = rank(ranked) or 0
        if op in _BY_AXIS_ATTRIBUTE:
            attr = node.attributes.get("axis")
            axis = (-1 if attr is None else attr.as_int()) % dims + 1
            return emit.op(op, self[x], axis=axis)
        axes = array_of(node.inputs[1])
        assert axes is not None, "checked before"
        return emit.like(node, self[x], np.asarray(axes % dims + 1, np.int64))

    def _aligned(self, value: ir.Value | None, most: int) -> ir.Value | None:
        """An operand of a broadcasting op, of as many axes behind the step as the largest has."""
        if value is None or value not in self.of_steps or rank(value) == most:
            return None if value is None else self[value]
        missing = most - (rank(value) or 0)
        return self._emit.op("Unsqueeze", self[value], np.arange(1, 1 + missing))

    def _gather(self, node: ir.Node) -> ir.Value:
        data, indices = node.inputs
        assert data is not None and indices is not None
        attr = node.attributes.get("axis")
        axis = (0 if attr is None else attr.as_int()) % (rank(data) or 1)
        if data not in self.of_steps:
            if self._is_each(indices, data, axis):
                return to_front(self._emit, self[data], axis, rank(data) or 1)
            return self._taken(data, self[indices], axis, 1 + (rank(indices) or 0))
        if indices not in self.of_steps:
            return self._emit.op("Gather", self[data], self[indices], axis=axis + 1)
        raise AssertionError("a choice by step out of what differs by step is split off before")

    def _is_each(self, indices: ir.Value, data: ir.Value, axis: int) -> bool:
        """Whether the steps take all there is along the axis, each the piece of its number."""
        size = None if data.shape is None else data.shape[axis]
        return indices is self.number and rank(indices) == 0 and size == self.steps != 0

    def _slice(self, node: ir.Node) -> ir.Value:
        """The same part of each step, or a window of constant size that begins where it says."""
        data, start = node.inputs[:2]
        assert data is not None and start is not None
        axes, window = _constant_axes(node), _window(node)
        if axes is not None and start not in self.of_steps:
            bounds = [None if value is None else self[value] for value in node.inputs[1:]]
            bounds[2] = self._emit.constant(axes + 1)
            return self._emit.op("Slice", self[data], *bounds)
        assert window is not None, "checked before"
        axis, size = window
        if start not in self.of_steps:
            rest = [self[value] for value in node.inputs[1:3] if value is not None]
            return self._emit.op("Slice", self[data], *rest, np.array([axis + 1]))
        indices = self._emit.op("Add", self[start], np.arange(size)[None])
        return self._taken(data, indices, axis, 2)

    def _taken(self, data: ir.Value, indices: ir.Value, axis: int, dims: int) -> ir.Value:
        """Pieces of a tensor by indices of `dims` axes, of which the first is the step."""
        taken = self._emit.op("Gather", self[data], indices, axis=axis)
        return to_front(self._emit, taken, axis, (rank(data) or 1) - 1 + dims)


def to_front(emit: Emitter, value: ir.Value, axis: int, dims: int) -> ir.Value:
    """The value with an axis moved before all others."""
    if axis == 0:
        return value
    return emit.op("Transpose", value, perm=[axis, *range(axis), *range(axis + 1, dims)])


def differs_by_step(node: ir.Node, by_step: Sequence[ir.Value], *, trips: int | None) -> bool:
    """Whether what differs from step to step is where `Batch` cannot have it.

    Such as pieces taken, by the step, of what itself differs by step; or windows, by the step, that
    may reach beyond an end, where a Slice takes others or fewer and a Gather fails.
    """
    if not by_step:
        return False
    first, *rest = node.inputs
    moves = any(value in by_step for value in rest)
    if node.op_type == "Gather":
        return first in by_step and moves
    if node.op_type == "Slice":
        return moves and (first in by_step or not _windows_fit(node, trips))
    if node.op_type == "Concat":
        return any(value not in by_step for value in node.inputs)
    if node.op_type in _ELEMENTWISE or node.op_type == "MatMul":
        return False
    return any(value in by_step for value in rest)


def _constant_axes(node: ir.Node) -> Array | None:
    """The axes of a Slice whose bounds are constant, counted from the start; None if it is none."""
    data = node.inputs[0]
    if len(node.inputs) < 4 or data is None or data.shape is None:
        return None
    if any(value is not None and array_of(value) is None for value in node.inputs[1:]):
        return None
    axes = array_of(node.inputs[3])
    return None if axes is None else np.asarray(axes % len(data.shape), np.int64)


def _windows_fit(node: ir.Node, trips: int | None) -> bool:
    window, data = _window(node), None if node.inputs[0] is None else static_shape(node.inputs[0])
    if window is None or data is None or trips is None:
        return False
    axis, size = window
    return lies_inside(node.inputs[1], size, data[axis], trips)


def _window(node: ir.Node) -> tuple[int, int] | None:
    """Axis and size of a Slice along one axis in steps of 1; None if one is not known."""
    data, result = node.inputs[0], node.outputs[0]
    if len(node.inputs) < 4 or data is None or data.shape is None or result.shape is None:
        return None
    axes = array_of(node.inputs[3])
    strides: Array | None = np.ones(1)
    if len(node.inputs) > 4 and node.inputs[4] is not None:
        strides = array_of(node.inputs[4])
    if axes is None or axes.size != 1 or strides is None or not (strides == 1).all():
        return None
    axis = int(axes[0]) % len(data.shape)
    size = result.shape[axis]
    return (axis, size) if isinstance(size, int) else None


def _row_sizes(node: ir.Node) -> tuple[int, ...] | None:
    """What a Reshape gives in one step, where that is known and -1 can stand beside it."""
    sizes = static_shape(node.outputs[0])
    return sizes if sizes is not None and all(sizes) else None


def _known(size: int | ir.SymbolicDim) -> int | None:
    return size if isinstance(size, int) else None
