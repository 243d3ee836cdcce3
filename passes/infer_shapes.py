"""infer-shapes: the types and shapes that follow from the graph are written into it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from gdn_ir.graph_view import scopes
from gdn_ir.pass_base import Pass
from gdn_ir.region import is_constant
from gdn_ir.rewrite import Declined, Rewrite

# Axes, shapes and the like.
_SMALL = 64


@dataclasses.dataclass(frozen=True)
class InferShapes(Pass):
    """Types and shapes by onnx's own inference, data propagation included, where none are known.

    Bodies of Loop, Scan and If are inferred with the constants that they read from around them.

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
        _hand_constants_in(inferred)
        ShapeInferencePass(strict_mode=False)(inferred)
        for ours, theirs in zip(scopes(model), scopes(inferred), strict=True):
            for node, twin in zip(ours, theirs, strict=True):
                for value, known in zip(node.outputs, twin.outputs, strict=True):
                    if not value.is_graph_output() or ours is not model.graph:
                        _annotate(value, known)
        return iter(())


def _hand_constants_in(model: ir.Model) -> None:
    """Gives each body small constants of its own: inference does not see those around it."""
    functions = {function.graph for function in model.functions.values()}
    for graph in scopes(model):
        if graph is model.graph or graph in functions:
            continue
        own: dict[ir.Value, ir.Value] = {}
        for node in graph:
            for index, value in enumerate(node.inputs):
                tensor = None if value is None else value.const_value
                if value is None or value.graph is graph or tensor is None:
                    continue
                if tensor.size <= _SMALL and is_constant(value):
                    if value not in own:
                        own[value] = _copy(value, f"{graph.name}/{value.name}/inferring")
                        graph.register_initializer(own[value])
                    node.replace_input_with(index, own[value])


def _copy(value: ir.Value, name: str) -> ir.Value:
    assert value.const_value is not None, "of a constant"
    array = value.const_value.numpy()
    return ir.Value(
        name=name, shape=value.shape, type=value.type, const_value=ir.tensor(array, name=name)
    )


def _annotate(value: ir.Value, known: ir.Value) -> None:
    if value.type is None:
        value.type = known.type
    if value.shape is None or (known.shape is not None and known.shape.is_static()):
        value.shape = known.shape
