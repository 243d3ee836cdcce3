"""Patterns of ops: rooted at one node, found through an index, and able to say why they failed.

ADD_EYE = Op("Add", Var("x"), Constant("eye", is_identity, "an identity"), commutes=True)
for node in OpIndex(graph).of("Add"):
    match = ADD_EYE.match(node)     # {"x": Value, "eye": Value} or a Mismatch, which is false
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir

from gdn_ir.evaluate import Array
from gdn_ir.graph_view import has_parameters, is_onnx
from gdn_ir.region import is_constant
from gdn_ir.wording import counted

Binding = dict[str, ir.Value]


class OpIndex:
    """The nodes of a scope by op type, so that a pattern looks at candidates only."""

    def __init__(self, graph: ir.Graph) -> None:
        self._nodes: dict[str, list[tuple[int, ir.Node]]] = {}
        for position, node in enumerate(graph):
            if is_onnx(node) and not has_parameters(node):
                self._nodes.setdefault(node.op_type, []).append((position, node))

    def of(self, *op_types: str) -> Iterator[ir.Node]:
        """Nodes of these types that are still in the graph, in its order."""
        for _, node in heapq.merge(*(self._nodes.get(op_type, ()) for op_type in op_types)):
            if node.graph is not None:
                yield node


@dataclass(frozen=True)
class Mismatch:
    """Why a pattern does not hold; it is false where a binding is true."""

    where: str
    reason: str

    def __bool__(self) -> Literal[False]:
        return False

    def __str__(self) -> str:
        return f"'{self.where}' {self.reason}"


@dataclass(frozen=True)
class Var:
    """Any value; two of one name must be the same value."""

    name: str

    def match_value(self, value: ir.Value) -> Binding | Mismatch:
        """Binds the value."""
        return {self.name: value}


@dataclass(frozen=True)
class Constant:
    """A constant whose array has a property; `what` names the property in a mismatch."""

    name: str
    holds: Callable[[Array], bool]
    what: str

    def match_value(self, value: ir.Value) -> Binding | Mismatch:
        """Binds the value where its array has the property."""
        array = array_of(value)
        if array is None:
            return Mismatch(value.name or "?", "is not a constant")
        return (
            {self.name: value}
            if self.holds(array)
            else Mismatch(value.name or "?", f"is not {self.what}")
        )


class Op:
    """One op and patterns for its first inputs, the rest being no matter."""

    def __init__(self, op_type: str, *inputs: Var | Constant | Op, commutes: bool = False) -> None:
        self.op_type = op_type
        self._orders = [inputs, inputs[::-1]] if commutes else [inputs]

    def match(self, node: ir.Node) -> Binding | Mismatch:
        """Values by name, or why not; with `commutes`, the reason of the second order."""
        if not is_onnx(node, self.op_type):
            return Mismatch(
                node.outputs[0].name or "?", f"is made by {node.op_type}, not {self.op_type}"
            )
        result: Binding | Mismatch = {}
        for order in self._orders:
            result = self._match_inputs(node, order)
            if not isinstance(result, Mismatch):
                break
        return result

    def match_value(self, value: ir.Value) -> Binding | Mismatch:
        """`match` at the value's producer."""
        producer = value.producer()
        if producer is None:
            return Mismatch(value.name or "?", f"is not made by {self.op_type}")
        return self.match(producer)

    def _match_inputs(
        self, node: ir.Node, patterns: tuple[Var | Constant | Op, ...]
    ) -> Binding | Mismatch:
        bound: Binding = {}
        if len(node.inputs) < len(patterns):
            return Mismatch(
                node.outputs[0].name or "?", f"has {counted(len(node.inputs), 'input')}"
            )
        for pattern, value in zip(patterns, node.inputs, strict=False):
            if value is None:
                return Mismatch(node.outputs[0].name or "?", "lacks an optional input")
            found = pattern.match_value(value)
            if isinstance(found, Mismatch):
                return found
            for name, other in found.items():
                if bound.setdefault(name, other) is not other:
                    return Mismatch(other.name or "?", f"is not the same value as {name}")
        return bound


def array_of(value: ir.Value | None) -> Array | None:
    """The array of a constant, else None."""
    if value is None or not is_constant(value):
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def is_identity(array: Array) -> bool:
    """Whether the array broadcasts an n by n identity, n > 1."""
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.shape[-1] < 2:
        return False
    return bool((array == np.eye(array.shape[-1])).all())
