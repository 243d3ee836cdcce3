"""The figures that stand above a picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import onnx_ir as ir

from gdn_ir.graph_view import copies, scopes, serial_steps
from gdn_ir.observers import count_nodes


@dataclasses.dataclass(frozen=True)
class Counts:
    """What a model consists of, bodies of Loops and Scans counted once."""

    nodes: int
    copies_in: int
    copies_out: int
    # Of the main graph, in which a Loop or Scan is one step.
    serial_steps: int
    loops: int


def count(model: ir.Model) -> Counts:
    """The figures of a model."""
    pairs = [copies(graph) for graph in scopes(model)]
    return Counts(
        nodes=count_nodes(model),
        copies_in=sum(copied_in for copied_in, _ in pairs),
        copies_out=sum(copied_out for _, copied_out in pairs),
        serial_steps=serial_steps(model.graph),
        loops=sum(node.op_type in ("Loop", "Scan") for graph in scopes(model) for node in graph),
    )


def table(counts: Mapping[str, Counts]) -> list[list[str]]:
    """Rows of text, one a model; the first says what the columns are."""
    steps = "serial steps" + (", a Loop as one" if any(c.loops for c in counts.values()) else "")
    rows = [
        [name, str(c.nodes), str(c.copies_in), str(c.copies_out), str(c.serial_steps)]
        for name, c in counts.items()
    ]
    return [["", "nodes", "copies in", "copies out", steps], *rows]
