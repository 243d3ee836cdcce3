"""cse: of nodes that compute the same, one stays."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import onnx_ir as ir

from gdn_ir.graph_view import bodies, is_deterministic, scopes
from gdn_ir.pass_base import CleanUp
from gdn_ir.region import is_constant
from gdn_ir.removal import erase
from gdn_ir.structural_hash import SMALL, constant_digest, operator_key


@dataclasses.dataclass(frozen=True)
class CommonSubexpressions(CleanUp):
    """Merges nodes of one scope with the same op, attributes and inputs.

    Inputs are the same if they are one value, or constants of equal type and content up to 64 KiB.
    Random ops, training-mode Dropout, ops of foreign domains and control flow are never merged,
    and attributes are compared with their type. A node whose output is a graph output stays, so
    that no output loses its name.
    """

    name: ClassVar[str] = "cse"

    def clean(self, model: ir.Model) -> bool:
        """One sweep a scope, in topological order."""
        merged = False
        for graph in scopes(model):
            first: dict[tuple[object, ...], ir.Node] = {}
            for node in list(graph):
                if not is_deterministic(node) or any(bodies(node)):
                    continue
                known = first.setdefault(_key(node), node)
                if known is not node:
                    merged |= _merge(graph, node, known)
        return merged


def _key(node: ir.Node) -> tuple[object, ...]:
    return (operator_key(node), *map(_operand_key, node.inputs))


def _operand_key(value: ir.Value | None) -> object:
    """Small constants count by content, everything else by identity."""
    tensor = value.const_value if value is not None else None
    if value is None or not is_constant(value) or tensor is None or tensor.nbytes > SMALL:
        return value
    return constant_digest(value)


def _merge(graph: ir.Graph, node: ir.Node, known: ir.Node) -> bool:
    if any(value.is_graph_output() for value in node.outputs):
        return False
    if any(v.uses() and not k.name for v, k in zip(node.outputs, known.outputs, strict=True)):
        return False  # the first one leaves this output out
    for value, other in zip(node.outputs, known.outputs, strict=True):
        value.replace_all_uses_with(other)
    erase(graph, node)
    return True
