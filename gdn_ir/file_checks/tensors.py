"""Whether the data of every tensor is there: in the model, or in a file beside it.

onnx_ir takes a tensor's word for its size, fills a tensor without data with zeros, and looks at an
external file when the tensor is first read. Here every size is computed in Python integers, and
every external file is found, inside the model's folder and long enough, before anything reads it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import NoReturn

import onnx_ir as ir
from onnx import AttributeProto, FunctionProto, TensorProto

from gdn_ir.file_checks.bad_model import BadModel, quote
from gdn_ir.file_checks.scope import Scope

# The field that holds the values when raw_data does not; for all other types it is int32_data.
_TYPED_FIELDS: dict[int, str] = {
    TensorProto.FLOAT: "float_data",
    TensorProto.COMPLEX64: "float_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.COMPLEX128: "double_data",
    TensorProto.INT64: "int64_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.UINT64: "uint64_data",
    TensorProto.STRING: "string_data",
}
_DATA_FIELDS = ("raw_data", "int32_data", *dict.fromkeys(_TYPED_FIELDS.values()))
_COMPLEX = (TensorProto.COMPLEX64, TensorProto.COMPLEX128)
_MOST_DIMS = 32  # numpy 1's limit
_SHOWN_FILES = 10


@dataclass(frozen=True)
class ExternalData:
    """The bytes of one tensor in a file beside the model, found to be there."""

    tensor: TensorProto
    path: Path
    offset: int
    size: int
    is_weight: bool  # an initializer of the graph or of a body in it, which onnx_ir reads lazily


def check_tensors(scopes: list[Scope], folder: Path) -> list[ExternalData]:
    """Check the data of every tensor; return those whose data is in a file in `folder`.

    Raises:
        BadModel: data that does not fit the shape; or an external file that is missing (all are
            listed), outside of the folder (absolute path, "..", symbolic link, hard link) or too
            short.
    """
    external = []
    paths: dict[str, Path] = {}
    for tensor, is_weight in _tensors(scopes):
        if tensor.data_location != TensorProto.EXTERNAL:
            _check_own_data(tensor)
            continue
        location, offset, length = _external_entries(tensor)
        if location not in paths:
            paths[location] = _locate(tensor, location, folder)
        external.append((tensor, is_weight, location, offset, length))

    missing = [quote(location) for location, path in paths.items() if not path.exists()]
    if missing:
        more = f" and {len(missing) - _SHOWN_FILES} more" if len(missing) > _SHOWN_FILES else ""
        raise BadModel(
            f"external data missing: {', '.join(missing[:_SHOWN_FILES])}{more}; "
            f"put it beside the model in {folder}"
        )
    sizes = {location: _file_size(location, path) for location, path in paths.items()}
    found = []
    for tensor, is_weight, location, offset, length in external:
        needed = _needed_bytes(tensor)
        # onnx_ir reads `length` bytes in one place and what the shape needs in another.
        if length is not None and length != needed:
            _raise_size(tensor, needed, f"declares {length:,} in {quote(location)}")
        if offset + needed > sizes[location]:
            _raise_size(
                tensor, needed,
                f"{quote(location)} has {max(sizes[location] - offset, 0):,} from {offset:,} on",
            )  # fmt: skip
        found.append(ExternalData(tensor, paths[location], offset, needed, is_weight))
    return found


def _tensors(scopes: list[Scope]) -> Iterator[tuple[TensorProto, bool]]:
    """Every tensor, and whether it is an initializer outside of the local functions."""
    for scope in scopes:
        attributes = [attribute for node in scope.proto.node for attribute in node.attribute]
        if isinstance(scope.proto, FunctionProto):
            attributes.extend(scope.proto.attribute_proto)
        else:
            is_weight = not isinstance(scope.root.proto, FunctionProto)
            yield from ((tensor, is_weight) for tensor in scope.proto.initializer)
        for attribute in attributes:
            if attribute.ref_attr_name:
                continue
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t, False
            elif attribute.type == AttributeProto.TENSORS:
                yield from ((tensor, False) for tensor in attribute.tensors)


def _check_own_data(tensor: TensorProto) -> None:
    """Check data that is in the model: the right field, and as many entries as the shape needs."""
    sizes = {name: len(getattr(tensor, name)) for name in _DATA_FIELDS}
    count = _count(tensor)
    # The field itself counts, not its length: onnx_ir reads raw_data wherever it is set.
    if tensor.HasField("raw_data") and tensor.data_type != TensorProto.STRING:
        used, needed, unit = "raw_data", _needed_bytes(tensor), "bytes"
    else:
        used = _TYPED_FIELDS.get(tensor.data_type, "int32_data")
        needed, unit = count, f"entries of {used}"
        if tensor.data_type in _COMPLEX:
            needed = 2 * count
        elif tensor.data_type != TensorProto.STRING and _bits(tensor) in (2, 4):
            needed = _needed_bytes(tensor)  # packed, one byte an entry; 6-bit floats are not
    extra = [name for name, size in sizes.items() if size and name != used]
    if extra:
        raise BadModel(
            f"tensor {quote(tensor.name)}: data in {extra[0]}, expected in {used}; "
            "export the model again"
        )
    if sizes[used] != needed:
        _raise_size(tensor, needed, f"has {sizes[used]:,}", unit)


def _count(tensor: TensorProto) -> int:
    """The number of elements, of a shape that numpy can hold."""
    if len(tensor.dims) > _MOST_DIMS:  # before multiplying, which would be slow too
        raise BadModel(f"tensor {quote(tensor.name)}: {len(tensor.dims):,} dimensions are too many")
    count, extent = 1, 1
    for dim in tensor.dims:
        if dim < 0:
            raise BadModel(
                f"tensor {quote(tensor.name)}: negative dimension {dim}; export the model again"
            )
        count, extent = count * dim, extent * max(dim, 1)
    # With elements, the data itself must be as large. Without, nothing else bounds the shape.
    if count == 0 and extent > 2**32:
        raise BadModel(
            f"tensor {quote(tensor.name)}: shape {quote(list(tensor.dims))} is out of range; "
            "export the model again"
        )
    return count


def _bits(tensor: TensorProto) -> int:
    try:
        return ir.DataType(tensor.data_type).bitwidth
    except (ValueError, TypeError):  # a number that means no type; a type without a width
        raise BadModel(
            f"tensor {quote(tensor.name)}: cannot hold data of type {tensor.data_type}; "
            "upgrade onnx or export the model again"
        ) from None


def _needed_bytes(tensor: TensorProto) -> int:
    """What the shape needs in raw_data or in an external file, where narrow types are packed."""
    return (_count(tensor) * _bits(tensor) + 7) // 8


def _external_entries(tensor: TensorProto) -> tuple[str, int, int | None]:
    """Location, offset and length (None: to be computed) as the tensor declares them."""
    name = quote(tensor.name)
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if len(entries) < len(tensor.external_data) or not entries.get("location"):
        raise BadModel(f"tensor {name}: external data needs one location; export the model again")
    if any(len(getattr(tensor, field)) for field in _DATA_FIELDS):
        raise BadModel(f"tensor {name}: data both in the model and in {quote(entries['location'])}")
    numbers = []
    for key in ("offset", "length"):
        text = entries.get(key)
        # int() would take "-1" and "1_0"; no file is longer than 19 digits can say.
        if text is not None and not (text.isascii() and text.isdigit() and len(text) < 20):
            raise BadModel(f"tensor {name}: {key} {quote(text)} of its external data is no size")
        numbers.append(None if text is None else int(text))
    return entries["location"], numbers[0] or 0, numbers[1]


def _locate(tensor: TensorProto, location: str, folder: Path) -> Path:
    """The path of an external file, which need not exist yet but lies in `folder`."""
    escapes = (
        f"tensor {quote(tensor.name)}: external data {quote(location)} escapes the model's folder"
    )
    # Read as Windows does, which knows more separators and roots: no honest location has either.
    parts = PureWindowsPath(location)
    if parts.anchor or ".." in parts.parts or "\0" in location:
        raise BadModel(f"{escapes}; write it as a plain path relative to the model")
    path = folder / location
    real = Path(os.path.realpath(path))  # resolve() fails on a link to itself
    if not real.is_relative_to(os.path.realpath(folder)):
        if "blobs" in real.parts and "snapshots" in path.parts:
            raise BadModel(
                f"{escapes}: it is a link into the Hugging Face cache; download again with "
                "HF_HUB_DISABLE_SYMLINKS=1 or into a local_dir"
            )
        raise BadModel(f"{escapes} through a symbolic link to {real}; copy the file instead")
    return path


def _file_size(location: str, path: Path) -> int:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise BadModel(f"external data {quote(location)} is not a regular file; replace it by one")
    if status.st_nlink > 1:
        # The other name may be anywhere, so the file may be anyone's.
        raise BadModel(
            f"external data {quote(location)} escapes the model's folder: it has "
            f"{status.st_nlink} hard links; copy the file instead"
        )
    if not os.access(path, os.R_OK):
        raise BadModel(f"external data {quote(location)} is not readable; change its permissions")
    return status.st_size


def _raise_size(tensor: TensorProto, needed: int, found: str, unit: str = "bytes") -> NoReturn:
    raise BadModel(
        f"tensor {quote(tensor.name)}: its shape needs {needed:,} {unit}, but {found}; "
        "the file is incomplete or corrupt, fetch or export it again"
    )
