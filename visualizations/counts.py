"""The figures that stand above a picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import onnx_ir as ir

from gdn_ir.graph_view import is_onnx, serial_steps, walk
from gdn_ir.observers import count_nodes
from gdn_ir.visualizations.kinds import COPY_IN, COPY_OUT, kind_of


@dataclasses.dataclass(frozen=True)
class Counts:
    """What a model consists of, bodies of Loops and Scans counted once."""

    # With those of local functions, whose calls are boxes.
    nodes: int
    # As drawn: of the main graph and the bodies in it.
    copies_in: int
    copies_out: int
    # Of the main graph, in which a Loop or Scan is one step.
    serial_steps: int
    loops: int


def count(model: ir.Model) -> Counts:
    """The figures of a model."""
    nodes = list(walk(model.graph))
    drawn = [kind_of(node) for node in nodes]
    return Counts(
        nodes=count_nodes(model),
        copies_in=drawn.count(COPY_IN),
        copies_out=drawn.count(COPY_OUT),
        serial_steps=serial_steps(model.graph),
        loops=sum(is_onnx(node, "Loop") or is_onnx(node, "Scan") for node in nodes),
    )


def table(counts: Mapping[str, Counts]) -> list[list[str]]:
    """Rows of text, one a model; the first says what the columns are."""
    steps = "serial steps" + (", a Loop as one" if any(c.loops for c in counts.values()) else "")
    rows = [
        [name, str(c.nodes), str(c.copies_in), str(c.copies_out), str(c.serial_steps)]
        for name, c in counts.items()
    ]
    return [["", "nodes", "copies in", "copies out", steps], *rows]
