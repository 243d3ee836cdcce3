"""Ways to show less, from the gentlest to the coarsest, for graphs too large to draw op by op."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, TypeAlias

import onnx_ir as ir

from gdn_ir.visualizations.elements import Element, Group, Op, Repeat, ops
from gdn_ir.visualizations.labels import clean

Grouping: TypeAlias = Callable[[Sequence[Element]], Sequence[Element]]

_SCOPES = "pkg.torch.onnx.name_scopes"
_LONGEST_SCOPES = 2000
_DEEPEST = 6
_IN_A_BODY = 8


class Level(NamedTuple):
    """How the elements of the main graph and of bodies are grouped; whether bodies are drawn."""

    main: Grouping
    body: Grouping
    draws_bodies: bool = True


def levels(most: int) -> Iterator[Level]:
    """Ways to group, each showing less than the one before; the last shows at most `most` boxes."""
    yield Level(list, list)
    yield Level(_closed, _closed)
    for depth in range(_DEEPEST, 0, -1):
        yield Level(_by_scope(depth), _by_scope(depth))
    # A repeat that stays is one box, and inputs and outputs take some.
    yield Level(_by_order(most // 2), _by_order(_IN_A_BODY))
    yield Level(_by_order(most // 2), list, draws_bodies=False)


def _closed(elements: Sequence[Element]) -> list[Element]:
    """Each repeat as a box with the ops of a step counted."""
    return [
        Repeat((Group("a step", e.body),), e.count, e.signature) if isinstance(e, Repeat) else e
        for e in elements
    ]


def _by_scope(depth: int) -> Grouping:
    """Neighbours of one module of the source, down to `depth` names, as a box."""

    def grouped(elements: Sequence[Element]) -> list[Element]:
        found: list[Element] = []
        for scope, members in groupby(elements, lambda e: _scope(e)[:depth]):
            body = tuple(members)
            if len(body) == 1 or not scope:
                found += _closed(body)
            else:
                found.append(Group(clean("/".join(scope)), body))
        return found

    return grouped


def _scope(element: Element) -> tuple[str, ...]:
    """The modules that an op came from, outermost first, without its own name."""
    first = next(ops([element]), None)
    if first is None:
        return ()
    node: ir.Node = first.nodes[0]
    written = node.metadata_props.get(_SCOPES)
    if written is None:
        return tuple(filter(None, (node.name or "").split("/")[:-1]))
    if len(written) > _LONGEST_SCOPES:
        return ()
    try:
        names = ast.literal_eval(written)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ()
    return tuple(filter(None, map(str, names[:-1]))) if isinstance(names, list) else ()


def _by_order(most: int) -> Grouping:
    """Neighbours as boxes, so many that there are at most `most`."""

    def grouped(elements: Sequence[Element]) -> list[Element]:
        size = -(-len(elements) // most)
        if size <= 1:
            return _closed(elements)
        stretches = [tuple(elements[i : i + size]) for i in range(0, len(elements), size)]
        return [Group(f"part {i + 1}", stretch) for i, stretch in enumerate(stretches)]

    return grouped


def counted_ops(group: Group) -> list[tuple[Op, int]]:
    """One op of each type and how many nodes of it the group hides, most first."""
    found: dict[tuple[str, str], tuple[Op, int]] = {}
    for op in ops([group]):
        key = (op.nodes[0].domain, op.nodes[0].op_type)
        first, number = found.get(key, (op, 0))
        found[key] = (first, number + len(op.nodes))
    return sorted(found.values(), key=lambda pair: (-pair[1], pair[0].nodes[0].op_type))
