"""Single wrong edits of a graph, as a careless pass or a wrong index would make them."""

from collections.abc import Callable, Iterator

import numpy as np
import onnx_ir as ir

from gdn_ir.graph_view import scopes
from gdn_ir.region import is_constant

Edit = Callable[[ir.Model], None]

_SWAPPED_OPS = {"Add": "Sub", "Sub": "Add", "Mul": "Add", "Exp": "Neg", "Neg": "Identity"}
_INDEXED = {"Gather": 1, "Slice": 1, "CumSum": 1, "ScatterElements": 1}


def mutations(model: ir.Model, rng: np.random.Generator) -> Iterator[tuple[str, Edit]]:
    """Named edits of single nodes and constants, also in bodies, each once, in random order."""
    nodes = range(len(_all_nodes(model)))
    edits = [_operator, _operand_order, _index, _constant, _mask_offset, _bypass, _permutation]
    choices = [(node, edit) for node in nodes for edit in edits]
    for position in rng.permutation(len(choices)):
        index, edit = choices[position]
        node = _all_nodes(model)[index]
        made = edit(node, rng)
        if made is not None:
            name, change = made
            where = f"{name} at {node.op_type} '{node.outputs[0].name}'"
            yield where, lambda copy, i=index, change=change: change(_all_nodes(copy)[i], copy)


def _all_nodes(model: ir.Model) -> list[ir.Node]:
    return [node for graph in scopes(model) for node in graph]


def _operator(node, rng):
    if node.op_type not in _SWAPPED_OPS:
        return None

    def change(copy, model):
        copy.op_type = _SWAPPED_OPS[node.op_type]

    return f"{node.op_type} becomes {_SWAPPED_OPS[node.op_type]}", change


def _operand_order(node, rng):
    if node.op_type not in ("Sub", "MatMul", "Concat", "Div") or len(set(node.inputs)) < 2:
        return None

    def change(copy, model):
        first, second = copy.inputs[:2]
        copy.replace_input_with(0, second)
        copy.replace_input_with(1, first)

    return "operands swapped", change


def _index(node, rng):
    if node.op_type not in _INDEXED or len(node.inputs) < 2:
        return None
    position, step = _INDEXED[node.op_type], int(rng.choice([-1, 1]))

    def change(copy, model):
        _replace_constant(copy, position, model, lambda a: a + step)

    return f"index {step:+d}", change


def _constant(node, rng):
    positions = [
        i
        for i, v in enumerate(node.inputs)
        if v is not None and is_constant(v) and v.const_value is not None
        and v.dtype is not None and (v.dtype.is_floating_point() or v.dtype == ir.DataType.BOOL)
    ]  # fmt: skip
    if not positions:
        return None
    position = int(rng.choice(positions))
    array = node.inputs[position].const_value.numpy()
    element = int(rng.integers(array.size))

    def edited(a):
        flat = a.copy().reshape(-1)
        flat[element] = ~flat[element] if a.dtype == bool else flat[element] + 1
        return flat.reshape(a.shape)

    def change(copy, model):
        _replace_constant(copy, position, model, edited)

    return f"constant changed in element {element}", change


def _mask_offset(node, rng):
    for position, value in enumerate(node.inputs):
        if value is None or not is_constant(value) or value.const_value is None:
            continue
        array = value.const_value.numpy()
        if array.ndim >= 2 and array.shape[-1] == array.shape[-2] > 1:

            def change(copy, model, position=position):
                _replace_constant(copy, position, model, lambda a: np.roll(a, 1, axis=-1))

            return "mask off by one", change
    return None


def _bypass(node, rng):
    """Leaves a step out: a series one term short, a scaling forgotten."""
    source, result = (node.inputs or [None])[0], node.outputs[0]
    if source is None or source.shape != result.shape or source.dtype != result.dtype:
        return None
    if node.op_type in ("Identity", "Cast") or result.is_graph_output():
        return None

    def change(copy, model):
        copy.outputs[0].replace_all_uses_with(copy.inputs[0])

    return "left out", change


def _permutation(node, rng):
    if node.op_type != "Transpose" or "perm" not in node.attributes:
        return None
    perm = list(node.attributes["perm"].as_ints())
    i = int(rng.integers(len(perm) - 1))
    perm[i], perm[i + 1] = perm[i + 1], perm[i]

    def change(copy, model):
        copy.attributes["perm"] = ir.AttrInt64s("perm", perm)

    return f"perm {perm}", change


def _replace_constant(node, position, model, function):
    old = node.inputs[position]
    if old is None or old.const_value is None:
        return
    array = function(old.const_value.numpy())
    name = f"{old.name}/mutated"
    value = ir.Value(
        name=name,
        shape=ir.Shape(array.shape),
        type=ir.TensorType(old.dtype),
        const_value=ir.tensor(array, dtype=old.dtype, name=name),
    )
    model.graph.register_initializer(value)
    node.replace_input_with(position, value)
