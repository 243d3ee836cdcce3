"""Canonical: a clean-up pass must leave every output made of the same computation.

Outputs are hashed with constants computed, identities looked through and names forgotten, so that
folding, CSE, DCE and the removal of identities leave the hashes as they were: exact, and linear in
the size of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from gdn_ir.constants import compute
from gdn_ir.evaluate import Array
from gdn_ir.graph_view import bodies, captures, is_deterministic, is_onnx
from gdn_ir.matching import array_of
from gdn_ir.pass_base import CleanUp, Pass
from gdn_ir.pass_manager import Observer
from gdn_ir.structural_hash import array_digest, combine, constant_digest, operator_key
from gdn_ir.verify import VerificationFailed

_LIMIT = 16 * 2**20


def canonical_outputs(model: ir.Model) -> list[str]:
    """One hash for each output of the model's main graph."""
    return CanonicalHash(model).graph(model.graph, {})


def changed_output(before: Sequence[str], model: ir.Model) -> str | None:
    """The first output that is another computation than `canonical_outputs` had it `before`."""
    hashes = zip(model.graph.outputs, before, canonical_outputs(model), strict=True)
    return next((value.name or "" for value, old, new in hashes if old != new), None)


def complaint(pass_text: str, output: str) -> str:
    """What is wrong with a clean-up pass."""
    return f"clean-up pass '{pass_text}' changed what output '{output}' computes"


class CanonicalHash:
    """Hashes the values of a model, node by node.

    Args:
        model: whose values.
        draws: tells random numbers of this model from those of another; alike within one model
            are only those of one name.
    """

    def __init__(self, model: ir.Model, draws: str = "") -> None:
        self._model, self._draws = model, draws
        self._arrays: dict[ir.Value, Array] = {}
        self._functions: dict[ir.Function, str] = {}

    def graph(self, graph: ir.Graph, outer: Mapping[ir.Value, str], depth: int = 0) -> list[str]:
        """Hashes of the graph's outputs; `outer` holds those of captured values."""
        known = {**outer, **self.leaves(graph, depth)}
        for node in graph:
            known.update(zip(node.outputs, self.node(node, known, depth), strict=True))
        return [known[value] for value in graph.outputs]

    def leaves(self, graph: ir.Graph, depth: int = 0) -> dict[ir.Value, str]:
        """Hashes of a graph's inputs, by position and depth, and of its initializers."""
        known = {value: constant_digest(value) for value in graph.initializers.values()}
        for index, value in enumerate(graph.inputs):
            known[value] = combine("input", str(depth), str(index), str(value.type))
        return known

    def node(self, node: ir.Node, known: Mapping[ir.Value, str], depth: int = 0) -> list[str]:
        """Hashes of the node's outputs, those of its operands being known."""
        if is_onnx(node, "Identity") and node.inputs[0] is not None:
            if (array := self._array(node.inputs[0])) is not None:
                self._arrays[node.outputs[0]] = array
            return [known[node.inputs[0]]]
        arrays = compute(node, self._model.opset_imports, _LIMIT, self._array)
        if arrays is not None:
            self._arrays.update(zip(node.outputs, arrays, strict=True))
            return [array_digest(array) for array in arrays]
        parts = [operator_key(node)]
        parts += [known[value] if value is not None else "absent" for value in node.inputs]
        outer = {value: known[value] for value in captures(node)}
        for body in bodies(node):
            parts += ["body", *self.graph(body, outer, depth + 1)]
        if (function := self._model.functions.get(node.op_identifier())) is not None:
            if function not in self._functions:
                defaults = [f"{a.name} {a.type} {a.value}" for a in function.attributes.values()]
                imports = str(sorted(function.opset_imports.items()))
                outputs = self.graph(function.graph, {})
                self._functions[function] = combine(imports, *sorted(defaults), *outputs)
            parts.append(self._functions[function])
        if not is_deterministic(node) and is_onnx(node):
            # Two draws are two draws, however alike the nodes are.
            parts.append(f"{self._draws} {node.outputs[0].name}")
        digest = combine(*parts)
        return [f"{digest}.{index}" for index in range(len(node.outputs))]

    def _array(self, value: ir.Value) -> Array | None:
        """Of a constant, also of one that is computed from others."""
        return self._arrays[value] if value in self._arrays else array_of(value)


class CanonicalCheck(Observer):
    """Compares the canonical hashes of the outputs before and after each clean-up pass."""

    def before(self, pass_: Pass, model: ir.Model) -> None:
        """Hashes the outputs."""
        self._outputs = canonical_outputs(model) if isinstance(pass_, CleanUp) else []

    def after(self, pass_: Pass, model: ir.Model) -> None:
        """Raises `VerificationFailed` if an output is another computation now."""
        if not isinstance(pass_, CleanUp):
            return
        output = changed_output(self._outputs, model)
        if output is not None:
            raise VerificationFailed(complaint(str(pass_), output))
