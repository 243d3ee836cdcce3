"""Named arrays in an .npz file, under any name that a value may have."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from gdn_ir import place
from gdn_ir.evaluate import Array

# What numpy and zipfile raise for a file that is another, empty, truncated, corrupt or encrypted.
_UNREADABLE = (
    ValueError,
    TypeError,
    AttributeError,
    EOFError,
    RuntimeError,
    zlib.error,
    zipfile.BadZipFile,
)


def save(path: str | os.PathLike[str], arrays: Mapping[str, Array]) -> None:
    """Writes the file that `numpy.load` reads, whole or not at all.

    numpy.savez takes names as keywords, among which `file` is its own, and adds a suffix.

    Raises:
        ValueError: nothing can be written there.
    """
    with _ready(path, ()) as (new, target):
        with zipfile.ZipFile(new, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)
        new.replace(target)


def check_place(
    path: str | os.PathLike[str], *, inputs: Iterable[str | os.PathLike[str]] = ()
) -> None:
    """Says before the work what `save` would say of the place after it.

    Raises:
        ValueError: nothing can be written there, or it is one of `inputs`.
    """
    with _ready(path, inputs):
        pass


@contextmanager
def _ready(
    path: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]]
) -> Iterator[tuple[Path, Path]]:
    """A file to write, and where it goes from there."""
    target = Path(path).absolute()
    try:
        with place.workspace(target, inputs=inputs) as folder:
            yield folder / target.name, target
    except place.BadPlace as error:
        raise ValueError(f"cannot write {path}: {error}") from None
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror or error}") from None


def load(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Reads the arrays.

    Raises:
        ValueError: there is no such file, it is no .npz file, or it holds what is no array.
    """
    try:
        return _read(Path(path))
    except _Unreadable as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}; check the path") from None


class _Unreadable(Exception):
    """Says in one line what a file is not."""


def _read(path: Path) -> dict[str, Array]:
    with path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise _Unreadable("it is no .npz file, or a damaged one; write it with numpy.savez")
        file.seek(0)
        try:
            archive = np.load(file, allow_pickle=False)
        except _UNREADABLE:
            raise _Unreadable("it is a damaged .npz file; write it again") from None
        with archive:
            return {name: _array(archive, name) for name in archive.files}


def _array(archive: Mapping[str, Array], name: str) -> Array:
    try:
        array = archive[name]
    except _UNREADABLE as error:
        # numpy refuses what only pickle could read, which may run any code.
        pickled = "pickle" in str(error)
        what = "holds Python objects; save numbers" if pickled else "is damaged; write it again"
        raise _Unreadable(f"'{name}' {what}") from None
    if not isinstance(array, np.ndarray):  # numpy hands out as bytes what is no array
        raise _Unreadable(f"'{name}' is no array; write it with numpy.savez")
    return array
