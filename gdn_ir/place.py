"""A place to write to: checked before the work whose result it is to hold, filled in one move."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class BadPlace(ValueError):
    """Nothing can be written there; says why and what to do."""


@contextmanager
def workspace(*files: Path, inputs: Iterable[str | os.PathLike[str]] = ()) -> Iterator[Path]:
    """A temporary folder beside `files`, to write them in and to move them from.

    A folder, because files made in it get the usual permissions and are removed together.

    Args:
        files: where things are to be in the end, all in one folder.
        inputs: files not to be written over.

    Raises:
        BadPlace: one of `files` is taken, is one of `inputs`, or its folder cannot be written to.
    """
    sources = list(inputs)
    for file in files:
        if not file.parent.is_dir():
            raise BadPlace(f"there is no folder {file.parent}; create it first")
        if file.is_dir():
            raise BadPlace(f"{file} is a folder; name a file")
        if file.exists() and not file.is_file():
            # The move would put a file in the place of a device or a pipe.
            raise BadPlace(f"{file} is no regular file; choose another name")
        if any(is_same(file, source) for source in sources):
            raise BadPlace(f"{file} is an input; choose another name")
    parent = files[0].parent
    try:
        folder = tempfile.TemporaryDirectory(prefix=".gdn-ir.", dir=parent)
    except OSError as error:
        raise BadPlace(
            f"nothing can be written in {parent} ({error.strerror or error}); choose another folder"
        ) from None
    with folder:
        yield Path(folder.name)


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it; one that is there is kept.

    Raises:
        BadPlace: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise BadPlace(f"{folder} is a file; name a folder") from None
    except OSError as error:
        raise BadPlace(
            f"cannot make folder {folder} ({error.strerror or error}); choose another"
        ) from None


def flush(path: Path) -> None:
    """Has the disk hold what the system says it holds."""
    if os.name == "nt":  # cannot open folders, nor flush what is open for reading
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_same(path: Path, other: str | os.PathLike[str]) -> bool:
    """Whether both are one file, by whatever names or links."""
    try:
        return path.samefile(other)
    except OSError:  # one of them does not exist
        return False
