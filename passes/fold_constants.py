"""fold-constants: what depends on constants and static shapes alone is computed once, here."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import onnx_ir as ir

from gdn_ir.constants import compute
from gdn_ir.graph_view import scopes
from gdn_ir.pass_base import CleanUp
from gdn_ir.removal import erase


@dataclasses.dataclass(frozen=True)
class FoldConstants(CleanUp):
    """Nodes whose inputs are all constant become initializers; Shape of a static shape too.

    Each op is computed in the model's own types by onnx's reference implementation. A node that
    would make more than `limit` bytes stays, so that no Expand or ConstantOfShape can blow a model
    up; so do random ops, control flow, ops of foreign domains, and whatever is a graph output.
    """

    name: ClassVar[str] = "fold-constants"

    limit: int = 16 * 2**20

    def clean(self, model: ir.Model) -> bool:
        """Folds in topological order, so that one sweep reaches whole chains."""
        # A local function has no place for initializers.
        functions = {function.graph for function in model.functions.values()}
        folded = False
        for graph in scopes(model):
            if graph in functions:
                continue
            for node in list(graph):
                folded |= self._fold(model, graph, node)
        return folded

    def _fold(self, model: ir.Model, graph: ir.Graph, node: ir.Node) -> bool:
        if any(value.is_graph_output() for value in node.outputs):
            return False
        results = compute(node, model.opset_imports, self.limit)
        if results is None:
            return False
        for value, array in zip(node.outputs, results, strict=True):
            if not value.uses():
                continue
            name = value.name or ""
            value.name = f"{name}/folded"
            tensor = ir.tensor(array, name=name)
            constant = ir.Value(
                name=name,
                shape=ir.Shape(array.shape),
                type=ir.TensorType(tensor.dtype),
                const_value=tensor,
            )
            graph.register_initializer(constant)
            value.replace_all_uses_with(constant)
        erase(graph, node)
        return True
