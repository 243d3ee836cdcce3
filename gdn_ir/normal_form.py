"""What passes may rely on in any valid model: ways of writing that ONNX allows, made one."""

from __future__ import annotations

import onnx_ir as ir

from gdn_ir.emitter import own_tensor
from gdn_ir.graph_view import bodies, scopes

_LONG_NAME = "ai.onnx"
# Unsqueeze and ReduceSum take their axes as inputs from here on, as passes emit them, and Softmax
# acts on one axis.
_OLDEST_OPSET = 13


def normalise(model: ir.Model) -> None:
    """Gives the standard domain its short name, and values in bodies names that hide no other.

    A body's input may have the name of an outer value that the body does not use; once a pass
    makes it use that value, the two names mean one thing.

    Raises:
        ValueError: the opset is older than 13.
    """
    functions = model.functions.values()
    for holder in (model.graph, *(function.graph for function in functions)):
        if _LONG_NAME in holder.opset_imports:
            holder.opset_imports.setdefault("", holder.opset_imports.pop(_LONG_NAME))
        opset = holder.opset_imports.get("", _OLDEST_OPSET)
        if opset < _OLDEST_OPSET:
            raise ValueError(
                f"the model has opset {opset}; gdn-ir needs {_OLDEST_OPSET} or later: "
                "convert it with onnx.version_converter"
            )
        _uncover(holder, set())
    for graph in scopes(model):
        for node in graph:
            if node.domain == _LONG_NAME:
                node.domain = ""


def _uncover(graph: ir.Graph, outer: set[str]) -> None:
    leaves = (*graph.inputs, *graph.initializers.values())
    own = {value.name or "" for value in leaves}
    own |= {value.name or "" for node in graph for value in node.outputs}
    for value in leaves:
        if value.name in outer:
            if value.const_value is not None:
                value.const_value = own_tensor(value.const_value)
            value.name = _unused(f"{graph.name or 'body'}/{value.name}", outer | own)
            own.add(value.name)
    for node in graph:
        for body in bodies(node):
            _uncover(body, outer | own)


def _unused(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}{number}"
    return name
