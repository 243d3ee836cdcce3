"""Targets: what a runtime can execute and the pipeline for it, one JSON file each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources

from gdn_ir.wording import nearest


@dataclass(frozen=True)
class Target:
    """A runtime as data.

    Attributes:
        name: what `--target` calls it.
        description: one line for people.
        pipeline: its pipeline text.
        domains: op domains that it executes.
    """

    name: str
    description: str
    pipeline: str
    domains: tuple[str, ...]


def names() -> list[str]:
    """All targets, sorted."""
    files = resources.files(__name__).iterdir()
    return sorted(f.name.removesuffix(".json") for f in files if f.name.endswith(".json"))


def load(name: str) -> Target:
    """A target by name.

    Raises:
        ValueError: there is none; the nearest one is named.
    """
    if name not in names():
        raise ValueError(f"no target '{name}'{nearest(name, names())}")
    data = json.loads((resources.files(__name__) / f"{name}.json").read_text("utf-8"))
    return Target(name, data["description"], data["pipeline"], tuple(data["domains"]))
