"""Which box each value comes from, and the edges that follow from it."""

from __future__ import annotations

import onnx_ir as ir

from gdn_ir.visualizations.labels import clean, is_constant, shape_text
from gdn_ir.visualizations.scene import Edge

_MOST_NAMES = 3


class Wires:
    """Collects who makes and who reads a value; in the end both ends of each edge are known."""

    def __init__(self) -> None:
        self._of_node: dict[ir.Node, str] = {}
        self._of_value: dict[ir.Value, str] = {}
        self._order: dict[ir.Node, int] = {}
        self._read: list[tuple[ir.Value, str, ir.Node | None]] = []
        self._back: list[tuple[str, str]] = []

    def makes(self, box: str, made: ir.Node | ir.Value, order: int = 0) -> None:
        """The box makes a value, or all outputs of a node that stands at `order` in its scope."""
        if isinstance(made, ir.Value):
            self._of_value[made] = box
        else:
            self._of_node[made] = box
            self._order[made] = order

    def reads(self, box: str, value: ir.Value, by: ir.Node | None = None) -> None:
        """The box reads a value, as an operand of `by`."""
        if not is_constant(value):
            self._read.append((value, box, by))

    def carries(self, tail: str, head: str) -> None:
        """What a body yields is what it begins with the next time."""
        self._back.append((tail, head))

    def edges(self) -> list[Edge]:
        """One edge between two boxes, whatever number of tensors goes along it."""
        values: dict[tuple[str, str, bool], dict[ir.Value, None]] = {}
        for value, head, reader in self._read:
            maker = value.producer()
            tail = self._of_value.get(value) if maker is None else self._of_node.get(maker)
            if tail is None:
                continue
            carried = (
                maker is not None
                and reader is not None
                and maker.graph is reader.graph
                and self._order[maker] >= self._order[reader]
            )
            if tail != head or carried:
                values.setdefault((tail, head, carried), {})[value] = None
        found = [_edge(*ends, list(through)) for ends, through in values.items()]
        return found + [Edge(tail, head, "", "", True) for tail, head in self._back]


def _edge(tail: str, head: str, carried: bool, values: list[ir.Value]) -> Edge:
    names = [clean(value.name or "?", 60) for value in values[:_MOST_NAMES]]
    shape = shape_text(value.shape for value in values)
    more = ", ..." if len(values) > _MOST_NAMES else ""
    return Edge(tail, head, shape, f"{', '.join(names)}{more} {shape}", carried)
