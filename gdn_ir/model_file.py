"""An untrusted file in, a file written atomically out."""

from __future__ import annotations

import os
import stat
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import (  # type: ignore[import-untyped,unused-ignore]
    DecodeError,
    EncodeError,
)

from gdn_ir.file_checks.bad_model import BadModel, quote
from gdn_ir.file_checks.graphs import NESTING_LIMIT, check_model
from gdn_ir.file_checks.tensors import ExternalData, check_tensors

__all__ = ["BadModel", "load", "save"]

# Weights up to this many bytes stay in the model file: the graph needs some of the 2 GiB too.
INLINE_LIMIT = 1_900_000_000
# With a data file, tensors of more bytes than this go into it.
SMALL_TENSOR = 1024

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


def save(
    model: ir.Model,
    path: str | os.PathLike[str],
    *,
    inputs: Iterable[str | os.PathLike[str]] = (),
) -> None:
    """Write a model so that at no moment `path` holds half of one.

    It is one file, unless the model has weights in external files or more than `INLINE_LIMIT`
    bytes of them: then the large ones go to `<path>.data`. Both are written to a temporary folder
    beside `path`, flushed, and moved from there, the data first. The model is unchanged and goes
    on reading its old files.

    Args:
        model: a model from `load`, or one made in memory.
        path: the file to write. An older one is replaced, together with its data file if the new
            one has data.
        inputs: files not to be written over, such as the one that the model came from.

    Raises:
        BadModel: `path` cannot be written, is one of `inputs`, or is a file that the model still
            reads. Then everything is as it was before.
    """
    target = Path(path).absolute()
    data = target.with_name(f"{target.name}.data")
    try:
        _check_place(model, target, data, inputs)
        # A folder, because files made in it get the usual permissions and are removed together.
        with tempfile.TemporaryDirectory(prefix=".gdn-ir.", dir=target.parent) as folder:
            new, new_data = Path(folder, target.name), Path(folder, data.name)
            with _weights_in(new_data, model):
                new.write_bytes(ir.to_proto(model).SerializeToString())
            _move(new, target, new_data, data)
    except BadModel as error:
        raise BadModel(f"cannot write {path}: {error}") from None
    except OSError as error:
        raise BadModel(f"cannot write {path}: {error.strerror or error}") from None
    except EncodeError:
        raise BadModel(
            f"cannot write {path}: over 2 GiB, which protobuf cannot hold; "
            "turn large Constant nodes into initializers"
        ) from None


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


def _check_place(
    model: ir.Model, target: Path, data: Path, inputs: Iterable[str | os.PathLike[str]]
) -> None:
    """Refuse a place that does not exist, is taken, or is still read from."""
    if not target.parent.is_dir():
        raise BadModel(f"there is no folder {target.parent}; create it first")
    sources = list(inputs)
    lazy = list(_external_tensors(model))
    for file in (target, data):
        if file.is_dir():
            raise BadModel(f"{file} is a folder; name a file")
        if file.exists() and not file.is_file():
            # The move would put a file in the place of a device or a pipe.
            raise BadModel(f"{file} is no regular file; choose another name")
        if any(_same_file(file, source) for source in sources):
            raise BadModel(f"{file} is an input; choose another name")
        if any(_same_file(file, tensor.path) for tensor in lazy):
            raise BadModel(f"the model still reads weights from {file}; choose another name")


def _external_tensors(model: ir.Model) -> Iterator[ir.ExternalTensor]:
    """The weights that are still in files.

    Raises:
        BadModel: one is where `_weights_in` would not find it, so that the file written would
            refer to a place that only the model in memory knows.
    """
    for value in _weights(model):
        if isinstance(value.const_value, ir.ExternalTensor):
            yield value.const_value
    functions = model.functions.values()
    nodes = chain(model.graph.all_nodes(), *(function.all_nodes() for function in functions))
    stray = [attr.value for node in nodes for attr in node.attributes.values()]
    stray += [
        value.const_value
        for function in functions
        for graph in function.subgraphs()
        for value in graph.initializers.values()
    ]
    for tensor in stray:
        if isinstance(tensor, ir.ExternalTensor):
            raise BadModel(
                f"tensor {quote(tensor.name)} of an attribute or a local function is in an "
                "external file; load the model with gdn_ir.load, which reads it"
            )


def _weights(model: ir.Model) -> list[ir.Value]:
    """The initializers of the graph and of the bodies in it."""
    return [value for graph in model.graphs() for value in graph.initializers.values()]


@contextmanager
def _weights_in(file: Path, model: ir.Model) -> Iterator[None]:
    """Within the block, large weights are external data in `file`, if they have to be external.

    Written by tensor, never all in memory. (`onnx_ir.save` does the same, but fails on a long
    string initializer, and cannot give the model file a temporary name.)
    """
    weights = [
        (value, value.const_value) for value in _weights(model) if value.const_value is not None
    ]
    is_external = any(isinstance(tensor, ir.ExternalTensor) for _, tensor in weights)
    if not is_external and sum(tensor.nbytes for _, tensor in weights) <= INLINE_LIMIT:
        yield
        return
    moved = [
        (value, tensor)
        for value, tensor in weights
        if tensor.dtype != ir.DataType.STRING
        and (tensor.nbytes > SMALL_TENSOR or isinstance(tensor, ir.ExternalTensor))
    ]
    written = ir.external_data.convert_tensors_to_external(
        [tensor for _, tensor in moved], file.parent, file.name
    )
    try:
        for (value, tensor), external in zip(moved, written, strict=True):
            external.doc_string = tensor.doc_string
            external.metadata_props.update(tensor.metadata_props)
            value.const_value = external
        yield
    finally:
        for value, tensor in moved:
            value.const_value = tensor


def _move(new: Path, target: Path, new_data: Path, data: Path) -> None:
    """Put a finished model, and its data file if it has one, in their places."""
    _flush(new)
    if not new_data.exists():
        new.replace(target)
        _flush(target.parent)
        return
    if data.exists() and not target.exists():
        raise BadModel(f"{data} exists without its model; remove it or choose another name")
    _flush(new_data)
    # In this order, no model is ever beside data that is not its own.
    steps = [
        (target, new.with_name(f"{new.name}.old")),
        (data, new.with_name(f"{new_data.name}.old")),
        (new_data, data),
        (new, target),
    ]
    done: list[tuple[Path, Path]] = []
    try:
        for source, destination in steps:
            if source.exists():  # the older pair need not
                source.replace(destination)
                done.append((source, destination))
    except BaseException:
        for source, destination in reversed(done):
            destination.replace(source)
        raise
    _flush(target.parent)


def _flush(path: Path) -> None:
    """Have the disk hold what the system says it holds."""
    if os.name == "nt":  # cannot open folders, nor flush what is open for reading
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _same_file(path: Path, other: str | os.PathLike[str]) -> bool:
    try:
        return path.samefile(other)
    except OSError:  # one of them does not exist
        return False
