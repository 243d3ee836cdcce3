"""Writes an ONNX graph node by node, with names that a person chose."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnx_ir.passes.common

__all__ = ["OPSET", "Dim", "GraphWriter"]

OPSET = 20  # what torch.onnx.export writes by default
IR_VERSION = 10  # the newest that ONNX Runtime 1.22 reads

Dim = int | str  # a number, or the name of a symbolic dimension


@dataclasses.dataclass
class _Shared:
    """What a graph and all its bodies have in common."""

    prefix: str = ""
    names: set[str] = dataclasses.field(default_factory=set)


class GraphWriter:
    """One graph under construction. Every value is named by its caller, once.

    The graph of a Loop or Scan is written by a writer of its own, from `body`. It may use whatever
    the graphs around it have made; names are unique across all of them. Inference inside a body
    does not see constants outside, so each writer makes its own.

    Types and shapes are left to ONNX's own inference, which `model` runs. With static input shapes
    it annotates every value outside bodies in full, and a mistake in the mathematics fails there.
    """

    def __init__(self, name: str, *, outer: GraphWriter | None = None) -> None:
        self._name = name
        self._outer = outer
        self._shared: _Shared = _Shared() if outer is None else outer._shared
        self._tape = ir.tape.Tape()
        self._inputs: list[ir.Value] = []
        self._outputs: list[ir.Value] = []
        self._constants: dict[str, ir.Value] = {}

    @contextmanager
    def prefixed(self, prefix: str) -> Iterator[None]:
        """Puts `prefix` before all names claimed in the block, in bodies too."""
        before = self._shared.prefix
        self._shared.prefix = before + prefix
        try:
            yield
        finally:
            self._shared.prefix = before

    def input(self, name: str, dtype: ir.DataType, shape: Sequence[Dim]) -> ir.Value:
        """A graph input."""
        value = ir.val(self._claim(name), dtype=dtype, shape=tuple(shape))
        self._inputs.append(value)
        return value

    def output(self, value: ir.Value, *, name: str | None = None) -> None:
        """Makes `value` the next graph output; it keeps its name unless it gets another."""
        if name is not None:
            value.name = self._claim(name)
        self._outputs.append(value)

    def annotate(self, value: ir.Value, dtype: ir.DataType, shape: Sequence[Dim]) -> ir.Value:
        """States what inference cannot know, such as that a length is that of an input."""
        value.dtype, value.shape = dtype, ir.Shape(shape)
        return value

    def constant(self, name: str, array: npt.NDArray[Any]) -> ir.Value:
        """An initializer."""
        return self._tape.initializer(ir.tensor(array, name=self._claim(name)))

    def shared(self, name: str, array: npt.NDArray[Any]) -> ir.Value:
        """An initializer whose name tells its content: made once in a graph, without a prefix."""
        if name not in self._constants:
            full_name = self._reserve(name if self._outer is None else f"{self._name}_{name}")
            self._constants[name] = self._tape.initializer(ir.tensor(array, name=full_name))
        return self._constants[name]

    def ints(self, numbers: int | Sequence[int]) -> ir.Value:
        """An int64 initializer of rank 0 or 1, made once for each content and named by it.

        `ints(3)` is `int_3`, `ints([0, -1])` is `ints_0_minus1`.
        """
        flat = [numbers] if isinstance(numbers, int) else list(numbers)
        kind = "int_" if isinstance(numbers, int) else "ints_"
        name = kind + "_".join(str(n).replace("-", "minus") for n in flat)
        return self.shared(name, np.array(numbers, np.int64))

    def scalar(self, number: float, dtype: ir.DataType) -> ir.Value:
        """A floating point initializer of rank 0, made once for each number and type."""
        return self.shared(f"{dtype.name.lower()}_{number!r}", np.array(number, dtype.numpy()))

    def op(self, op_type: str, *inputs: ir.Value, name: str, **attributes: Any) -> ir.Value:
        """Appends a node with one output and returns that; `name` is the output's."""
        (value,) = self.ops(op_type, *inputs, names=[name], **attributes)
        return value

    def ops(
        self, op_type: str, *inputs: ir.Value, names: Sequence[str], **attributes: Any
    ) -> Sequence[ir.Value]:
        """Appends a node with an output for each of `names`, after the first of which it is named.

        An attribute may be a graph, from `graph` of a body's writer.
        """
        outputs = [ir.Value(name=self._claim(name)) for name in names]
        node_name = f"node_{outputs[0].name}"
        return self._tape.op_multi_out(op_type, inputs, attributes, name=node_name, outputs=outputs)

    def body(self, name: str) -> GraphWriter:
        """A writer for a graph inside this one."""
        return GraphWriter(self._claim(name), outer=self)

    def graph(self) -> ir.Graph:
        """What has been written, as the graph of a body or as the outermost one."""
        return ir.Graph(
            inputs=self._inputs,
            outputs=self._outputs,
            nodes=self._tape.nodes,
            initializers=self._tape.initializers,
            opset_imports={"": OPSET} if self._outer is None else {},
            name=self._name,
        )

    def model(self) -> ir.Model:
        """The finished model, each value of each graph with its type and at least its rank.

        Raises RuntimeError where a value cannot be annotated: a mistake of the caller.
        """
        model = ir.Model(self.graph(), ir_version=IR_VERSION, producer_name="gdn_ir")
        ir.passes.common.ShapeInferencePass()(model)
        static = all(value.shape is not None and value.shape.is_static() for value in self._inputs)
        for node in model.graph.all_nodes():
            for value in node.outputs:
                if value.dtype is None or value.shape is None:
                    raise RuntimeError(f"{node.op_type} {value.name}: no type or rank is known")
                if static and node.graph is model.graph and not value.shape.is_static():
                    raise RuntimeError(f"{node.op_type} {value.name}: shape {value.shape}")
        return model

    def _claim(self, name: str) -> str:
        return self._reserve(self._shared.prefix + name)

    def _reserve(self, name: str) -> str:
        if name in self._shared.names:
            raise RuntimeError(f"{name}: this name is taken in graph {self._name}")
        self._shared.names.add(name)
        return name
