"""What each arithmetic op means over elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from gdn_ir.evaluate import Array
from gdn_ir.modular.algebra import Algebra
from gdn_ir.modular.element import Element, Operand, map_together
from gdn_ir.modular.unsupported import UnsupportedOp

# Functions of each element that are no polynomials: hashed.
_HASHED = frozenset({
    "Abs", "Acos", "Acosh", "And", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Clip", "Cos",
    "Cosh", "Elu", "Equal", "Erf", "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid",
    "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Min", "Mish",
    "Mod", "Not", "Or", "PRelu", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Sinh",
    "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu", "Xor",
})  # fmt: skip
_COMMUTATIVE = frozenset({"And", "Equal", "Max", "Min", "Or", "Xor"})
# Those that give booleans.
_PREDICATES = frozenset({
    "And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not",
    "Or", "Xor",
})  # fmt: skip
# Arithmetic that on integers, where it rounds or wraps, is a function of each element all the same.
_ELEMENTWISE = frozenset({"Add", "Div", "Mul", "Neg", "Pow", "Reciprocal", "Sub", "Sum"})
_LARGEST_POWER = 16

Operands = Sequence[Operand]


def compute(algebra: Algebra, node: ir.Node, operands: Operands) -> Operand:
    """The node's output, for operands at least one of which is an element.

    Raises:
        UnsupportedOp: the op is not known here.
    """
    rounds = _rounds_or_wraps(node, operands[0])
    if node.op_type in _OPS and not rounds:
        return _OPS[node.op_type](algebra, node, operands)
    if node.op_type not in _HASHED | _ELEMENTWISE:
        raise UnsupportedOp(node)
    options = sorted(f"{name}={attr.value}" for name, attr in node.attributes.items())
    # Clip (x, least) is not Clip (x, , most).
    options += [f"without input {i}" for i, value in enumerate(node.inputs) if value is None]
    name = " ".join([node.op_type, *options])
    if node.op_type in _COMMUTATIVE:
        result = _hash_unordered(algebra, name, [algebra.lift(x) for x in operands])
    else:
        result = algebra.hash(name, *operands)
    return replace(result, is_integer=rounds or node.op_type in _PREDICATES)


def _rounds_or_wraps(node: ir.Node, first: Operand) -> bool:
    """Whether the op works on integers, where 1/2 is 0 and 255 + 1 may be 0."""
    if node.op_type in ("Cast", "CastLike", "Shape", "Size", "Trilu"):
        return False
    return first.is_integer if isinstance(first, Element) else first.dtype.kind in "biu"


def is_exact(node: ir.Node) -> bool:
    """Whether the op means here what it means over the reals: no hash, no unknown op."""
    return node.op_type in _OPS and node.op_type not in ("Pow", "Softmax", "ReduceL2")


def _hash_unordered(algebra: Algebra, name: str, elements: Sequence[Element]) -> Element:
    if len(elements) == 1:
        return elements[0]
    shape = np.broadcast_shapes(*(e.shape for e in elements))
    stacked = map_together(
        elements, lambda *arrays: np.stack([np.broadcast_to(a, shape) for a in arrays])
    )
    return algebra.hash_axis(name, stacked, 0).map(lambda array: np.asarray(array[0]))


def _sum(algebra: Algebra, node: ir.Node, x: Operands) -> Operand:
    total = algebra.lift(x[0])
    for other in x[1:]:
        total = algebra.add(total, algebra.lift(other))
    return total


def _subtract(algebra: Algebra, node: ir.Node, x: Operands) -> Operand:
    return algebra.add(algebra.lift(x[0]), algebra.negative(algebra.lift(x[1])))


def _negative(algebra: Algebra, node: ir.Node, x: Operands) -> Operand:
    return algebra.negative(algebra.lift(x[0]))


def _multiply(algebra: Algebra, node: ir.Node, x: Operands) -> Operand:
    return algebra.multiply(x[0], x[1])


def _divide(algebra: Algebra, node: ir.Node, x: Operands) -> Operand:
    return algebra.divide(x[0], x[1])


def _reciprocal(algebra: Algebra, node: ir.Node, x: Operands) -> Operand:
    return algebra.reciprocal(algebra.lift(x[0]))


def _matmul(algebra: Algebra, node: ir.Node, x: Operands) -> Operand:
    return algebra.matmul(x[0], x[1])


def _gemm(algebra: Algebra, node: ir.Node, x: Operands) -> Operand:
    a, b = algebra.lift(x[0]), algebra.lift(x[1])
    a = a.map(np.transpose) if _integer(node, "transA", 0) else a
    b = b.map(np.transpose) if _integer(node, "transB", 0) else b
    product = algebra.multiply(algebra.matmul(a, b), _factor(node, "alpha"))
    if len(x) < 3:
        return product
    return algebra.add(product, algebra.multiply(algebra.lift(x[2]), _factor(node, "beta")))


def _exp(algebra: Algebra, node: ir.Node, x: Operands) -> Operand:
    return algebra.exp(algebra.lift(x[0]))


def _power(algebra: Algebra, node: ir.Node, x: Operands) -> Operand:
    """Integers and halves exactly, the latter of a hashed square root; others hashed."""
    if isinstance(x[1], Element) or np.asarray(x[1]).size != 1:
        return algebra.hash("Pow", *x)
    power = float(np.asarray(x[1]).reshape(()))
    # An exponent of higher rank gives the result its rank.
    base = algebra.add(algebra.lift(x[0]), algebra.lift(np.zeros(np.asarray(x[1]).shape)))
    if abs(power) > _LARGEST_POWER or not (2 * power).is_integer() or power == 0:
        return algebra.hash("Pow", *x)
    if not power.is_integer():
        base, power = algebra.hash("Sqrt", base), 2 * power
    result = base
    for _ in range(int(abs(power)) - 1):
        result = algebra.multiply(result, base)
    return algebra.reciprocal(result) if power < 0 else result


def _cast(algebra: Algebra, node: ir.Node, x: Operands) -> Operand:
    return _as_type(algebra, x[0], ir.DataType(node.attributes["to"].as_int()))


def _cast_like(algebra: Algebra, node: ir.Node, x: Operands) -> Operand:
    like = node.inputs[1]
    dtype = None if like is None else like.dtype
    if dtype is None and not isinstance(x[1], Element):
        dtype = ir.DataType.from_numpy(np.asarray(x[1]).dtype)
    if dtype is None and isinstance(x[1], Element) and not x[1].is_integer:
        dtype = ir.DataType.FLOAT
    if dtype is None:
        raise UnsupportedOp(node, "to an integer type that is not known")
    return _as_type(algebra, x[0], dtype)


def _as_type(algebra: Algebra, x: Operand, dtype: ir.DataType) -> Element:
    """To a float type: nothing, as rounding is the numeric gate's business."""
    value = algebra.lift(x)
    if not dtype.is_floating_point():
        value = algebra.hash(f"Cast to {dtype}", value)
    return replace(value, is_integer=not dtype.is_floating_point())


def _trilu(algebra: Algebra, node: ir.Node, x: Operands) -> Operand:
    value = algebra.lift(x[0])
    offset = 0 if len(x) < 2 else int(np.asarray(_known(node, x[1])).reshape(()))
    rows, columns = value.shape[-2:]
    below = np.tri(rows, columns, offset if not _integer(node, "upper", 1) else offset - 1)
    kept = below == (0 if _integer(node, "upper", 1) else 1)
    zero = algebra.lift(np.zeros(()))
    return map_together([value, zero], lambda a, z: np.asarray(np.where(kept, a, z)))


def _cumsum(algebra: Algebra, node: ir.Node, x: Operands) -> Operand:
    axis = int(_known(node, x[1]).reshape(()))
    exclusive, reverse = (bool(_integer(node, name, 0)) for name in ("exclusive", "reverse"))
    return algebra.cumsum(algebra.lift(x[0]), axis, exclusive, reverse)


def _reduce_sum(algebra: Algebra, node: ir.Node, x: Operands) -> Operand:
    value = algebra.lift(x[0])
    axes = _axes(node, x, value)
    return algebra.reduce_sum(value, axes, bool(_integer(node, "keepdims", 1))) if axes else value


def _reduce_mean(algebra: Algebra, node: ir.Node, x: Operands) -> Operand:
    value = algebra.lift(x[0])
    count = np.prod([float(value.shape[axis]) for axis in _axes(node, x, value)])
    # A model that multiplies by 1/n instead holds it in the type of the data.
    wide = node.inputs[0] is not None and node.inputs[0].dtype == ir.DataType.DOUBLE
    divisor = np.array(count, np.float64 if wide else np.float32)
    return algebra.divide(_reduce_sum(algebra, node, x), divisor)


def _reduce_sum_square(algebra: Algebra, node: ir.Node, x: Operands) -> Operand:
    return _reduce_sum(algebra, node, [algebra.multiply(x[0], x[0]), *x[1:]])


def _reduce_l2(algebra: Algebra, node: ir.Node, x: Operands) -> Operand:
    return algebra.hash("Sqrt", _reduce_sum_square(algebra, node, x))


def _softmax(algebra: Algebra, node: ir.Node, x: Operands) -> Operand:
    value = algebra.lift(x[0])
    if not value.residue.size:
        return value
    axis = _integer(node, "axis", -1) % value.residue.ndim
    largest = algebra.hash_axis("ReduceMax", value, axis)
    raised = algebra.exp(algebra.add(value, algebra.negative(largest)))
    total = algebra.reduce_sum(raised, (axis,), True)
    return algebra.multiply(raised, algebra.reciprocal(total))


def _shape(algebra: Algebra, node: ir.Node, x: Operands) -> Operand:
    shape = algebra.lift(x[0]).shape
    start, end = _integer(node, "start", 0), _integer(node, "end", len(shape))
    return np.array(shape[start:end], np.int64)


def _size(algebra: Algebra, node: ir.Node, x: Operands) -> Operand:
    return np.array(algebra.lift(x[0]).residue.size, np.int64)


_OPS: dict[str, Callable[[Algebra, ir.Node, Operands], Operand]] = {
    "Add": _sum,
    "Cast": _cast,
    "CastLike": _cast_like,
    "CumSum": _cumsum,
    "Div": _divide,
    "Exp": _exp,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Mul": _multiply,
    "Neg": _negative,
    "Pow": _power,
    "Reciprocal": _reciprocal,
    "ReduceL2": _reduce_l2,
    "ReduceMean": _reduce_mean,
    "ReduceSum": _reduce_sum,
    "ReduceSumSquare": _reduce_sum_square,
    "Shape": _shape,
    "Size": _size,
    "Softmax": _softmax,
    "Sub": _subtract,
    "Sum": _sum,
    "Trilu": _trilu,
}


def _axes(node: ir.Node, x: Operands, value: Element) -> tuple[int, ...]:
    """The axes to reduce, from the second input or the attribute; () for none of them."""
    rank = value.residue.ndim
    attr = node.attributes.get("axes")
    axes = [] if attr is None else list(attr.as_ints())
    if len(x) > 1:
        axes = [int(axis) for axis in _known(node, x[1]).reshape(-1)]
    if not axes and _integer(node, "noop_with_empty_axes", 0):
        return ()
    if any(not -rank <= axis < rank for axis in axes):
        raise UnsupportedOp(node, f"axes {axes} of shape {list(value.shape)}")
    return tuple(axis % rank for axis in axes) or tuple(range(rank))


def _known(node: ir.Node, value: Operand) -> Array:
    if isinstance(value, Element):
        raise UnsupportedOp(node, "its parameters depend on data")
    return np.asarray(value)


def _integer(node: ir.Node, name: str, default: int) -> int:
    attr = node.attributes.get(name)
    return default if attr is None else attr.as_int()


def _factor(node: ir.Node, name: str) -> Array:
    attr = node.attributes.get(name)
    return np.array(1.0 if attr is None else attr.as_float())
