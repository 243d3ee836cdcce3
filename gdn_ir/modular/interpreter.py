"""Runs a graph over algebra elements.

What is constant, integer or boolean is computed as it is, in the model's own types, by onnx's
reference evaluator. Loop, Scan and If run; local functions are entered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from gdn_ir.evaluate import Array
from gdn_ir.graph_view import bodies, is_deterministic, is_onnx
from gdn_ir.modular import arithmetic
from gdn_ir.modular.algebra import Algebra
from gdn_ir.modular.element import Element, Operand, map_together
from gdn_ir.modular.moves import is_move, move
from gdn_ir.modular.one_node import OneNode
from gdn_ir.modular.unsupported import UnsupportedOp
from gdn_ir.region import is_constant

_MOST_TRIPS = 1_000_000
# Before it Softmax works on all axes from one on, and Squeeze and ReduceSum read attributes.
_OLDEST = 13


def is_exact(node: ir.Node) -> bool:
    """Whether the op means here what it means over the reals; unknown and hashed ops do not."""
    if node.op_type == "Where" and not (node.inputs[0] and is_constant(node.inputs[0])):
        return False
    return is_onnx(node) and (is_move(node) or arithmetic.is_exact(node) or any(bodies(node)))


class Interpreter:
    """Runs the graphs of one model over one algebra."""

    def __init__(self, model: ir.Model, algebra: Algebra, reference: OneNode) -> None:
        self._model = model
        self._algebra = algebra
        self._reference = reference
        self._values: dict[ir.Value, Operand] = {}
        # Integers and booleans that depend on an input: known at a point, and yet no constants.
        self._varying: set[ir.Value] = set()

    def run(self, feeds: Mapping[str, Operand]) -> list[Operand]:
        """The outputs of the main graph.

        Raises:
            CannotDecide: the algebra has no meaning for what a node asks for.
            UnsupportedOp: an op is not known.
        """
        self._algebra.next_model()
        inputs = [feeds[value.name or ""] for value in self._model.graph.inputs]
        self._varying.update(self._model.graph.inputs)
        return self._graph(self._model.graph, inputs)

    def _graph(self, graph: ir.Graph, inputs: Sequence[Operand]) -> list[Operand]:
        for value in graph.initializers.values():
            if value.const_value is not None:
                self._values[value] = value.const_value.numpy()
        self._values.update(zip(graph.inputs, inputs, strict=True))
        for node in graph:
            self._values.update(zip(node.outputs, self._node(node), strict=False))
        return [self._values[value] for value in graph.outputs]

    def _node(self, node: ir.Node) -> Sequence[Operand]:
        operands = [None if value is None else self._values[value] for value in node.inputs]
        present = [operand for operand in operands if operand is not None]
        function = self._model.functions.get(node.op_identifier())
        if function is not None:
            return self._call(function, node, present)
        if not is_onnx(node):
            raise UnsupportedOp(node)
        if node.op_type in _CONTROL_FLOW:
            return _CONTROL_FLOW[node.op_type](self, node, operands)
        if not is_deterministic(node):
            raise UnsupportedOp(node, "it draws random numbers")
        if self._model.opset_imports.get("", _OLDEST) < _OLDEST:
            raise UnsupportedOp(node, f"before opset {_OLDEST}, where ops mean something else")
        if not self._varying.isdisjoint(node.inputs):
            # A float that depends on an input is never rounded: weights looked up by token, say.
            # Of a shape that holds not: it is the same at every point.
            self._varying.update(() if node.op_type in ("Shape", "Size") else node.outputs)
            operands = [
                self._exactly(operand) if value in self._varying else operand
                for value, operand in zip(node.inputs, operands, strict=True)
            ]
            present = [operand for operand in operands if operand is not None]
        if not any(isinstance(operand, Element) for operand in present):
            return self._reference(node, operands)
        if is_move(node):
            return move(self._algebra, self._reference, node, operands)
        return [arithmetic.compute(self._algebra, node, present)]

    def _exactly(self, operand: Operand | None) -> Operand | None:
        if isinstance(operand, Element) or operand is None or operand.dtype.kind in "biuUO":
            return operand
        return self._algebra.exactly(operand)

    def _varies_with(
        self, sources: Iterable[ir.Value | None], targets: Iterable[ir.Value | None]
    ) -> None:
        """What is handed over varies where it came from."""
        for source, target in zip(sources, targets, strict=False):
            if source in self._varying and target is not None:
                self._varying.add(target)

    def _call(
        self, function: ir.Function, node: ir.Node, operands: Sequence[Operand]
    ) -> list[Operand]:
        if function.attributes or len(operands) != len(function.inputs):
            raise UnsupportedOp(node, "a local function with attributes or absent inputs")
        opset = function.opset_imports.get("")
        if opset is not None and opset != self._model.opset_imports.get(""):
            raise UnsupportedOp(node, f"a local function of opset {opset}, not the model's")
        self._varies_with(node.inputs, function.inputs)
        results = self._graph(function.graph, operands)
        self._varies_with(function.outputs, node.outputs)
        return results

    def _if(self, node: ir.Node, operands: Sequence[Operand | None]) -> list[Operand]:
        condition = _known(node, operands[0], "a condition that depends on data")
        branch = node.attributes["then_branch" if condition.all() else "else_branch"].as_graph()
        results = self._graph(branch, [])
        self._varies_with(branch.outputs, node.outputs)
        self._varies_with([node.inputs[0]] * len(node.outputs), node.outputs)
        return results

    def _loop(self, node: ir.Node, operands: Sequence[Operand | None]) -> list[Operand]:
        body = node.attributes["body"].as_graph()
        trips = _MOST_TRIPS + 1
        if operands[0] is not None:
            trips = int(_known(node, operands[0], "a trip count that depends on data").reshape(()))
        why = "a condition that depends on data"
        going_now: Operand = np.ones((), bool) if operands[1] is None else operands[1]
        going = bool(_known(node, going_now, why).all())
        state = [x for x in operands[2:] if x is not None]
        scanned: list[list[Operand]] = [[] for _ in range(len(node.outputs) - len(state))]
        self._varies_with(node.inputs[1:], body.inputs[1:])
        trip = 0
        while going and trip < trips:
            if trip == _MOST_TRIPS:
                raise UnsupportedOp(node, f"more than {_MOST_TRIPS} trips")
            number = np.full((1,) * len(body.inputs[0].shape or ()), trip)
            going_now, *results = self._graph(body, [number, going_now, *state])
            going = bool(_known(node, going_now, why).all())
            state = results[: len(state)]
            self._varies_with(body.outputs[: 1 + len(state)], body.inputs[1:])
            for collected, value in zip(scanned, results[len(state) :], strict=True):
                collected.append(value)
            trip += 1
        self._varies_with(node.inputs[2:], node.outputs)
        self._varies_with(body.outputs[1:], node.outputs)
        for decides in (node.inputs[0], body.inputs[1]):  # after how many trips
            self._varies_with([decides] * len(node.outputs), node.outputs)
        rows = body.outputs[1 + len(state) :]
        stacked = [self._stack(node, x, 0, row) for x, row in zip(scanned, rows, strict=True)]
        return [*state, *stacked]

    def _scan(self, node: ir.Node, operands: Sequence[Operand | None]) -> list[Operand]:
        body = node.attributes["body"].as_graph()
        count = node.attributes["num_scan_inputs"].as_int()
        present = [x for x in operands if x is not None]
        state, sequences = present[: len(present) - count], present[len(present) - count :]
        outputs = len(node.outputs) - len(state)
        axes = _integers(node, "scan_input_axes", count)
        backward = _integers(node, "scan_input_directions", count)
        length = _shape(sequences[0])[axes[0]]
        self._varies_with([x for x in node.inputs if x is not None], body.inputs)
        scanned: list[list[Operand]] = [[] for _ in range(outputs)]
        for step in range(length):
            slices = [
                _take(sequence, length - 1 - step if back else step, axis)
                for sequence, axis, back in zip(sequences, axes, backward, strict=True)
            ]
            results = self._graph(body, [*state, *slices])
            state = results[: len(state)]
            self._varies_with(body.outputs[: len(state)], body.inputs)
            for collected, value in zip(scanned, results[len(state) :], strict=True):
                collected.append(value)
        self._varies_with(node.inputs[: len(state)], node.outputs)
        self._varies_with(body.outputs, node.outputs)
        axes = _integers(node, "scan_output_axes", outputs)
        backward = _integers(node, "scan_output_directions", outputs)
        rows = body.outputs[len(state) :]
        return [
            *state,
            *(
                self._stack(node, values[::-1] if back else values, axis, row)
                for values, axis, back, row in zip(scanned, axes, backward, rows, strict=True)
            ),
        ]

    def _stack(self, node: ir.Node, values: Sequence[Operand], axis: int, row: ir.Value) -> Operand:
        if not values and (row.shape is None or not row.shape.is_static() or row.dtype is None):
            raise UnsupportedOp(node, "outputs of no iterations have no known shape")
        if not values and row.shape is not None and row.dtype is not None:
            one = np.zeros(row.shape.numpy(), row.dtype.numpy())
            return np.expand_dims(one, axis).take([], axis)
        if not any(isinstance(value, Element) for value in values):
            return np.stack([np.asarray(value) for value in values], axis)
        lifted = [self._algebra.lift(value) for value in values]
        return map_together(lifted, lambda *arrays: np.stack(arrays, axis))


_CONTROL_FLOW: dict[
    str, Callable[[Interpreter, ir.Node, Sequence[Operand | None]], list[Operand]]
] = {
    "If": Interpreter._if,
    "Loop": Interpreter._loop,
    "Scan": Interpreter._scan,
}


def _known(node: ir.Node, value: Operand | None, why: str) -> Array:
    if value is None or isinstance(value, Element):
        raise UnsupportedOp(node, why)
    return np.asarray(value)


def _shape(value: Operand) -> tuple[int, ...]:
    return value.shape if isinstance(value, Element) else np.asarray(value).shape


def _take(value: Operand, index: int, axis: int) -> Operand:
    def taken(array: Array) -> Array:
        return np.asarray(np.take(array, index, axis))

    return value.map(taken) if isinstance(value, Element) else taken(np.asarray(value))


def _integers(node: ir.Node, name: str, count: int) -> list[int]:
    attr = node.attributes.get(name)
    return [0] * count if attr is None else list(attr.as_ints())
