"""Which ops keep the last axis of a tensor, its tail, pointwise: column c is made of columns c."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import onnx_ir as ir

from gdn_ir.evaluate import Array
from gdn_ir.facts import static_shape
from gdn_ir.graph_view import has_parameters, is_onnx
from gdn_ir.matching import array_of

# What an operand is to the tail: it carries it; it is broadcast across it; it says what is done
# and must be the same for all tails; it is the result's shape, in which the tail has to be widened.
Role = Literal["tail", "across", "same", "shape", "absent"]
Roles = tuple[Role, ...]

_ELEMENTWISE = frozenset({
    "Abs", "Add", "And", "Cast", "Ceil", "Cos", "Div", "Elu", "Equal", "Erf", "Exp", "Floor",
    "Greater", "GreaterOrEqual", "Identity", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max",
    "Min", "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign",
    "Sin", "Softplus", "Sqrt", "Sub", "Tanh", "Where", "Xor",
})  # fmt: skip


def tail_of(value: ir.Value | None) -> int | None:
    """The size of the last axis, if it is known; None also where there is no axis."""
    if value is None or value.shape is None or len(value.shape) == 0:
        return None
    size = value.shape[-1]
    return size if isinstance(size, int) else None


def roles(node: ir.Node) -> Roles | None:
    """What each operand of the node is to the tail of its one output.

    None where the op mixes the columns of the tail, or is not known not to.
    """
    if not is_onnx(node) or len(node.outputs) != 1:
        return None
    width = tail_of(node.outputs[0])
    if not width or has_parameters(node):
        return None
    if node.op_type in _ELEMENTWISE:
        found = tuple(_broadcast(value, width) for value in node.inputs)
    elif node.op_type in _RULES and _keeps(node.inputs, width, _CARRIERS.get(node.op_type, (0,))):
        found = _RULES[node.op_type](node) or ()
    else:
        return None
    known = tuple(role for role in found if role is not None)
    return known if len(known) == len(node.inputs) and "tail" in known else None


def _broadcast(value: ir.Value | None, width: int) -> Role | None:
    if value is None:
        return "absent"
    if value.shape is None:
        return None
    if len(value.shape) == 0:
        return "across"
    size = tail_of(value)
    return "tail" if size == width else "across" if size == 1 else None


# Operands whose tail must be that of the result; the first where nothing else is said.
_CARRIERS = {"MatMul": (1,), "ScatterElements": (0, 1, 2), "ScatterND": (0, 2)}


def _keeps(inputs: Sequence[ir.Value | None], width: int, carriers: Iterable[int]) -> bool:
    return all(i < len(inputs) and tail_of(inputs[i]) == width for i in carriers)


def _axis_attribute(default: int) -> Callable[[ir.Node], Roles | None]:
    """Of an op along one axis, which may not be the last; other operands are constants."""

    def rule(node: ir.Node) -> Roles | None:
        attr = node.attributes.get("axis")
        if _is_last(default if attr is None else attr.as_int(), _rank(node.inputs[0])):
            return None
        if node.op_type == "Concat":
            keeps = _keeps(node.inputs, tail_of(node.outputs[0]) or 0, range(len(node.inputs)))
            roles: list[Role] = ["tail"] * len(node.inputs)
            return tuple(roles) if keeps else None
        if node.op_type == "ScatterElements":
            return ("tail", "tail", "tail")
        return _constants_after_first(node)

    return rule


def _axes(position: int, rank_of: Literal["input", "output"]) -> Callable[[ir.Node], Roles | None]:
    """Of an op along the axes that an operand, or in old opsets an attribute, names."""

    def rule(node: ir.Node) -> Roles | None:
        attr = node.attributes.get("axes")
        given = node.inputs[position] if len(node.inputs) > position else None
        axes = array_of(given) if attr is None else attr.as_ints()
        value = node.inputs[0] if rank_of == "input" else node.outputs[0]
        # Without axes, or with none of them, all are meant.
        if axes is None or len(axes) == 0 or any(_is_last(int(a), _rank(value)) for a in axes):
            return None
        return _constants_after_first(node)

    return rule


def _transpose(node: ir.Node) -> Roles | None:
    perm = node.attributes.get("perm")
    stays = perm is not None and list(perm.as_ints())[-1] == _rank(node.inputs[0]) - 1
    return ("tail",) if stays else None


def _cumsum(node: ir.Node) -> Roles | None:
    axis = array_of(node.inputs[1])
    if axis is None or _is_last(int(axis.reshape(())), _rank(node.inputs[0])):
        return None
    return ("tail", "same")


def _pad(node: ir.Node) -> Roles | None:
    pads = array_of(node.inputs[1]) if len(node.inputs) in (2, 3) else None
    rank = _rank(node.inputs[0])
    if pads is None or pads[rank - 1] != 0 or pads[-1] != 0:
        return None
    return _constants_after_first(node)


def _scatter_nd(node: ir.Node) -> Roles | None:
    where: Array | None = array_of(node.inputs[1])
    if where is None or where.shape[-1] == _rank(node.inputs[0]):
        return None
    return ("tail", "same", "tail")


def _matmul(node: ir.Node) -> Roles | None:
    # The columns of L R are L times those of R, if they are columns: R has two axes at least.
    return ("same", "tail") if _rank(node.inputs[1]) > 1 else None


def _reshape(node: ir.Node) -> Roles | None:
    shapes = [static_shape(value) for value in (node.inputs[0], node.outputs[0]) if value]
    if any(shape is None or 0 in shape for shape in shapes):
        return None
    return ("tail", "shape")


def _constants_after_first(node: ir.Node) -> Roles | None:
    others: list[Role] = []
    for value in node.inputs[1:]:
        if value is not None and array_of(value) is None:
            return None
        others.append("absent" if value is None else "same")
    return ("tail", *others)


def _rank(value: ir.Value | None) -> int:
    return 0 if value is None or value.shape is None else len(value.shape)


def _is_last(axis: int, rank: int) -> bool:
    return axis in (-1, rank - 1)


_RULES: dict[str, Callable[[ir.Node], Roles | None]] = {
    "Concat": _axis_attribute(0),
    "CumSum": _cumsum,
    "Expand": _reshape,
    "Gather": _axis_attribute(0),
    "MatMul": _matmul,
    "Pad": _pad,
    "ReduceMax": _axes(1, "input"),
    "ReduceMean": _axes(1, "input"),
    "ReduceSum": _axes(1, "input"),
    "ReduceSumSquare": _axes(1, "input"),
    "Reshape": _reshape,
    "ScatterElements": _axis_attribute(0),
    "ScatterND": _scatter_nd,
    "Slice": _axes(3, "input"),
    "Softmax": _axis_attribute(-1),
    "Squeeze": _axes(1, "input"),
    "Transpose": _transpose,
    "Unsqueeze": _axes(1, "output"),
}
