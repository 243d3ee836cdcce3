"""dce: what nothing needs goes."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import onnx_ir as ir

from gdn_ir.graph_view import scopes
from gdn_ir.pass_base import CleanUp
from gdn_ir.removal import erase


@dataclasses.dataclass(frozen=True)
class DeadCode(CleanUp):
    """Removes nodes none of whose outputs are used, then initializers that nothing reads.

    What a removed Loop or If captured is released with it, so that the producers of those values
    go in the same sweep. Graph inputs stay, used or not.
    """

    name: ClassVar[str] = "dce"

    def clean(self, model: ir.Model) -> bool:
        """One sweep a scope against the topological order, outer scopes last."""
        removed = False
        for graph in reversed(list(scopes(model))):
            for node in reversed(list(graph)):
                if node.graph is graph and not any(map(_is_needed, node.outputs)):
                    erase(graph, node)
                    removed = True
        for graph in scopes(model):
            for name, value in list(graph.initializers.items()):
                if not _is_needed(value) and not value.is_graph_input():
                    del graph.initializers[name]
                    removed = True
        return removed


def _is_needed(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()
