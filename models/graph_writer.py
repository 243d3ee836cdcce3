"""Writes an ONNX graph node by node, with names that a person chose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnx_ir.passes.common

__all__ = ["OPSET", "GraphWriter"]

OPSET = 20  # what torch.onnx.export writes by default
IR_VERSION = 10  # the newest that ONNX Runtime 1.22 reads


class GraphWriter:
    """One graph under construction. Every value is named by its caller, once.

    Types and shapes are left to ONNX's own inference, which `model` runs: with static input
    shapes it annotates every value, and a mistake in the mathematics fails there.
    """

    def __init__(self, name: str) -> None:
        self._tape = ir.tape.Tape()
        self._name = name
        self._inputs: list[ir.Value] = []
        self._outputs: list[ir.Value] = []
        self._constants: dict[str, ir.Value] = {}
        self._names: set[str] = set()

    def input(self, name: str, dtype: ir.DataType, shape: Sequence[int]) -> ir.Value:
        """A graph input."""
        value = ir.val(self._claim(name), dtype=dtype, shape=tuple(shape))
        self._inputs.append(value)
        return value

    def output(self, value: ir.Value) -> None:
        """Makes `value` the next graph output; it keeps its name."""
        self._outputs.append(value)

    def constant(self, name: str, array: npt.NDArray[Any]) -> ir.Value:
        """An initializer."""
        value = self._tape.initializer(ir.tensor(array, name=self._claim(name)))
        self._constants[name] = value
        return value

    def ints(self, numbers: int | Sequence[int]) -> ir.Value:
        """An int64 initializer of rank 0 or 1, made once for each content and named by it.

        `ints(3)` is `int_3`, `ints([0, -1])` is `ints_0_minus1`.
        """
        flat = [numbers] if isinstance(numbers, int) else list(numbers)
        kind = "int_" if isinstance(numbers, int) else "ints_"
        name = kind + "_".join(str(n).replace("-", "minus") for n in flat)
        if name in self._constants:
            return self._constants[name]
        return self.constant(name, np.array(numbers, np.int64))

    def scalar(self, number: float, dtype: ir.DataType) -> ir.Value:
        """A floating point initializer of rank 0, made once for each number and type."""
        name = f"{dtype.name.lower()}_{number!r}"
        if name in self._constants:
            return self._constants[name]
        return self.constant(name, np.array(number, dtype.numpy()))

    def op(self, op_type: str, *inputs: ir.Value, name: str, **attributes: Any) -> ir.Value:
        """Appends a node with one output and returns that; `name` is the output's."""
        return self._tape.op(
            op_type,
            inputs,
            attributes,
            name=f"node_{name}",
            output=ir.Value(name=self._claim(name)),
        )

    def model(self) -> ir.Model:
        """The finished model, each value with its type and shape.

        Raises RuntimeError where a value cannot be annotated: a mistake of the caller.
        """
        graph = ir.Graph(
            inputs=self._inputs,
            outputs=self._outputs,
            nodes=self._tape.nodes,
            initializers=self._tape.initializers,
            opset_imports={"": OPSET},
            name=self._name,
        )
        model = ir.Model(graph, ir_version=IR_VERSION, producer_name="gdn_ir")
        ir.passes.common.ShapeInferencePass()(model)
        for node in graph:
            value = node.outputs[0]
            if value.dtype is None or value.shape is None or value.shape.has_unknown_dim():
                raise RuntimeError(
                    f"{node.op_type} {value.name}: no type or shape could be inferred"
                )
        return model

    def _claim(self, name: str) -> str:
        if name in self._names:
            raise RuntimeError(f"{name}: this name is taken in graph {self._name}")
        self._names.add(name)
        return name
