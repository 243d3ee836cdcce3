"""How messages put things: numbers of things, and the names that a wrong one is near to."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 node`, `2 nodes`; `plural` where it is not the noun with an s."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def did_you_mean(name: str, known: Iterable[str], *, most: int = 1) -> str:
    """The end of a message about a wrong name: names that are near to it, or ""."""
    near = difflib.get_close_matches(name, sorted(known), n=most, cutoff=0.5)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """The same, and all names where none is near."""
    known = sorted(known)
    return did_you_mean(name, known) or f"; there are: {', '.join(known) or 'none'}"
