"""Which nodes of a repeated body can run before the repetition, and which after it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import onnx_ir as ir

from gdn_ir.facts import static_shape
from gdn_ir.graph_view import is_onnx, operands
from gdn_ir.passes._batched import can_be_batched, differs_by_step, is_work
from gdn_ir.passes._repeats import Repeat
from gdn_ir.region import is_constant

# A chunk's output and the state and values that make it are alike in size; a token's output is
# far smaller than the state.
_MOST_TIMES = 4


@dataclasses.dataclass(frozen=True)
class Distribution:
    """A body in three parts; each list is in the body's order.

    Attributes:
        before: what the carried values have no part in, with what it reads.
        moved: those of `before` that the body no longer holds.
        after: what the carried values do not need; with what it reads of `before`.
        late: those of `after` that the body no longer holds.
        crossing: values of the body that `after` reads, to be collected.
    """

    before: list[ir.Node]
    moved: set[ir.Node]
    after: list[ir.Node]
    late: set[ir.Node]
    crossing: list[ir.Value]


def distribution(repeat: Repeat, *, trips: int | None) -> Distribution | None:
    """The body in three parts, or None if nothing that computes leaves it.

    Args:
        repeat: a Loop or Scan.
        trips: its length, if that is known.
    """
    body = live(repeat.body)
    free = _free(repeat, body, trips)
    moved: set[ir.Node] = set()
    for node in body:
        if node in free and (is_work(node) or any(p in moved for p in _producers([node]))):
            moved.add(node)
    moved -= last_transposes(body, moved)
    late = _late(repeat, body, moved, trips)
    crossing = _crossing(repeat, late, free)
    if not _is_worth_it(repeat, late, crossing):
        late, crossing = set(), []
    if not moved and not late:
        return None
    before = _with_ancestors(moved, free)
    after = late | (_with_ancestors(_producers(late) & free, free) - before)
    return Distribution(
        [node for node in body if node in before],
        moved,
        [node for node in body if node in after],
        late,
        crossing,
    )


def live(graph: ir.Graph) -> list[ir.Node]:
    """The nodes that the graph's outputs need; what others would cost must not decide anything."""
    needed = _with_ancestors(_producers_of(graph.outputs), set(graph))
    return [node for node in graph if node in needed]


def obstacle(repeat: Repeat, *, trips: int | None) -> ir.Node | None:
    """The first node that keeps work in the body which the state does not go through; or None."""
    body = live(repeat.body)
    free = _free(repeat, body, trips)
    bound = set(repeat.carried)
    if repeat.is_loop:
        bound.add(repeat.body.inputs[1])
    stuck: ir.Node | None = None
    for node in body:
        if any(value in bound for value in operands(node)):
            bound.update(node.outputs)
        elif node not in free and not is_onnx(node, "Constant"):
            stuck = stuck or node
            if is_work(node):
                return stuck
    return None


def last_transposes(nodes: Iterable[ir.Node], moved: set[ir.Node]) -> set[ir.Node]:
    """Transposes among `moved` that others read: runtimes fold them into a product beside them."""
    found: set[ir.Node] = set()
    for node in reversed(list(nodes)):
        if node not in moved or node.op_type != "Transpose" or node.outputs[0].is_graph_output():
            continue
        if any(user not in moved or user in found for user, _ in node.outputs[0].uses()):
            found.add(node)
    return found


def _free(repeat: Repeat, body: Iterable[ir.Node], trips: int | None) -> set[ir.Node]:
    """Nodes that are made of the step, its slices and the scope around alone, and are known."""
    steps = set(repeat.body.inputs) - set(repeat.carried)
    if repeat.is_loop:
        steps.discard(repeat.body.inputs[1])
    bound = set(repeat.body.inputs) - steps
    free: set[ir.Node] = set()
    for node in body:
        inner = [value for value in operands(node) if not is_constant(value)]
        by_step = [value for value in inner if value in steps]
        is_bound = any(value in bound for value in inner)
        if is_bound or not can_be_batched(node) or differs_by_step(node, by_step, trips=trips):
            bound.update(node.outputs)
        else:
            free.add(node)
            steps.update(node.outputs if by_step else ())
    return free


def _late(
    repeat: Repeat, body: list[ir.Node], moved: set[ir.Node], trips: int | None
) -> set[ir.Node]:
    """Nodes that only collected values need."""
    needed = list(repeat.next)
    if repeat.is_loop:
        needed.append(repeat.body.outputs[0])
    inside = _with_ancestors(_producers_of(needed), set(body)) - moved
    late = {node for node in body if node not in inside and node not in moved}
    # All that is late differs by step, but for constants and what the scope around holds.
    by_step = [v for node in (*body, repeat.node) for v in node.outputs] + list(repeat.body.inputs)
    stays = {
        node
        for node in late
        if not can_be_batched(node)
        or differs_by_step(
            node,
            [v for v in operands(node) if v in by_step and not is_constant(v)],
            trips=trips,
        )
    }
    late -= _with_ancestors(stays, late)
    # Of what is late, views that nothing late computes from may as well stay.
    work = {node for node in late if is_work(node)}
    follows: set[ir.Node] = set()
    for node in body:
        if node in late and (node in work or any(p in follows for p in _producers([node]))):
            follows.add(node)
    return follows


def _crossing(repeat: Repeat, late: set[ir.Node], free: set[ir.Node]) -> list[ir.Value]:
    """What late nodes read of the body that is not made again for all steps."""
    found: dict[ir.Value, None] = {}
    inputs = set(repeat.carried)
    for node in repeat.body:
        for value in operands(node) if node in late else ():
            producer = value.producer()
            inside = value in inputs or (
                producer is not None
                and producer.graph is repeat.body
                and producer not in late
                and producer not in free
                and not is_constant(value)
            )
            if inside:
                found[value] = None
    return list(found)


def _is_worth_it(repeat: Repeat, late: set[ir.Node], crossing: list[ir.Value]) -> bool:
    """Whether the values that late nodes read can be collected, and are not much more than now."""
    # A carried value may grow from step to step, and what is collected has one shape.
    if any(static_shape(value) is None or value.dtype is None for value in crossing):
        return False
    freed = [row for row in repeat.rows if row.producer() in late]
    return _elements(crossing) <= _MOST_TIMES * _elements(freed)


def _elements(values: Iterable[ir.Value]) -> int:
    """Of one step; 0 for a value of unknown shape."""
    shapes = map(static_shape, values)
    return sum(math.prod(shape) for shape in shapes if shape is not None)


def _with_ancestors(nodes: set[ir.Node], among: set[ir.Node]) -> set[ir.Node]:
    """The nodes and those that they are made by, as far as those are `among` others."""
    found, stack = set(nodes), list(nodes)
    while stack:
        for producer in _producers([stack.pop()]):
            if producer in among and producer not in found:
                found.add(producer)
                stack.append(producer)
    return found


def _producers(nodes: Iterable[ir.Node]) -> set[ir.Node]:
    return _producers_of(value for node in nodes for value in operands(node))


def _producers_of(values: Iterable[ir.Value]) -> set[ir.Node]:
    return {p for value in values if (p := value.producer()) is not None}
