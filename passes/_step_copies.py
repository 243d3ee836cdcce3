"""Copies of one computation, a copy for each step on its own piece; for hoist-chunk-work."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import networkx as nx
import numpy as np
import onnx_ir as ir

from gdn_ir.emitter import Emitter
from gdn_ir.graph_view import operands
from gdn_ir.passes._batched import Batch, can_be_batched, differs_by_step, is_work
from gdn_ir.passes._distribution import last_transposes, live
from gdn_ir.passes._pieces import Cut, cut_by
from gdn_ir.passes._side_by_side import needs
from gdn_ir.region import is_constant
from gdn_ir.structural_hash import combine, constant_digest, operator_key

# Two or three pieces are rather the q, k and v of one projection. To put those side by side costs
# more than the few nodes: a layer of 1024 tokens took 1.2 times as long.
_FEWEST = 4


@dataclasses.dataclass(frozen=True)
class Copies:
    """Nodes that do the same in each step, to pieces of the same tensors.

    Attributes:
        count: the number of pieces, which is that of the steps.
        steps: the step that each of the values belongs to.
        pieces: values that are pieces, by the cut that makes them.
        rows: for each op, a node for each step that has it; operands come first.
        moved: those of the nodes that run for all steps at once; the rest are views they read.
    """

    count: int
    steps: dict[ir.Value, int]
    pieces: dict[Cut, list[ir.Value]]
    rows: list[list[ir.Node]]
    moved: set[ir.Node]

    @property
    def boundary(self) -> list[ir.Value]:
        """The region's inputs: what is cut, and what all steps read."""
        found = {cut.source: None for cut in self.pieces}
        for row in self.rows:
            found.update((v, None) for v in operands(row[0]) if v not in self.steps)
        return [value for value in found if not is_constant(value)]

    @property
    def outputs(self) -> list[ir.Value]:
        """The region's outputs: what something else makes use of."""
        made = (v for row in self.rows for node in row if node in self.moved for v in node.outputs)
        return [
            value
            for value in made
            if value.is_graph_output() or any(user not in self.moved for user, _ in value.uses())
        ]

    @property
    def saves(self) -> bool:
        """Whether there are fewer nodes afterwards, the copies in and out among them."""
        rows = sum(row[0] in self.moved for row in self.rows)
        return rows + len(self.pieces) + len(self.outputs) < len(self.moved) + self._idle_pieces

    @property
    def _idle_pieces(self) -> int:
        """How many pieces nothing else makes use of."""
        members = {node for row in self.rows for node in row}
        pieces = (value for values in self.pieces.values() for value in values)
        return sum(
            not value.is_graph_output() and all(user in members for user, _ in value.uses())
            for value in pieces
        )

    def clash(self, graph: ir.Graph) -> str | None:
        """Why they cannot run at the same time; None if they can."""
        late = needs(self.boundary, self.moved, graph)
        return None if late is None else f"'{late.name}', which a step reads, needs another step"

    def emit(self, emit: Emitter) -> list[ir.Value]:
        """All steps at once, and from it a value for each of the outputs."""
        batch = Batch(emit, self.count)
        for cut, values in self.pieces.items():
            whole = cut.side_by_side(emit)
            batch.of_steps.update((value, whole) for value in values)
        for first, *others in self.rows:
            batch.node(first)
            made = [batch.of_steps[value] for value in first.outputs]
            for node in others:
                batch.of_steps.update(zip(node.outputs, made, strict=True))
        return [
            emit.op("Gather", batch.of_steps[value], np.array(self.steps[value]), axis=0)
            for value in self.outputs
        ]


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where a value stands: what it is in its step, which step, and of how many."""

    what: str
    step: int
    count: int


def find(graph: ir.Graph) -> Iterator[Copies]:
    """All that is worth to be done for all steps at once, what hangs together in one."""
    places: dict[ir.Value, _Place] = {}
    pieces: dict[Cut, list[ir.Value]] = {}
    rows: dict[str, list[ir.Node]] = {}
    for node in live(graph):
        row, found = _row(node, places), cut_by(node)
        if row is not None:
            what, step, count = row
            rows.setdefault(what, []).append(node)
            for index, value in enumerate(node.outputs):
                places[value] = _Place(combine(what, str(index)), step, count)
        elif found is not None and found[0].source not in places:
            cut, first = found
            for index, value in enumerate(node.outputs, start=first):
                places[value] = _Place(cut.digest, index, cut.count)
                pieces.setdefault(cut, []).append(value)
    enough = [row for row in rows.values() if _covers(row, places)]
    yield from _connected(enough, pieces, places)


def _row(node: ir.Node, places: dict[ir.Value, _Place]) -> tuple[str, int, int] | None:
    """What a node does in its step, the step and how many there are; None if it has no one step."""
    by_step = [value for value in operands(node) if value in places]
    steps = {(places[value].step, places[value].count) for value in by_step}
    if len(steps) != 1 or not can_be_batched(node):
        return None
    if differs_by_step(node, by_step, trips=None):
        return None
    parts = [operator_key(node), *(f"{v.dtype}{v.shape}" for v in node.outputs)]
    for value in node.inputs:
        if value is None:
            parts.append("absent")
        elif value in places:
            parts.append(places[value].what)
        else:
            parts.append(constant_digest(value) if is_constant(value) else f"value {id(value)}")
    ((step, count),) = steps
    return combine(*parts, str(count)), step, count


def _covers(row: list[ir.Node], places: dict[ir.Value, _Place]) -> bool:
    """Whether the steps have the op, all but one: the last needs no next state."""
    count = places[row[0].outputs[0]].count
    steps = {places[node.outputs[0]].step for node in row}
    return count >= _FEWEST and len(steps) >= count - 1


def _connected(
    rows: list[list[ir.Node]], pieces: dict[Cut, list[ir.Value]], places: dict[ir.Value, _Place]
) -> Iterator[Copies]:
    """The rows that compute, and what these read, in groups that share nothing."""
    row_of = {node: index for index, row in enumerate(rows) for node in row}
    cut_of = {value: cut for cut, values in pieces.items() for value in values}
    above = [{row_of[p] for v in row[0].inputs if v and (p := v.producer()) in row_of}
             for row in rows]  # fmt: skip
    moved: set[int] = set()
    for index, row in enumerate(rows):
        if is_work(row[0]) or above[index] & moved:
            moved.add(index)
    computed = {node for index in moved for node in rows[index]}
    moved -= {row_of[node] for node in last_transposes(row_of, computed)}
    links = nx.Graph()
    links.add_nodes_from(moved)
    stack = list(moved)
    needed = set(moved)
    while stack:
        index = stack.pop()
        links.add_edges_from((index, source) for source in above[index])
        links.add_edges_from((index, cut_of[v]) for v in rows[index][0].inputs if v in cut_of)
        stack += above[index] - needed
        needed |= above[index]
    for group in list(nx.connected_components(links)):
        chosen = sorted(index for index in group if isinstance(index, int))
        nodes = [rows[index] for index in chosen]
        read = {cut: pieces[cut] for cut in pieces if cut in group}
        values = [v for row in nodes for node in row for v in node.outputs]
        values += [v for pieces_of_cut in read.values() for v in pieces_of_cut]
        yield Copies(
            places[values[0]].count,
            {value: places[value].step for value in values},
            read,
            nodes,
            {node for index in chosen if index in moved for node in rows[index]},
        )
