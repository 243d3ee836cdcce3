"""One node at a time on onnx's reference evaluator, whatever the element type of its operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from gdn_ir.evaluate import Array, ScatterElements
from gdn_ir.modular.unsupported import UnsupportedOp


class OneNode:
    """Computes single nodes; an evaluator is made once for each node."""

    def __init__(self, opsets: Mapping[str, int]) -> None:
        self._opsets = [onnx.helper.make_opsetid(domain, v) for domain, v in opsets.items()]
        self._evaluators: dict[ir.Node, ReferenceEvaluator] = {}

    def __call__(self, node: ir.Node, operands: Sequence[Any]) -> list[Array]:
        """The node's outputs for these operands, None for those that are absent.

        Raises:
            UnsupportedOp: the reference evaluator lacks the op, or rejects the operands.
        """
        present = tuple(operand is not None for operand in operands)
        feeds = {f"x{i}": x for i, x in enumerate(operands) if x is not None}
        try:
            if node not in self._evaluators:
                self._evaluators[node] = self._evaluator(node, present)
            with np.errstate(all="ignore"):
                outputs = self._evaluators[node].run(None, feeds)
        except Exception as error:
            # Whatever it raises, it has no meaning for this node.
            raise UnsupportedOp(node, str(error)) from error
        return [np.asarray(output) for output in outputs]

    def _evaluator(self, node: ir.Node, present: Sequence[bool]) -> ReferenceEvaluator:
        proto = ir.to_proto(node)
        # By position: one value may be two operands, and a Pad may have gained one.
        names = [f"x{i}" if there else "" for i, there in enumerate(present)]
        for index, name in enumerate(proto.output):
            proto.output[index] = name or f"/left out/{index}"
        del proto.input[:]
        proto.input.extend(names)
        infos = onnx.helper.make_empty_tensor_value_info
        graph = onnx.helper.make_graph(
            [proto],
            "one_node",
            [infos(name) for name in names if name],
            [infos(name) for name in proto.output],
        )
        model = onnx.helper.make_model(graph, opset_imports=self._opsets)
        return ReferenceEvaluator(model, new_ops=[ScatterElements])
