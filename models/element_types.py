"""The element types that a baseline may have."""

from __future__ import annotations

from typing import Literal

import onnx_ir as ir

__all__ = ["DType", "element_type"]

DType = Literal["float32", "float16"]

_TYPES = {"float32": ir.DataType.FLOAT, "float16": ir.DataType.FLOAT16}


def element_type(dtype: str) -> ir.DataType:
    """The ONNX type of that name; ValueError where a baseline cannot have it."""
    if dtype not in _TYPES:
        raise ValueError(f"dtype is {dtype!r}; it must be one of {', '.join(_TYPES)}")
    return _TYPES[dtype]
