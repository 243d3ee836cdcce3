"""Scope: one level of value names in a parsed model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from onnx import FunctionProto, GraphProto, NodeProto


@dataclass(eq=False)
class Scope:
    """One level of value names: the graph, a body (of Loop, Scan, If) or a local function."""

    proto: GraphProto | FunctionProto
    where: str
    parent: Scope | None = None
    site: int = -1  # index, in the parent, of the node that holds this body
    depth: int = 0
    # value -> index of the node that makes it; -1 for inputs and initializers
    defined: dict[str, int] = field(default_factory=dict)
    # site of a body -> names it takes from here or further out -> a node that reads each
    captured: dict[int, dict[str, NodeProto]] = field(default_factory=dict)
    # index of a node -> its place in a topological order
    rank: Sequence[int] = ()

    @property
    def root(self) -> Scope:
        """The graph or local function that this scope lies in, however deep."""
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    @property
    def is_sorted(self) -> bool:
        """Whether the file lists the nodes in a topological order."""
        return isinstance(self.rank, range)
