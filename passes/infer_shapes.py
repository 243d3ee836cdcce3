"""infer-shapes: the types and shapes that follow from the graph are written into it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from gdn_ir.graph_view import scopes
from gdn_ir.pass_base import Pass
from gdn_ir.rewrite import Declined, Rewrite


@dataclasses.dataclass(frozen=True)
class InferShapes(Pass):
    """Types and shapes by onnx's own inference, data propagation included, where none are known.

    No node changes; what the model declares stays, also of its inputs and outputs. TorchScript
    exports declare almost no shapes, and without them neither their Shape chains fold nor any
    region can be recognised.

    Cost: none at run time.
    """

    name: ClassVar[str] = "infer-shapes"

    def rewrites(self, model: ir.Model) -> Iterator[Rewrite | Declined]:
        """None: annotations are no part of what a graph computes."""
        # On a copy, since onnx_ir's pass overwrites what is declared; weights are shared.
        inferred = model.clone()
        ShapeInferencePass(strict_mode=False)(inferred)
        for ours, theirs in zip(scopes(model), scopes(inferred), strict=True):
            for node, twin in zip(ours, theirs, strict=True):
                for value, known in zip(node.outputs, twin.outputs, strict=True):
                    if not value.is_graph_output() or ours is not model.graph:
                        _annotate(value, known)
        return iter(())


def _annotate(value: ir.Value, known: ir.Value) -> None:
    if value.type is None:
        value.type = known.type
    if value.shape is None or (known.shape is not None and known.shape.is_static()):
        value.shape = known.shape
