"""Chains of ops that share a box: a graph of forty stacks reads better than one of ninety ops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir

from gdn_ir.graph_view import bodies
from gdn_ir.visualizations.elements import Element, Op

_MOST_ROWS = 8


def stacks(
    elements: Sequence[Element], readers: Mapping[Op, Iterable[object]]
) -> list[Element | list[Op]]:
    """The elements, with chains of ops as lists, each where its last op stands.

    An op follows another in a box if nothing else reads that one. So no cycle can arise: every
    way out of a box begins at its end.

    Args:
        elements: of one scope or repeat, in order.
        readers: by op, what reads its outputs: ops, or anything else for what is no op.
    """
    here = {element for element in elements if isinstance(element, Op)}
    follower: dict[Op, Op] = {}
    taken: set[Op] = set()
    for op in elements:
        if not isinstance(op, Op) or _holds_bodies(op):
            continue
        after = set(readers.get(op, ()))
        if len(after) != 1:
            continue
        (reader,) = after
        joins = isinstance(reader, Op) and reader in here and reader not in taken
        if joins and isinstance(reader, Op) and reader is not op and not _holds_bodies(reader):
            follower[op] = reader
            taken.add(reader)
    result: list[Element | list[Op]] = []
    chains: dict[Op, list[Op]] = {}
    for element in elements:
        if not isinstance(element, Op) or _holds_bodies(element):
            result.append(element)
            continue
        chain = chains.pop(element, [])
        chain.append(element)
        if element in follower and len(chain) < _MOST_ROWS:
            chains[follower[element]] = chain
        else:
            result.append(chain)
    return result


def _holds_bodies(op: Op) -> bool:
    node: ir.Node = op.nodes[0]
    return any(True for _ in bodies(node))
