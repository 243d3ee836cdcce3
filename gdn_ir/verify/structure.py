"""Structure: a graph is in SSA form, in order, owns its parts, and kept its interface."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from gdn_ir.graph_view import bodies
from gdn_ir.pass_base import Pass
from gdn_ir.pass_manager import Observer
from gdn_ir.verify import InvalidGraph

Interface = tuple[tuple[str, str, str], ...]


def interface(values: Sequence[ir.Value]) -> Interface:
    """Name, type and shape of each value, in order."""
    return tuple((v.name or "", str(v.type), str(v.shape)) for v in values)


def defects(model: ir.Model) -> list[str]:
    """What is wrong with the model's structure, an empty list if nothing is."""
    seen: set[ir.Node] = set()
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    return [defect for graph in graphs for defect in _scope_defects(graph, {}, seen)]


def _scope_defects(graph: ir.Graph, outer: dict[str, ir.Value], seen: set[ir.Node]) -> list[str]:
    """Walks a scope in order; `outer` values, by name, may be used and may not be made again.

    Two bodies may use one name, and a body's inputs and initializers may hide an outer name, as
    onnx's checker and ONNX Runtime have it; what they hide cannot be used there.
    """
    found: list[str] = []
    here: set[ir.Value] = set()
    visible = dict(outer)
    names: set[str] = set()
    uses: dict[ir.Value, set[tuple[ir.Node, int]]] = {}

    def define(value: ir.Value, what: str, *, may_hide: bool) -> None:
        if not value.name:
            found.append(f"{what} has no name")
        elif value.name in names or (value.name in outer and not may_hide):
            found.append(f"{what} '{value.name}' is defined twice")
        names.add(value.name or "")
        here.add(value)
        visible[value.name or ""] = value

    for value in graph.inputs:
        define(value, "input", may_hide=True)
    for name, value in graph.initializers.items():
        if name != value.name:
            found.append(f"initializer '{value.name}' is registered as '{name}'")
        if value not in here:
            define(value, "initializer", may_hide=True)
        if value.const_value is None and not value.is_graph_input():
            found.append(f"initializer '{name}' holds nothing")
    for node in graph:
        if node in seen or node.graph is not graph:
            found.append(f"node '{node.name}' stands in two places")
        seen.add(node)
        for index, operand in enumerate(node.inputs):
            if operand is None:
                continue
            if visible.get(operand.name or "") is not operand:
                found.append(
                    f"node '{node.name}' uses '{operand.name}', which is not defined before it"
                )
            if operand not in uses:
                uses[operand] = {(use.node, use.idx) for use in operand.uses()}
            if (node, index) not in uses[operand]:
                found.append(f"'{operand.name}' does not know its use by '{node.name}'")
        for body in bodies(node):
            found += _scope_defects(body, visible, seen)
        for value in node.outputs:
            if value.producer() is not node:
                found.append(f"'{value.name}' does not know that '{node.name}' makes it")
            if value.name or value.uses():
                define(value, "value", may_hide=False)
    for value in graph.outputs:
        if value not in here:
            found.append(f"output '{value.name}' is not defined in its own scope")
    return found


class StructureCheck(Observer):
    """Checks the structure after every pass, and that the interface is what it was."""

    def before(self, pass_: Pass, model: ir.Model) -> None:
        """Remembers the interface."""
        self._inputs = interface(model.graph.inputs)
        self._outputs = interface(model.graph.outputs)

    def after(self, pass_: Pass, model: ir.Model) -> None:
        """Raises `InvalidGraph` on the first defect."""
        found = defects(model)
        for what, old, values in (
            ("inputs", self._inputs, model.graph.inputs),
            ("outputs", self._outputs, model.graph.outputs),
        ):
            if interface(values) != old:
                found.append(f"the model's {what} changed from {old} to {interface(values)}")
        if found:
            raise InvalidGraph(f"pass '{pass_}' left an invalid graph: {found[0]}")
