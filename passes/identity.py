"""identity: an Identity is its input."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import onnx_ir as ir

from gdn_ir.graph_view import is_onnx, scopes
from gdn_ir.pass_base import CleanUp
from gdn_ir.removal import erase


@dataclasses.dataclass(frozen=True)
class EliminateIdentity(CleanUp):
    """Removes Identity nodes, but those that a scope's interface needs.

    An output of a graph or body keeps its own node and name: it may be an input passed through, a
    captured value (which ONNX forbids as a body output), or one value under two names.
    """

    name: ClassVar[str] = "identity"

    def clean(self, model: ir.Model) -> bool:
        """One sweep over all scopes."""
        removed = False
        for graph in scopes(model):
            for node in list(graph):
                source, result = (node.inputs or [None])[0], node.outputs[0]
                if not is_onnx(node, "Identity") or source is None or result.is_graph_output():
                    continue
                result.replace_all_uses_with(source)
                erase(graph, node)
                removed = True
        return removed
