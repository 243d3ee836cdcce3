"""What lays a picture out: Graphviz in whichever form is there.

In this order: a program that the user names, graphviz-pure (a dependency, a wheel without system
packages whose fonts are its own, so that one input gives the same bytes on every machine), the
system's `dot`, pygraphviz.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

_TIMEOUT_SECONDS = 120


class NoPicture(ValueError):
    """No engine is there, or none that is there succeeds; says what to do."""


class Engine(NamedTuple):
    """A way to lay out: DOT text and a format, svg or png, to a picture or to why there is none."""

    name: str
    draw: Callable[[str, str], bytes | str]


def draw(dot_text: str, picture_format: str, program: Path | None = None) -> tuple[bytes, str]:
    """The picture, and the name of the engine that laid it out.

    Args:
        dot_text: the graph.
        picture_format: svg or png.
        program: a Graphviz `dot` to use and no other.

    Raises:
        NoPicture: no engine is there, or each that is fails.
    """
    if program is not None and shutil.which(program) is None:
        raise NoPicture(f"there is no program {program}; name a Graphviz dot, or leave out --dot")
    found = [_program("--dot", program)] if program is not None else list(engines())
    if not found:
        raise NoPicture("no Graphviz engine found; run: pip install graphviz-pure")
    failures = []
    for engine in found:
        drawn = engine.draw(dot_text, picture_format)
        if isinstance(drawn, bytes):
            return drawn, engine.name
        failures.append(drawn)
    raise NoPicture("; ".join(failures))


def engines() -> Iterator[Engine]:
    """The engines of this machine, best first."""
    for name, path in (("graphviz-pure", _pure()), ("dot", shutil.which("dot"))):
        if path is not None:
            yield _program(name, Path(path))
    if importlib.util.find_spec("pygraphviz") is not None:
        yield Engine("pygraphviz", _draw_with_pygraphviz)


def _pure() -> str | None:
    """The program of the wheel: beside this Python, where no PATH may lead."""
    folders = (sysconfig.get_path("scripts"), Path(sys.executable).parent)
    beside = (shutil.which("graphviz-pure", path=str(folder)) for folder in folders)
    return next(filter(None, beside), None) or shutil.which("graphviz-pure")


def _program(name: str, path: Path) -> Engine:
    def run(dot_text: str, picture_format: str) -> bytes | str:
        try:
            done = subprocess.run(
                [path, f"-T{picture_format}"],
                input=dot_text.encode(),
                capture_output=True,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{name} took more than {_TIMEOUT_SECONDS} s"
        except OSError as error:
            return f"{name} ({path}) does not run: {error.strerror}"
        if done.returncode != 0 or not done.stdout:
            lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no output"]
            return f"{name} ({path}) failed: {lines[-1]}"
        return done.stdout

    return Engine(name, run)


def _draw_with_pygraphviz(dot_text: str, picture_format: str) -> bytes | str:
    # Not a dependency, and not typed.
    pygraphviz = importlib.import_module("pygraphviz")
    try:
        graph = pygraphviz.AGraph(string=dot_text)
        return bytes(graph.draw(format=picture_format, prog="dot"))
    except (OSError, ValueError) as error:
        return f"pygraphviz failed: {error}"
