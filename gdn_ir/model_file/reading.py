"""An untrusted file in: checked before a graph is built from it."""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]

from gdn_ir.file_checks.bad_model import BadModel, quote
from gdn_ir.file_checks.graphs import NESTING_LIMIT, check_model
from gdn_ir.file_checks.tensors import ExternalData, check_tensors

_PROTOBUF_LIMIT = 2**31 - 1


def load(path: str | os.PathLike[str]) -> ir.Model:
    """Read a model from a file that may be damaged or hostile.

    Everything is checked on the parsed file (`file_checks`) before a graph is
    built. Weights in external files stay there and are read when first used; external data of
    attributes and local functions, which onnx_ir would look for in the current folder, is read
    now. Nodes that are merely out of order are sorted, stably. Unknown ops and domains are kept.

    Raises:
        BadModel: one line that names the file, the object in it, the fault and the remedy.
    """
    # Absolute, because onnx_ir checks no external path when the model's folder is "". Not
    # resolved, because external data lies beside the name given here, not beside what it links to.
    file = Path(path).absolute()
    try:
        proto = _parse(_read(file))
        scopes = check_model(proto)
        for data in check_tensors(scopes, file.parent):
            if not data.is_weight:
                _bring_in(data)
        model = _build(proto)
    except BadModel as error:
        raise BadModel(f"cannot read {path}: {error}") from None
    except OSError as error:
        raise BadModel(f"cannot read {path}: {error.strerror or error}; check the path") from None
    ir.external_data.set_base_dir(model.graph, file.parent)
    if not all(scope.is_sorted for scope in scopes):
        model.graph.sort()
        for function in model.functions.values():
            function.sort()
    return model


def _read(file: Path) -> bytes:
    status = file.stat()
    if stat.S_ISDIR(status.st_mode):
        raise BadModel("it is a folder; name the .onnx file in it")
    if not stat.S_ISREG(status.st_mode):
        raise BadModel("it is not a regular file; name an .onnx file")
    if status.st_size == 0:
        raise BadModel("not an ONNX model (empty); export or download it again")
    if status.st_size > _PROTOBUF_LIMIT:
        raise BadModel("over 2 GiB, which protobuf cannot hold; save it with external data")
    return file.read_bytes()


def _parse(content: bytes) -> onnx.ModelProto:
    """Parse as binary protobuf, whatever the file is called."""
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        if "depth" in str(error).lower():  # protobuf's own limit, beyond ours
            raise BadModel(f"nested too deeply (limit {NESTING_LIMIT} bodies)") from None
        other = _other_format(content)
        if other or content[0] != 0x08:  # every writer begins with field 1, ir_version
            raise BadModel(f"not an ONNX protobuf{other}; name an .onnx file") from None
        raise BadModel("truncated or corrupt; export or download it again") from None
    if not proto.HasField("graph"):
        # Another format may happen to parse, as fields that ONNX does not know.
        raise BadModel(
            f"not an ONNX protobuf with a graph{_other_format(content)}; export it again"
        )
    return proto


def _other_format(content: bytes) -> str:
    """What the first bytes show a file to be, for a message; empty if they show nothing."""
    start = content[:200]
    if start.startswith(b"PK\x03\x04"):
        return " (a zip archive, perhaps a PyTorch checkpoint)"
    if start[0] == 0x80 and 2 <= start[1] <= 5:
        return " (a Python pickle, perhaps a PyTorch checkpoint)"
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") < len(content):
        return " (a safetensors file: weights without a graph)"
    if start[4:8] == b"ORTM":
        return " (an ONNX Runtime .ort file)"
    if start.startswith(b"version https://git-lfs"):
        return " (a Git LFS pointer: run `git lfs pull`)"
    if all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in start):
        return " (text)"
    return ""


def _bring_in(data: ExternalData) -> None:
    """Move a tensor's data from its external file into the parsed model."""
    with data.path.open("rb") as file:
        file.seek(data.offset)
        data.tensor.raw_data = file.read(data.size)
    data.tensor.ClearField("external_data")
    data.tensor.ClearField("data_location")


def _build(proto: onnx.ModelProto) -> ir.Model:
    for importer in (proto, *proto.functions):
        for entry in importer.opset_import:
            # onnx_ir spells the domain of a node "", and keeps "ai.onnx" in an import.
            entry.domain = "" if entry.domain == "ai.onnx" else entry.domain
    try:
        with warnings.catch_warnings():
            # onnx warns of keys in external data that it does not know; ONNX Runtime has some.
            warnings.simplefilter("ignore")
            return ir.from_proto(proto)
    except Exception as error:  # a SerdeError for every level, with the reason at the bottom
        reason: BaseException = error
        while reason.__cause__ is not None:
            reason = reason.__cause__
        raise BadModel(f"onnx_ir cannot represent it: {quote(str(reason))}") from None
