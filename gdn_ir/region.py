"""A closed piece of a graph: find it, cut it out as a model of its own, replace it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from gdn_ir.emitter import Emitter
from gdn_ir.graph_view import has_parameters, is_onnx, operands, walk
from gdn_ir.removal import remove_dead

# The nodes that compute `outputs`, walked back no further than this: a guard against slices that
# swallow a whole model because a boundary was misjudged.
_MOST_NODES = 50_000


class OpenRegion(ValueError):
    """The outputs need what is neither a boundary input nor a constant."""


def is_constant(value: ir.Value) -> bool:
    """An initializer that no caller can override, or the output of a Constant node."""
    if value.is_initializer():
        return not value.is_graph_input()
    producer = value.producer()
    return producer is not None and is_onnx(producer, "Constant")


@dataclass(frozen=True)
class Region:
    """Nodes of one scope that compute `outputs` from `inputs` and constants alone.

    `nodes` are in topological order. Values captured from an enclosing scope are inputs or
    constants like any other.
    """

    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]
    nodes: tuple[ir.Node, ...]
    constants: tuple[ir.Value, ...]

    @classmethod
    def between(cls, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]) -> Region:
        """The slice that leads from `inputs` to `outputs`.

        Raises:
            OpenRegion: a value outside is needed, and it is named.
        """
        boundary = set(inputs)
        nodes: dict[ir.Node, None] = {}
        constants: dict[ir.Value, None] = {}
        # Depth first with an explicit stack: a node is finished after all it depends on.
        stack: list[tuple[ir.Value, bool]] = [(value, False) for value in reversed(outputs)]
        while stack:
            value, finished = stack.pop()
            producer = value.producer()
            if value in boundary or value in constants or producer in nodes:
                continue
            if value.is_initializer() and is_constant(value):
                constants[value] = None
            elif producer is None:
                raise OpenRegion(f"it also depends on '{value.name}'")
            elif finished:
                nodes[producer] = None
            elif has_parameters(producer):
                raise OpenRegion(f"'{value.name}' depends on an attribute of the local function")
            elif len(nodes) + len(stack) > _MOST_NODES:
                raise OpenRegion(f"it spans more than {_MOST_NODES} nodes")
            else:
                stack.append((value, True))
                stack.extend((operand, False) for operand in reversed(operands(producer)))
        return cls(tuple(inputs), tuple(outputs), tuple(nodes), tuple(constants))

    def to_model(self, model: ir.Model) -> ir.Model:
        """A copy as a model of its own, with the names it has in `model`.

        Constants are shared, not copied. Local functions that it calls come along.
        """
        scope = self.outputs[0].graph
        assert scope is not None, "a region's outputs belong to a graph"
        view = ir.GraphView(
            self.inputs,
            self.outputs,
            nodes=self.nodes,
            initializers=self.constants,
            # A local function imports opsets of its own; a body uses those of its model.
            opset_imports={**model.opset_imports, **scope.opset_imports},
            name="region",
        )
        functions = [f.clone() for f in model.functions.values()] if self._calls_any(model) else []
        graph = view.clone()
        for value in graph.inputs:
            value.const_value = None  # of a constant that is a boundary, any value will do
        return ir.Model(graph, ir_version=model.ir_version, functions=functions)

    def _calls_any(self, model: ir.Model) -> bool:
        return any(node.op_identifier() in model.functions for node in walk(self.nodes))


def replace(
    model: ir.Model,
    region: Region,
    build: Callable[[Emitter], Sequence[ir.Value]],
    *,
    tag: str,
) -> tuple[ir.Model, ir.Model]:
    """Puts new nodes in the place of a region; returns what was there and what is now, as models.

    `build` emits the new nodes and returns one value for each of `region.outputs`; each takes over
    the name, the type and the uses of the old one. Old nodes that something else still needs stay,
    and so do those of an enclosing scope.
    The scope is left unsorted: the caller sorts when its pass is done.

    Args:
        model: the model that holds the region.
        region: what to replace.
        build: emits the replacement, on the region's own input values.
        tag: written on each new node (`gdn_ir.pass`), so that its origin can be told.
    """
    graph = region.outputs[0].graph
    assert graph is not None, "a region's outputs belong to a graph"
    before = region.to_model(model)
    emitter = Emitter(
        prefix=_unused_prefix(graph, f"{region.outputs[0].name}/{tag.split('{')[0]}"),
        tag=tag,
        opset={**model.opset_imports, **graph.opset_imports}[""],
    )
    results: list[ir.Value] = []
    for value in build(emitter):
        # Each result takes over one name, so it must be new, and no other result.
        own = value.producer() in emitter.new_nodes and value not in results
        results.append(value if own else emitter.op("Identity", value))
    # A local function has no place for initializers.
    functions = {function.graph for function in model.functions.values()}
    emitter.insert_into(graph, results, constants_as_nodes=graph in functions)
    for old, new in zip(region.outputs, results, strict=True):
        _take_over(graph, old, new)
    remove_dead(graph, region.nodes)
    new_region = Region.between(region.inputs, results)
    _infer_shapes(new_region, model)
    return before, new_region.to_model(model)


def _unused_prefix(graph: ir.Graph, wanted: str) -> str:
    """The prefix, with a number if an earlier replacement of the same value took it."""
    made = (value.name or "" for node in graph for value in node.outputs)
    taken = {
        name.rpartition("/")[0] for name in (*graph.initializers, *made) if name.startswith(wanted)
    }
    prefix, number = wanted, 1
    while prefix in taken:
        number += 1
        prefix = f"{wanted}{number}"
    return prefix


def _take_over(graph: ir.Graph, old: ir.Value, new: ir.Value) -> None:
    # What a graph returns keeps its type and shape, also where it has none.
    keeps = old.is_graph_output()
    new.type = old.type if keeps or old.type is not None else new.type
    new.shape = old.shape if keeps or old.shape is not None else new.shape
    new.meta.update(old.meta)
    name = old.name
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    old.name = f"{name}/replaced"
    new.name = name


def _infer_shapes(region: Region, model: ir.Model) -> None:
    """Gives the region's values the types and shapes that onnx infers from its inputs."""
    proto = ir.to_proto(region.to_model(model))
    inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    _adopt_types(region.nodes, inferred.graph)


def _adopt_types(nodes: Sequence[ir.Node], graph: onnx.GraphProto) -> None:
    by_name = {value.name: value for node in nodes for value in node.outputs}
    for info in (*graph.value_info, *graph.output):
        value = by_name.get(info.name)
        if value is None or value.is_graph_output():
            continue
        inferred = ir.from_proto(info)
        if value.type is None:
            value.type = inferred.type
        if value.shape is None:
            value.shape = _without_made_up(inferred.shape)
    for node, proto in zip(nodes, graph.node, strict=True):
        inner = {attr.name: attr.g for attr in proto.attribute if attr.HasField("g")}
        for name, graph_proto in inner.items():
            _adopt_types(list(node.attributes[name].as_graph()), graph_proto)


def _without_made_up(shape: ir.Shape | None) -> ir.Shape | None:
    """The shape without onnx's names for what it cannot tell, which are new in each region."""
    if shape is None:
        return None
    return ir.Shape(None if str(size).startswith("unk__") else size for size in shape)
