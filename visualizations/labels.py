"""Short texts for ops, constants and shapes. Plain text: whoever draws it escapes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from gdn_ir.evaluate import Array
from gdn_ir.graph_view import VIEW_OPS, is_onnx

# Attributes that tell what an op does to its operand; others are for a file viewer.
_TOLD = ("axis", "perm", "axes", "equation", "num_scan_inputs")
# Ops whose constant says the shape of the result, which is shown anyway.
_SHAPED_BY = frozenset({"Reshape", "Expand", "ConstantOfShape", "Pad"})
_LONGEST = 36
_LONGEST_DIM = 8
_MOST_ELEMENTS = 5
_SLICE_END = 2**31 - 1


def constant(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of an initializer or a Constant that is no graph input, views looked through."""
    if value is None or not is_constant(value):
        return None
    return ir.convenience.get_const_tensor(_looked_through(value))


def is_constant(value: ir.Value) -> bool:
    """Whether a value is drawn as a badge and not as a box."""
    return _is_plain(_looked_through(value))


def _looked_through(value: ir.Value) -> ir.Value:
    """What a value is a view of, if all else that the views take is constant too."""
    start = value
    while (producer := value.producer()) is not None and _is_view(producer):
        operands = [operand for operand in producer.inputs if operand is not None]
        if not operands or not all(_is_plain(operand) for operand in operands[1:]):
            return start
        value = operands[0]
    return value if _is_plain(value) else start


def _is_view(node: ir.Node) -> bool:
    return is_onnx(node) and node.op_type in VIEW_OPS


def _is_plain(value: ir.Value) -> bool:
    producer = value.producer()
    if producer is None:
        return value.is_initializer() and not value.is_graph_input()
    return is_onnx(producer, "Constant")


def clean(text: str, longest: int = _LONGEST) -> str:
    """A line that prints: no control characters, and not longer than a box is wide."""
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def op_name(node: ir.Node) -> str:
    """`MatMul`, `com.microsoft.Gelu`."""
    domain = "" if node.domain in ("", "ai.onnx") else f"{node.domain}."
    return clean(domain + node.op_type)


def detail(nodes: Sequence[ir.Node]) -> str:
    """Attributes and constants of an op; of steps that differ, of the first and the last."""
    first, last = _words(nodes[0]), _words(nodes[-1])
    if len(first) != len(last):
        return ""
    pairs = zip(first, last, strict=True)
    return clean(" ".join(a if a == b else f"{a}..{b}" for a, b in pairs))


def _words(node: ir.Node) -> list[str]:
    constants = [constant(value) for value in node.inputs]
    if is_onnx(node, "Slice"):
        return _slice_words(constants)
    words = [
        _value_text(node.attributes[name].value)
        if name in ("perm", "axes")
        else f"{name} {_value_text(node.attributes[name].value)}"
        for name in _TOLD
        if name in node.attributes and not node.attributes[name].is_ref()
    ]
    if node.op_type in _SHAPED_BY:
        return words
    if is_onnx(node, "Gather") and len(constants) > 1 and constants[1] is not None:
        return [f"[{_tensor_text(constants[1])}]", *words]
    return [_tensor_text(tensor) for tensor in constants if tensor is not None] + words


def _slice_words(constants: Sequence[ir.TensorProtocol | None]) -> list[str]:
    """`0:16 axis 3`, an entry for each axis."""
    texts = [[] if tensor is None else _integers(tensor) for tensor in constants[1:]]
    starts, ends, axes, steps = [*texts, [], [], [], []][:4]
    if not starts or len(starts) != len(ends):
        return []
    words = []
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        step = f":{steps[i]}" if i < len(steps) and steps[i] != 1 else ""
        words.append(f"{start or ''}:{'' if abs(end) >= _SLICE_END else end}{step}")
        words.append(f"axis {axes[i] if i < len(axes) else i}")
    return words


def _integers(tensor: ir.TensorProtocol) -> list[int]:
    array = _small(tensor)
    return [] if array is None else [int(x) for x in array.flat]


def _tensor_text(tensor: ir.TensorProtocol) -> str:
    array = _small(tensor)
    if array is None or array.dtype.kind not in "iufb":
        return f"const {'x'.join(map(str, tensor.shape))}"
    if array.ndim == 0:
        return _number(array[()])
    return f"[{','.join(map(_number, array.flat))}]"


def _small(tensor: ir.TensorProtocol) -> Array | None:
    """The content, where it is few enough elements to print; of large ones nothing is read."""
    if tensor.size > _MOST_ELEMENTS or len(tensor.shape) > 1:
        return None
    return np.asarray(tensor.numpy())


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value).lower()


def _value_text(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{','.join(map(str, value))}]"
    return str(value)


def shape_text(shapes: Iterable[ir.Shape | None]) -> str:
    """`1x64x64`; where steps differ, `1x1..63x64`. Empty if a shape is unknown."""
    known = list(shapes)
    if not known or any(shape is None or len(shape) != len(known[0] or ()) for shape in known):
        return ""
    columns = zip(*[[_dim(d) for d in shape] for shape in known if shape is not None], strict=True)
    dims = [_range_text(column) for column in columns]
    if dims and set(dims) == {"?"}:
        return ""
    return "x".join(dims) or "scalar"


def _dim(dim: int | ir.SymbolicDim) -> int | str:
    if isinstance(dim, int):
        return dim
    # Exporters make up names that are longer than what they name, shape inference unk__1.
    name = clean(str(dim.value or "?"))
    return "?" if len(name) > _LONGEST_DIM or name.startswith("unk__") else name


def _range_text(dims: Sequence[int | str]) -> str:
    sizes = [dim for dim in dims if isinstance(dim, int)]
    if len(sizes) < len(dims):
        return str(dims[0]) if len(set(dims)) == 1 else "?"
    low, high = min(sizes), max(sizes)
    return str(low) if low == high else f"{low}..{high}"
