"""A file written atomically out, with a data file beside it for large weights."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import onnx_ir as ir
from google.protobuf.message import EncodeError  # type: ignore[import-untyped,unused-ignore]

from gdn_ir import place
from gdn_ir.file_checks.bad_model import BadModel, quote

# Weights up to this many bytes stay in the model file: the graph needs some of the 2 GiB too.
INLINE_LIMIT = 1_900_000_000
# With a data file, tensors of more bytes than this go into it.
SMALL_TENSOR = 1024


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
    with _ready(model, path, inputs) as (folder, target, data):
        new, new_data = folder / target.name, folder / data.name
        with _weights_in(new_data, model):
            new.write_bytes(ir.to_proto(model).SerializeToString())
        _move(new, target, new_data, data)


def check_place(
    model: ir.Model,
    path: str | os.PathLike[str],
    *,
    inputs: Iterable[str | os.PathLike[str]] = (),
) -> None:
    """Say before the work what `save` would say of the place after it.

    Args:
        model: what the result is made from; files that it reads are not to be written over.
        path, inputs: as for `save`.

    Raises:
        BadModel: as `save`.
    """
    with _ready(model, path, inputs):
        pass


@contextmanager
def _ready(
    model: ir.Model, path: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]]
) -> Iterator[tuple[Path, Path, Path]]:
    """A folder to write in, and where the model and its data go from there."""
    target = Path(path).absolute()
    data = target.with_name(f"{target.name}.data")
    try:
        with place.workspace(target, data, inputs=inputs) as folder:
            for tensor in _external_tensors(model):
                for file in (target, data):
                    if place.is_same(file, tensor.path):
                        raise BadModel(
                            f"the model still reads weights from {file}; choose another name"
                        )
            yield folder, target, data
    except (BadModel, place.BadPlace) as error:
        raise BadModel(f"cannot write {path}: {error}") from None
    except OSError as error:
        raise BadModel(f"cannot write {path}: {error.strerror or error}") from None
    except EncodeError:
        raise BadModel(
            f"cannot write {path}: over 2 GiB, which protobuf cannot hold; "
            "turn large Constant nodes into initializers"
        ) from None


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
    place.flush(new)
    if not new_data.exists():
        new.replace(target)
        place.flush(target.parent)
        return
    if data.exists() and not target.exists():
        raise BadModel(f"{data} exists without its model; remove it or choose another name")
    place.flush(new_data)
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
    place.flush(target.parent)
