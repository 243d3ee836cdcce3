"""Named arrays in an .npz file, under any name that a value may have."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

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
    """Writes the file that `numpy.load` reads.

    numpy.savez takes names as keywords, among which `file` is its own, and adds a suffix.
    """
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)


def load(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Reads the arrays.

    Raises:
        OSError: there is no such file.
        ValueError: it is no .npz file, or holds Python objects.
    """
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = dict(archive)
    except _UNREADABLE as error:
        raise ValueError(
            f"cannot read {path} as .npz ({error}); write it with numpy.savez"
        ) from None
    # numpy hands out as bytes what is no array.
    if others := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise ValueError(
            f"cannot read {path} as .npz: {', '.join(others)} is no array; "
            "write it with numpy.savez"
        )
    return arrays
