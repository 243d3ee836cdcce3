"""Emits the nodes of a replacement: named after where they stand, tagged with who made them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

Attribute = int | float | str | Sequence[int] | ir.TensorProtocol | ir.Graph
Operand = ir.Value | npt.NDArray[np.generic] | None


class Emitter:
    """Collects nodes and constants, then puts them into a graph.

    Names are `prefix/n`, so that two replacements, also one in a Loop body and one outside it,
    never share a name: onnx_ir numbers values per graph, which ONNX forbids across scopes.
    """

    def __init__(self, prefix: str, tag: str, opset: int) -> None:
        self.prefix = prefix
        self.tag = tag
        self.opset = opset
        self._constants: dict[tuple[np.dtype[Any], tuple[int, ...], bytes], ir.Value] = {}
        self.new_nodes: dict[ir.Node, None] = {}

    def op(self, op_type: str, *inputs: Operand, **attributes: Attribute) -> ir.Value:
        """One node with one output; arrays among the inputs become constants."""
        return self.ops(op_type, *inputs, outputs=1, **attributes)[0]

    def ops(
        self, op_type: str, *inputs: Operand, outputs: int, **attributes: Attribute
    ) -> tuple[ir.Value, ...]:
        """One node with several outputs."""
        name = f"{self.prefix}/{len(self.new_nodes)}"
        node = ir.node(
            op_type,
            [self._value(operand) for operand in inputs],
            attributes=attributes,
            num_outputs=outputs,
            name=name,
            metadata_props={"gdn_ir.pass": self.tag},
        )
        for index, value in enumerate(node.outputs):
            value.name = name if outputs == 1 else f"{name}.{index}"
        self.new_nodes[node] = None
        return tuple(node.outputs)

    def halves(self, value: ir.Value, axis: int) -> tuple[ir.Value, ir.Value]:
        """The two halves of a value along an axis, whose size may be unknown."""
        if self.opset < 18:  # Split gained the attribute, and the need for it, in opset 18
            first, second = self.ops("Split", value, outputs=2, axis=axis)
        else:
            first, second = self.ops("Split", value, outputs=2, axis=axis, num_outputs=2)
        return first, second

    def like(self, node: ir.Node, *inputs: Operand) -> ir.Value:
        """The same one-output op as `node`, attributes included, on other inputs."""
        attributes = {name: attr.value for name, attr in node.attributes.items()}
        return self.op(node.op_type, *inputs, **attributes)

    def constant(self, array: npt.NDArray[np.generic]) -> ir.Value:
        """An initializer; equal ones are shared."""
        key = (array.dtype, array.shape, array.tobytes())
        if key not in self._constants:
            name = f"{self.prefix}/const_{len(self._constants)}"
            tensor = ir.tensor(array, name=name)
            self._constants[key] = ir.Value(
                name=name,
                shape=ir.Shape(array.shape),
                type=ir.TensorType(tensor.dtype),
                const_value=tensor,
            )
        return self._constants[key]

    def insert_into(self, graph: ir.Graph, *, constants_as_nodes: bool = False) -> None:
        """Appends the nodes and the constants that they use; the graph needs a sort.

        Constants become initializers, or Constant nodes where the graph cannot hold those.
        """
        for value in self._constants.values():
            if not value.uses():
                continue
            if not constants_as_nodes:
                graph.register_initializer(value)
                continue
            assert value.const_value is not None, "made by `constant`"
            tensor = ir.AttrTensor("value", value.const_value)
            node = ir.Node("", "Constant", [], [tensor], outputs=[value], name=value.name)
            node.metadata_props["gdn_ir.pass"] = self.tag
            graph.append(node)
        graph.extend(self.new_nodes)

    def _value(self, operand: Operand) -> ir.Value | None:
        if operand is None or isinstance(operand, ir.Value):
            return operand
        return self.constant(operand)
