"""From a model to a scene: what repeats is folded, what is too much is grouped, then wired."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

import onnx_ir as ir

from gdn_ir.graph_view import VIEW_OPS, bodies, is_onnx, operands
from gdn_ir.visualizations import kinds
from gdn_ir.visualizations.boxes import chain_box, group_box, port_boxes
from gdn_ir.visualizations.elements import Element, Group, Op, Repeat, ops
from gdn_ir.visualizations.grouping import Grouping, Level, levels
from gdn_ir.visualizations.labels import detail, is_constant, op_name, shape_text
from gdn_ir.visualizations.repeats import fold_repeats
from gdn_ir.visualizations.scene import Box, Cluster, Edge, Item, Row, Scene, count_boxes
from gdn_ir.visualizations.stacks import stacks
from gdn_ir.visualizations.wires import Wires
from gdn_ir.wording import counted

MOST_BOXES = 300
# Inputs or outputs beyond this share a box.
_MOST_PORTS = 16


def build_scene(model: ir.Model, title: str, prefix: str, most: int = MOST_BOXES) -> Scene:
    """A model's dataflow in at most `most` boxes.

    Args:
        model: what to draw; it stays as it is.
        title: the heading of its cluster.
        prefix: begins the names of its boxes, which are thus different in two scenes.
        most: beyond this many boxes repeats are closed, then scopes, then stretches.
    """
    folded: dict[ir.Graph, list[Element]] = {}
    for level in levels(most):
        builder = _Builder(prefix, level, folded)
        cluster = builder.cluster(model.graph, title, most_ports=min(_MOST_PORTS, most // 4))
        if count_boxes(cluster) <= most:
            break
    return Scene(cluster, builder.edges())


class _Builder:
    def __init__(self, prefix: str, level: Level, folded: dict[ir.Graph, list[Element]]) -> None:
        self._names: Iterator[str] = (f"{prefix}{number}" for number in count())
        self._level = level
        # What is the same at all levels, and takes longest.
        self._folded = folded
        self._wires = Wires()

    def edges(self) -> list[Edge]:
        return self._wires.edges()

    def cluster(self, graph: ir.Graph, title: str, most_ports: int) -> Cluster:
        values = [value for value in graph.inputs if not is_constant(value)]
        inputs = port_boxes(self._names, values, "input", kinds.COPY_IN, most_ports)
        for box, held in inputs:
            for value in held:
                self._wires.makes(box.name, value)
        inner = self._scope(graph, self._level.main)
        outputs = port_boxes(self._names, graph.outputs, "output", kinds.COPY_OUT, most_ports)
        for box, held in outputs:
            for value in held:
                self._wires.reads(box.name, value)
        children: list[Item] = [box for box, _ in inputs]
        children += inner
        children += [box for box, _ in outputs]
        return Cluster(next(self._names), title, children)

    def _scope(self, graph: ir.Graph, grouping: Grouping) -> list[Item]:
        if graph not in self._folded:
            self._folded[graph] = fold_repeats(node for node in graph if not _is_badge(node))
        elements = grouping(self._folded[graph])
        order = {op: index for index, op in enumerate(ops(elements))}
        return self._items(elements, _readers(order, graph.outputs), order)

    def _items(
        self, elements: Iterable[Element], readers: dict[Op, set[object]], order: dict[Op, int]
    ) -> list[Item]:
        items: list[Item] = []
        for element in stacks(list(elements), readers):
            name = next(self._names)
            if isinstance(element, list):
                items.append(chain_box(name, element))
                self._wire(name, name, element, order)
            elif isinstance(element, Repeat):
                inside = self._items(element.body, readers, order)
                items.append(Cluster(name, _repeat_title(element), inside, element.count))
            elif isinstance(element, Group):
                items.append(group_box(name, element))
                self._wire(name, name, ops([element]), order)
            elif self._level.draws_bodies:
                items.append(self._control(name, element, order))
            else:
                items.append(chain_box(name, [element]))
                self._wire(name, name, [element], order)
        return items

    def _wire(self, head: str, tail: str, held: Iterable[Op], order: dict[Op, int]) -> None:
        for op in held:
            for node in op.nodes:
                self._wires.makes(tail, node, order[op])
                for value in operands(node):
                    self._wires.reads(head, value, node)

    def _control(self, name: str, op: Op, order: dict[Op, int]) -> Cluster:
        """A Loop, Scan or If: a box where its operands enter, its bodies, one where it yields.

        Of such ops in the steps of a repeat the body of the first is drawn.
        """
        node = op.nodes[0]
        what = op_name(node)
        enter = Box(next(self._names), [Row(kinds.CONTROL, what, detail(op.nodes))])
        shape = shape_text([node.outputs[0].shape]) if node.outputs else ""
        leave = Box(next(self._names), [Row(kinds.CONTROL, "yield")], shape)
        for each in op.nodes:
            self._wires.makes(leave.name, each, order[op])
            for value in each.inputs:
                if value is not None:
                    self._wires.reads(enter.name, value, each)
        drawn: list[Item] = []
        held = [attr for attr in node.attributes if node.attributes[attr].type in _GRAPHS]
        for title, body in zip(sorted(held), bodies(node), strict=False):
            for value in body.inputs:
                self._wires.makes(enter.name, value)
            inside = self._scope(body, self._level.body)
            for value in body.outputs:
                self._wires.reads(leave.name, value)
            drawn += inside if len(held) == 1 else [Cluster(next(self._names), title, inside)]
        if what in ("Loop", "Scan"):
            self._wires.carries(leave.name, enter.name)
        return Cluster(name, _control_title(node), [enter, *drawn, leave])


_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def _control_title(node: ir.Node) -> str:
    return {"Loop": "body of a Loop", "Scan": "body of a Scan"}.get(node.op_type, op_name(node))


def _repeat_title(repeat: Repeat) -> str:
    nodes = [len(op.nodes) for op in ops(repeat.body)]
    return f"{counted(len(nodes), 'op')} each: {counted(sum(nodes), 'node')}"


def _is_badge(node: ir.Node) -> bool:
    """Whether a node is told by a badge where it is read: a constant, or a view of one."""
    is_one = is_onnx(node) and node.op_type in VIEW_OPS | {"Constant"}
    return is_one and all(map(is_constant, node.outputs))


def _readers(order: dict[Op, int], outputs: Sequence[ir.Value]) -> dict[Op, set[object]]:
    """By op of a scope, what reads it: other ops, itself a step before, or the scope's end."""
    owner = {node: op for op in order for node in op.nodes}
    readers: dict[Op, set[object]] = {}
    for node, op in owner.items():
        for value in operands(node):
            producer = value.producer()
            if producer in owner:
                readers.setdefault(owner[producer], set()).add(op)
    for value in outputs:
        producer = value.producer()
        if producer in owner:
            readers.setdefault(owner[producer], set()).add("output")
    return readers
