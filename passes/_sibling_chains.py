"""Chains of nodes that are written alike, work on tails of their own, and fit into one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from gdn_ir.emitter import Emitter, Operand
from gdn_ir.facts import static_shape
from gdn_ir.graph_view import VIEW_OPS
from gdn_ir.passes._side_by_side import agree, cut, ends, join, needs, sources
from gdn_ir.passes._tail_local import Roles, roles, tail_of
from gdn_ir.region import is_constant
from gdn_ir.structural_hash import combine, constant_digest, operator_key

_MOST_STEPS = 10_000

Column = tuple[ir.Value, ...]  # what stands in one place of each of the chains


@dataclasses.dataclass(frozen=True)
class Siblings:
    """Chains that can be one.

    Attributes:
        steps: for each op of a chain, what it makes in each of them; operands come first.
        leaves: what the chains start from and is to stand side by side.
        shared: what all chains take as it is.
    """

    steps: tuple[Column, ...]
    leaves: tuple[tuple[Column, int], ...]
    shared: tuple[ir.Value, ...]

    @property
    def nodes(self) -> list[ir.Node]:
        """The nodes of all chains."""
        found = (value.producer() for column in self.steps for value in column)
        return list(dict.fromkeys(node for node in found if node is not None))

    @property
    def boundary(self) -> list[ir.Value]:
        """The region's inputs."""
        given = [v for column, width in self.leaves for v in sources(column, width)]
        return [v for v in dict.fromkeys([*given, *self.shared]) if not is_constant(v)]

    @property
    def wanted(self) -> list[Column]:
        """The steps of whose results something else makes use."""
        nodes = set(self.nodes)
        return [
            column
            for column in self.steps
            if any(v.is_graph_output() or any(n not in nodes for n, _ in v.uses()) for v in column)
        ]

    @property
    def outputs(self) -> list[ir.Value]:
        """The region's outputs."""
        return [value for column in self.wanted for value in ends(column)]

    @property
    def ops(self) -> int:
        """Ops of one chain, views not counted."""
        return sum(not _is_view(column[0].producer()) for column in self.steps)

    @property
    def saves(self) -> bool:
        """Whether one chain and the copies in and out are fewer ops than the chains."""
        copies = len(self.wanted)
        for column, width in self.leaves:
            if all(map(is_constant, column)):
                continue
            parts = sources(column, width)
            copies += (len(parts) > 1) + sum(tail_of(v) != width for v in column)
        before = sum(not _is_view(node) for node in self.nodes)
        return self.ops + copies < before

    def clash(self, graph: ir.Graph) -> str | None:
        """Why they cannot run at the same time; None if they can."""
        nodes = set(self.nodes)
        late = needs(self.boundary, nodes, graph)
        if late is None:
            return None
        return f"'{late.name}', which one of them starts from, needs what one of them makes"

    def emit(self, emit: Emitter) -> list[ir.Value]:
        """The one chain, and what the chains made cut out of it: a value for each output."""
        known: dict[Column, Operand] = {}
        for column, width in self.leaves:
            known[column] = join(emit, column, width)
        for column in self.steps:
            known[column] = self._step(emit, column, known)
        results: list[ir.Value] = []
        for column in self.wanted:
            whole = known[column]
            assert isinstance(whole, ir.Value), "made by a node"
            results += cut(emit, whole, [tail_of(value) or 0 for value in ends(column)])
        return results

    def _step(self, emit: Emitter, column: Column, known: dict[Column, Operand]) -> ir.Value:
        node, found = column[0].producer(), roles_of(column)
        assert node is not None and found is not None, "a step"
        operands: list[Operand] = []
        for position, role in enumerate(found):
            values = operand_column(column, position)
            if role == "shape":
                *others, width = static_shape(column[0]) or ()
                operands.append(np.array([*others, width * len(column)]))
            elif role == "absent":
                operands.append(None)
            elif role == "same" or (role == "across" and _is_one(values)):
                operands.append(values[0])  # what stands side by side elsewhere stands alone here
            else:
                operands.append(known[values])
        return emit.like(node, *operands)


def together(roots: Column) -> Siblings | None:
    """The chains that end in these values, as far up as they are alike; None if they cannot be one.

    One whole step is the least.
    """
    steps: dict[Column, None] = {}
    leaves: dict[Column, int] = {}
    shared: dict[ir.Value, None] = {}
    stack = [(roots, False)]
    while stack:
        column, finished = stack.pop()
        if column in steps or column in leaves:
            continue
        found = roles_of(column)
        if finished:
            steps[column] = None
        elif found is None:
            if not _can_be_joined(column):
                return None
            leaves[column] = tail_of(column[0]) or 0
        elif len(steps) + len(stack) > _MOST_STEPS:
            return None
        else:
            stack.append((column, True))
            for position, role in reversed(list(enumerate(found))):
                values = operand_column(column, position)
                if role == "tail":
                    stack.append((values, False))
                elif role in ("across", "same"):
                    if _is_one(values):
                        shared[values[0]] = None
                    elif not _can_be_joined(values):
                        return None
                    else:
                        leaves[values] = tail_of(column[0]) or 0
    if not steps:
        return None
    return Siblings(tuple(steps), tuple(leaves.items()), tuple(shared))


def roles_of(column: Column) -> Roles | None:
    """What the operands of nodes are that do the same to other tails; None if they do not."""
    nodes = [value.producer() for value in column]
    first = nodes[0]
    if first is None or len(set(nodes)) < len(nodes) or not agree(column):
        return None
    found = roles(first)
    if found is None:
        return None
    for node in nodes[1:]:
        if node is None or node.graph is not first.graph:
            return None
        if operator_key(node) != operator_key(first) or roles(node) != found:
            return None
    for position, role in enumerate(found):
        if role == "same" and not _is_one(operand_column(column, position)):
            return None
    return found


def operand_column(column: Column, position: int) -> Column:
    """The operands of the nodes that make a column, at one position; () if it is left out."""
    operands = [value.producer().inputs[position] for value in column]  # type: ignore[union-attr]
    return tuple(value for value in operands if value is not None)


def _is_one(values: Column) -> bool:
    """Whether they are one value, or constants that hold the same."""
    return len(set(map(_same, values))) == 1


def _same(value: ir.Value) -> str:
    return constant_digest(value) if is_constant(value) else f"value {id(value)}"


def _can_be_joined(values: Column) -> bool:
    if all(map(is_constant, values)):
        return agree(values)
    floats = all(v.dtype is not None and v.dtype.is_floating_point() for v in values)
    return floats and agree(values)


def _is_view(node: ir.Node | None) -> bool:
    return node is not None and node.op_type in VIEW_OPS


def classes(graph: ir.Graph) -> Iterator[list[ir.Value]]:
    """The ends of chains that are written alike, in the order of the graph, two at least."""
    digests: dict[ir.Value, str] = {}
    members: dict[str, list[ir.Value]] = {}
    carried: dict[ir.Value, list[ir.Value]] = {}
    for node in graph:
        found = roles(node)
        if found is None:
            continue
        result = node.outputs[0]
        parts = [operator_key(node), _form(result)]
        for role, value in zip(found, node.inputs, strict=True):
            if value is None:
                parts.append("absent")
            elif role == "tail":
                parts.append(digests.get(value) or _form(value))
                carried.setdefault(value, []).append(result)
            else:
                parts.append(_same(value) if role == "same" else f"{role} {_form(value)}")
        digests[result] = combine(*parts)
        members.setdefault(digests[result], []).append(result)
    alike = {digest for digest, values in members.items() if len(values) > 1}
    for digest in alike & set(digests.values()):
        values = members[digest]
        if not any(digests[user] in alike for v in values for user in carried.get(v, ())):
            yield values


def _form(value: ir.Value) -> str:
    return f"{value.dtype}{value.shape}"
