"""A Loop or Scan as a body that is repeated, and how often; for static-unroll."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from gdn_ir.constants import compute
from gdn_ir.evaluate import Array
from gdn_ir.graph_view import bodies, has_parameters, is_deterministic, is_onnx, operands, walk
from gdn_ir.matching import array_of
from gdn_ir.region import is_constant

_SMALL = 1024
_LONGEST_CHAIN = 64
_MOST_VALUES = 1000


@dataclasses.dataclass(frozen=True)
class Repeat:
    """A Loop or Scan.

    Attributes:
        node: the Loop or Scan.
        body: what it repeats.
        initial: what the carried values start from.
        carried: the body's inputs for them.
        next: the body's outputs for them.
        rows: the body's outputs that are collected.
        scanned: what a Scan reads one slice of in each step.
    """

    node: ir.Node
    body: ir.Graph
    initial: Sequence[ir.Value]
    carried: Sequence[ir.Value]
    next: Sequence[ir.Value]
    rows: Sequence[ir.Value]
    scanned: Sequence[ir.Value] = ()

    @property
    def is_loop(self) -> bool:
        """Whether it is a Loop: its body is told the iteration number and may stop it."""
        return self.node.op_type == "Loop"

    @property
    def outputs(self) -> list[ir.Value]:
        """The node's outputs that something needs."""
        return [value for value in self.node.outputs if value.uses() or value.is_graph_output()]

    @property
    def size(self) -> int:
        """Nodes of the body and of those inside, constants not counted."""
        return sum(not is_onnx(node, "Constant") for node in walk(self.body))

    def integers(self, name: str, count: int) -> list[int]:
        """An attribute of a Scan: an axis or a direction for each of `count` values."""
        attr = self.node.attributes.get(name)
        return [0] * count if attr is None else list(attr.as_ints())


def read(node: ir.Node) -> Repeat | None:
    """The node as a `Repeat`; None if it is neither Loop nor Scan, or lacks an input."""
    if has_parameters(node):
        return None
    if is_onnx(node, "Loop"):
        body = node.attributes["body"].as_graph()
        initial = [value for value in node.inputs[2:] if value is not None]
        count = len(node.inputs) - 2
        if len(initial) < count or len(body.inputs) != count + 2:
            return None
        after = body.outputs[1:]
        return Repeat(node, body, initial, body.inputs[2:], after[:count], after[count:])
    if is_onnx(node, "Scan"):
        body = node.attributes["body"].as_graph()
        values = [value for value in node.inputs if value is not None]
        count = len(values) - node.attributes["num_scan_inputs"].as_int()
        if len(values) < len(node.inputs) or len(body.inputs) != len(values):
            return None
        return Repeat(
            node,
            body,
            values[:count],
            body.inputs[:count],
            body.outputs[:count],
            body.outputs[count:],
            values[count:],
        )
    return None


class Folded:
    """Arrays of values that follow from constants and static shapes by a few small nodes."""

    def __init__(self, opsets: Mapping[str, int]) -> None:
        self.opsets = opsets
        self._known: dict[ir.Value, Array | None] = {}

    def __call__(self, value: ir.Value | None, depth: int = 0) -> Array | None:
        """The value's array, or None."""
        if value is None or depth > _LONGEST_CHAIN:
            return None
        if value not in self._known:
            self._known[value] = array_of(value)
            producer = value.producer()
            if self._known[value] is None and producer is not None:
                inner: Callable[[ir.Value], Array | None] = lambda v: self(v, depth + 1)  # noqa: E731
                arrays = compute(producer, self.opsets, _SMALL, inner)
                if arrays is not None:
                    self._known[value] = arrays[producer.outputs.index(value)]
        return self._known[value]


def trips(repeat: Repeat, folded: Folded) -> int | None:
    """How many steps there are, if that is known before anything runs."""
    if not repeat.is_loop:
        return scan_length(repeat)
    count, start = map(folded, repeat.node.inputs[:2])
    stop = folded(repeat.body.outputs[0])
    starts = repeat.node.inputs[1] is None or (start is not None and bool(start.all()))
    if (start is not None and not start.all()) or (count is not None and count.max() <= 0):
        return 0
    if not starts:
        return None
    if stop is not None and not stop.all() and (count is not None or repeat.node.inputs[0] is None):
        return 1
    return int(count.max()) if count is not None and is_steady(repeat, folded) else None


def is_steady(repeat: Repeat, folded: Folded) -> bool:
    """Whether a step never stops what has started: a Scan, or a condition that stays as it is."""
    if not repeat.is_loop:
        return True
    going: ir.Value | None = repeat.body.outputs[0]
    while going is not None and going is not repeat.body.inputs[1]:
        producer = going.producer()
        if producer is None or not is_onnx(producer, "Identity"):
            known = folded(going)
            return known is not None and bool(known.all())
        going = producer.inputs[0]
    return going is not None


def scan_length(repeat: Repeat) -> int | None:
    """The size of the axis that a Scan reads along, where some input tells."""
    axes = repeat.integers("scan_input_axes", len(repeat.scanned))
    for value, axis in zip(repeat.scanned, axes, strict=True):
        size = None if value.shape is None else value.shape[axis]
        if isinstance(size, int):
            return size
    return None


def boundary(repeat: Repeat) -> list[ir.Value]:
    """What the repetition is made of: its operands, but where integers come from in their place.

    A trip count that is the size of an axis is right for inputs of that size alone.
    """
    found: dict[ir.Value, None] = {}
    stack = operands(repeat.node)[::-1]
    visited: set[ir.Value] = set()
    while stack:
        value = stack.pop()
        if value in visited or is_constant(value):
            continue
        visited.add(value)
        producer = value.producer()
        if producer is None or len(visited) > _MOST_VALUES or not _chooses(producer):
            found[value] = None
        elif producer.op_type in ("Shape", "Size"):
            found.update((source, None) for source in operands(producer) if not is_constant(source))
        else:
            stack.extend(operands(producer)[::-1])
    return list(found)


def _chooses(node: ir.Node) -> bool:
    """Whether the node makes integers or booleans of such, or of shapes."""
    if not is_onnx(node) or not is_deterministic(node) or any(bodies(node)):
        return False
    sources = [] if node.op_type in ("Shape", "Size") else operands(node)
    return not any(_may_be_real(value) for value in (*sources, *node.outputs))


def _may_be_real(value: ir.Value) -> bool:
    return value.dtype is None or not (value.dtype.is_integer() or value.dtype == ir.DataType.BOOL)
