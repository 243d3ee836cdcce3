"""What is drawn, before any drawing language: boxes in clusters, and edges between boxes."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

from gdn_ir.visualizations.kinds import Kind


@dataclasses.dataclass(frozen=True)
class Row:
    """An op in a box."""

    kind: Kind
    text: str
    detail: str = ""


@dataclasses.dataclass
class Box:
    """Ops that follow on each other with nothing joining or leaving in between."""

    name: str
    rows: list[Row]
    shape: str = ""
    hint: str = ""
    title: str = ""


@dataclasses.dataclass
class Cluster:
    """A repeat, a body, or a whole model."""

    name: str
    title: str
    children: list[Item]
    # How often its content stands in the graph; 0 for what is no repeat.
    count: int = 0


Item: TypeAlias = Box | Cluster


@dataclasses.dataclass(frozen=True)
class Edge:
    """Tensors from one box to another. A `carried` one goes to the next step of a repeat."""

    tail: str
    head: str
    shape: str
    hint: str
    carried: bool


@dataclasses.dataclass
class Scene:
    """A model's dataflow."""

    cluster: Cluster
    edges: list[Edge]


def count_boxes(item: Item) -> int:
    """Visible nodes."""
    return 1 if isinstance(item, Box) else sum(map(count_boxes, item.children))
