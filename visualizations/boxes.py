"""Boxes for ops, chains of ops, groups, and the inputs and outputs of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from gdn_ir.visualizations.elements import Group, Op
from gdn_ir.visualizations.grouping import counted_ops
from gdn_ir.visualizations.kinds import Kind, kind_of
from gdn_ir.visualizations.labels import clean, detail, op_name, shape_text
from gdn_ir.visualizations.scene import Box, Row

_MOST_COUNTED = 8
_MOST_HINTS = 4


def chain_box(name: str, chain: Sequence[Op]) -> Box:
    """Ops one under the other, and the shape of what the last one makes."""
    rows = [Row(kind_of(op.nodes[0]), op_name(op.nodes[0]), detail(op.nodes)) for op in chain]
    shapes = [node.outputs[0].shape if node.outputs else None for node in chain[-1].nodes]
    return Box(name, rows, shape_text(shapes), _hint([op.nodes[0].name for op in chain]))


def group_box(name: str, group: Group) -> Box:
    """What a group hides, counted."""
    counts = counted_ops(group)
    rows = [
        Row(kind_of(op.nodes[0]), f"{number} {op_name(op.nodes[0])}")
        for op, number in counts[:_MOST_COUNTED]
    ]
    if rest := sum(number for _, number in counts[_MOST_COUNTED:]):
        rows.append(Row(rows[-1].kind._replace(fill="#ffffff", ink="#777777"), f"{rest} more"))
    return Box(name, rows, title=group.title)


def port_boxes(
    names: Iterator[str], values: Sequence[ir.Value], what: str, kind: Kind, most: int
) -> list[tuple[Box, list[ir.Value]]]:
    """A box for each input or output; for more than `most`, one for all."""
    shared = [list(values)] if len(values) > most else [[value] for value in values]
    return [(_port_box(next(names), together, what, kind), together) for together in shared]


def _port_box(name: str, values: Sequence[ir.Value], what: str, kind: Kind) -> Box:
    hint = _hint([value.name for value in values])
    if len(values) > 1:
        return Box(name, [Row(kind, f"{len(values)} {what}s")], "", hint)
    row = Row(kind, clean(values[0].name or "?", 24), what)
    return Box(name, [row], shape_text([values[0].shape]), hint)


def _hint(names: Sequence[str | None]) -> str:
    shown = [clean(name, 60) for name in names[:_MOST_HINTS] if name]
    return ", ".join(shown) + (", ..." if len(names) > _MOST_HINTS else "")
