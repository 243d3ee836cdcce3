"""Ops that only move elements: run by onnx's reference evaluator on the positions of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from gdn_ir.evaluate import Array
from gdn_ir.graph_view import SCATTER_OPS
from gdn_ir.modular.algebra import Algebra
from gdn_ir.modular.element import Element, Operand, map_together
from gdn_ir.modular.one_node import OneNode
from gdn_ir.modular.unsupported import UnsupportedOp

# The data inputs of each op; its other inputs say where to, and must be known.
MOVES: dict[str, tuple[int, ...]] = {
    "DepthToSpace": (0,), "Dropout": (0,), "Expand": (0,), "Flatten": (0,), "Gather": (0,),
    "GatherElements": (0,), "GatherND": (0,), "Identity": (0,), "Pad": (0, 2), "Reshape": (0,),
    "ReverseSequence": (0,), "ScatterElements": (0, 2), "ScatterND": (0, 2), "Slice": (0,),
    "SpaceToDepth": (0,), "Split": (0,), "Squeeze": (0,), "Tile": (0,), "Transpose": (0,),
    "Unsqueeze": (0,), "Where": (1, 2),
}  # fmt: skip


def is_move(node: ir.Node) -> bool:
    """Whether the node only moves elements."""
    return node.op_type in MOVES or node.op_type == "Concat"


def move(
    algebra: Algebra, reference: OneNode, node: ir.Node, inputs: Sequence[Operand | None]
) -> list[Operand]:
    """The node's outputs, for inputs at least one of which is an element.

    Raises:
        UnsupportedOp: indices depend on data, or a scatter reduces.
    """
    if node.op_type == "Where" and isinstance(inputs[0], Element):
        # A choice by data: the same choice between the same values is the same.
        chosen = [algebra.lift(x) for x in inputs if x is not None]
        return [replace(algebra.hash("Where", *chosen), is_integer=chosen[1].is_integer)]
    if node.op_type == "Dropout":  # in inference: all is kept
        assert inputs[0] is not None, "Dropout has an input"
        kept = algebra.lift(inputs[0])
        both: list[Operand] = [kept, np.ones(kept.shape, bool)]
        return both[: len(node.outputs)]
    operands = list(inputs)
    positions = range(len(operands)) if node.op_type == "Concat" else MOVES[node.op_type]
    data = [i for i in positions if i < len(operands) and operands[i] is not None]
    if any(isinstance(x, Element) for i, x in enumerate(operands) if i not in data):
        raise UnsupportedOp(node, "its indices depend on data")
    if node.op_type in SCATTER_OPS:
        reduction = node.attributes.get("reduction")
        if reduction is not None and reduction.as_string() != "none":
            raise UnsupportedOp(node, "with a reduction")
    if node.op_type == "Pad" and len(data) == 1:
        operands = [*operands, *[None] * (3 - len(operands))]
        operands[2] = np.zeros(())  # must be an element's zero: of degree -inf, say
        data.append(2)
    elements = [algebra.lift(x) for i in data if (x := operands[i]) is not None]
    # The node moves the positions once, and all arrays of the elements follow them.
    start = 0
    for position, element in zip(data, elements, strict=True):
        size = element.residue.size
        operands[position] = np.arange(start, start + size).reshape(element.shape)
        start += size
    return [_follow(elements, positions) for positions in reference(node, operands)]


def _follow(elements: Sequence[Element], positions: Array) -> Element:
    def gather(*arrays: Array) -> Array:
        flat = [array.reshape(-1) for array in arrays]
        return np.asarray((flat[0] if len(flat) == 1 else np.concatenate(flat))[positions])

    return map_together(elements, gather)
