"""Symbolic dimensions: which a model has, and numbers in their place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import onnx_ir as ir
from onnx_ir.passes import common

from gdn_ir.graph_view import scopes

_LARGEST = 2**31 - 1
# What a dimension may be made of to be read as arithmetic: exporters write `past + 1`, `2*S`.
# Names come from files; powers are left out, which a short text can make endless work of.
_ARITHMETIC = re.compile(r"(?!.*\*\*)[\w\s+\-*/(),.]{1,200}")
_NAME = re.compile(r"[^\W\d]\w*")


def parse(texts: Iterable[str]) -> dict[str, int]:
    """`S=512` and the like as a mapping.

    Raises:
        ValueError: a text is no NAME=SIZE, or names one dimension twice.
    """
    dims: dict[str, int] = {}
    for text in texts:
        name, equals, size = text.rpartition("=")
        if not equals or not name or not size.isascii() or not size.isdigit():
            raise ValueError(f"--dim {text}: write NAME=SIZE with a positive whole number")
        if name in dims:
            raise ValueError(f"--dim {text}: '{name}' is given twice; give each dimension once")
        dims[name] = int(size)
    return dims


def bind_dimensions(model: ir.Model, dims: Mapping[str, int]) -> None:
    """Gives symbolic dimensions their numbers wherever they occur, in bodies and functions too.

    Then infers shapes again, so that what was computed from a shape can be folded.

    Raises:
        ValueError: no input has a dimension of that name, or the size is not a positive integer.
    """
    if not dims:
        return
    known = _symbols(model)
    for name, size in dims.items():
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= _LARGEST:
            raise ValueError(
                f"--dim {name}={size}: the size must be a whole number from 1 to {_LARGEST}"
            )
        if name not in known:
            has = ", ".join(f"'{symbol}'" for symbol in known) or "none"
            raise ValueError(
                f"--dim {name}={size}: no input has a dimension '{name}'; symbolic dimensions "
                f"of the inputs: {has}"
            )
    for graph in scopes(model):
        values = [*graph.inputs, *graph.outputs]
        for value in (*values, *(value for node in graph for value in node.outputs)):
            if value.shape is not None and not value.shape.is_static():
                value.shape = ir.Shape(_bound(value, size, dims) for size in value.shape)
    # Not strict: what cannot be inferred stays as it was.
    common.ShapeInferencePass(check_type=False, strict_mode=False)(model)


def _symbols(model: ir.Model) -> list[str]:
    found: dict[str, None] = {}
    for value in model.graph.inputs:
        for size in value.shape or ():
            if not isinstance(size, int) and size.value is not None:
                found[size.value] = None
    return list(found)


def _bound(
    value: ir.Value, size: int | ir.SymbolicDim, dims: Mapping[str, int]
) -> int | ir.SymbolicDim:
    if isinstance(size, int) or size.value is None:
        return size
    if size.value in dims:
        return dims[size.value]
    if dims.keys().isdisjoint(_NAME.findall(size.value)) or not _ARITHMETIC.fullmatch(size.value):
        return size
    try:
        number = size.evaluate(dict(dims))
    except ValueError:
        return size  # a name that is no arithmetic
    is_whole = isinstance(number, int) and number >= 0
    if is_whole or (isinstance(number, ir.SymbolicDim) and number.free_symbols()):
        return number
    raise ValueError(
        f"--dim: '{value.name}' has a dimension '{size.value}', which would be {number}; "
        "choose another size"
    )
