"""What a picture is made of: ops, repeats of the same steps, groups that hide their parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import onnx_ir as ir

from gdn_ir.graph_view import bodies, walk
from gdn_ir.structural_hash import combine


@dataclasses.dataclass(frozen=True, eq=False)
class Op:
    """An op; of a repeat, the nodes that do the same in each of its steps."""

    nodes: tuple[ir.Node, ...]
    signature: str


@dataclasses.dataclass(frozen=True, eq=False)
class Repeat:
    """Steps that are wired alike, shown as one."""

    body: tuple[Element, ...]
    count: int
    signature: str


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Elements next to each other, shown as counts of their ops."""

    title: str
    body: tuple[Element, ...]


Element: TypeAlias = Op | Repeat | Group


def op_of(node: ir.Node) -> Op:
    """A node alone. Its signature leaves out all sizes, so that steps that grow are alike."""
    inside = [inner.op_type for inner in walk(n for body in bodies(node) for n in body)]
    ranks = ["?" if v.shape is None else str(v.shape.rank()) for v in node.outputs]
    parts = [*map(str, node.op_identifier()), *sorted(node.attributes), *ranks, *inside]
    return Op((node,), combine(*parts))


def repeat_of(steps: Sequence[Sequence[Element]]) -> Repeat:
    """Steps of elements that are pairwise alike, as one."""
    body = tuple(map(_merged, zip(*steps, strict=True)))
    signatures = [e.signature for e in body if not isinstance(e, Group)]
    return Repeat(body, len(steps), combine("repeat", str(len(steps)), *signatures))


def _merged(alike: Sequence[Element]) -> Element:
    first = alike[0]
    if isinstance(first, Op):
        nodes = tuple(node for op in alike if isinstance(op, Op) for node in op.nodes)
        return Op(nodes, first.signature)
    if isinstance(first, Repeat):
        bodies_ = [repeat.body for repeat in alike if isinstance(repeat, Repeat)]
        body = tuple(map(_merged, zip(*bodies_, strict=True)))
        return Repeat(body, first.count, first.signature)
    raise TypeError("groups are made after repeats")


def ops(elements: Iterable[Element]) -> Iterator[Op]:
    """All ops of the elements, in order."""
    for element in elements:
        if isinstance(element, Op):
            yield element
        else:
            yield from ops(element.body)
