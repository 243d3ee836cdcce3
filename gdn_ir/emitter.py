"""Emits the nodes of a replacement: named after where they stand, tagged with who made them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from gdn_ir.graph_view import bodies, is_onnx, walk
from gdn_ir.removal import remove_dead

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
        self._constants: dict[object, ir.Value] = {}
        self._constant_prefix = f"{prefix}/const_"
        self._bodies = 0
        self._inputs = 0
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
        return self._shared(key, lambda: ir.tensor(array))

    def tensor(self, tensor: ir.TensorProtocol) -> ir.Value:
        """An initializer that holds what this tensor does; one for each tensor."""
        # The graph that is replaced holds it meanwhile, so that no other can have its id.
        return self._shared(id(tensor), lambda: own_tensor(tensor))

    def _shared(self, key: object, make: Callable[[], ir.TensorProtocol]) -> ir.Value:
        if key not in self._constants:
            tensor = make()
            shape = tensor.shape.numpy()
            self._constants[key] = ir.Value(
                name=f"{self._constant_prefix}{len(self._constants)}",
                shape=ir.Shape(shape),
                type=ir.TensorType(tensor.dtype),
                const_value=tensor,
            )
        return self._constants[key]

    def body(self) -> Emitter:
        """Emits the nodes of a body (`as_graph`) of a node that this one emits.

        Constants are those of the enclosing scope, which the body captures.
        """
        inner = Emitter(f"{self.prefix}/body{self._bodies}", self.tag, self.opset)
        self._bodies += 1
        inner._constants, inner._constant_prefix = self._constants, self._constant_prefix
        return inner

    def input_like(self, value: ir.Value) -> ir.Value:
        """An input of a body, of a value's type and rank; of its shape where that is static."""
        name = f"{self.prefix}/in_{self._inputs}"
        self._inputs += 1
        return ir.Value(name=name, type=value.type, shape=without_symbols(value.shape))

    def as_graph(self, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]) -> ir.Graph:
        """A body of the nodes emitted so far; those that no output needs are dropped."""
        results: list[ir.Value] = []
        for value in outputs:
            # A body returns values of its own, each once.
            own = value.producer() in self.new_nodes and value not in results
            results.append(value if own else self.identity(value))
        graph = ir.Graph(inputs, results, nodes=self.new_nodes, name=self.prefix)
        remove_dead(graph, list(self.new_nodes))
        return graph

    def identity(self, value: ir.Value) -> ir.Value:
        """The value under a new name, its type and shape known."""
        result = self.op("Identity", value)
        result.type, result.shape = value.type, value.shape
        return result

    def copy(self, body: ir.Graph, inputs: Sequence[ir.Value]) -> list[ir.Value]:
        """The nodes of a body, in order, as nodes of this scope; returns what its outputs became.

        All names are new, those of bodies inside too. Constants are shared by all copies. A shape
        with symbols is forgotten: what `N` stands for in one step it may not in the next.
        """
        clone = body.clone(allow_outer_scope_values=True)
        outputs = list(clone.outputs)
        clone.outputs.clear()
        known = dict(zip(clone.inputs, inputs, strict=True))
        nodes = list(clone)
        clone.remove(nodes)
        for value in clone.initializers.values():
            assert value.const_value is not None, "a body's initializers hold something"
            known[value] = self.tensor(value.const_value)
        for node in nodes:
            tensor = node.attributes.get("value") if is_onnx(node, "Constant") else None
            if tensor is not None:
                known[node.outputs[0]] = self.tensor(tensor.as_tensor())
            else:
                self._adopt(node)
        for old, new in known.items():
            old.replace_all_uses_with(new)
        return [known.get(value, value) for value in outputs]

    def _adopt(self, node: ir.Node) -> None:
        """Takes a node of another scope, under names of this one."""
        prefix = f"{self.prefix}/{len(self.new_nodes)}"
        self.new_nodes[node] = None
        node.metadata_props.setdefault("gdn_ir.pass", self.tag)
        _rename(node, prefix)
        for value in node.outputs:
            if value.shape is not None and not value.shape.is_static():
                value.shape = None
        inner = [graph for holder in walk([node]) for graph in bodies(holder)]
        for number, graph in enumerate(inner):
            graph.name = f"{prefix}/body{number}"
            for name, value in list(graph.initializers.items()):
                if not value.is_graph_output() and value.const_value is not None:
                    value.replace_all_uses_with(self.tensor(value.const_value))
                    del graph.initializers[name]
            for index, value in enumerate(graph.inputs):
                value.name = f"{graph.name}/in_{index}"
                value.shape = without_symbols(value.shape)
            for index, value in enumerate(list(graph.initializers.values())):
                if value.const_value is not None:
                    value.const_value = own_tensor(value.const_value)
                value.name = f"{graph.name}/const_{index}"
            for index, holder in enumerate(graph):
                _rename(holder, f"{graph.name}/{index}")
                for value in holder.outputs:
                    value.shape = without_symbols(value.shape)

    def insert_into(
        self,
        graph: ir.Graph,
        results: Sequence[ir.Value],
        *,
        constants_as_nodes: bool = False,
    ) -> None:
        """Appends the nodes and the constants that they use; the graph needs a sort.

        Nodes that no result needs are dropped. Constants become initializers, or Constant nodes
        where the graph cannot hold those.
        """
        graph.extend(self.new_nodes)
        remove_dead(graph, list(self.new_nodes), keep=results)
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

    def _value(self, operand: Operand) -> ir.Value | None:
        if operand is None or isinstance(operand, ir.Value):
            return operand
        return self.constant(operand)


def _rename(node: ir.Node, name: str) -> None:
    node.name = name
    for index, value in enumerate(node.outputs):
        if value.name:  # an output that is left out has none
            value.name = name if len(node.outputs) == 1 else f"{name}.{index}"


def own_tensor(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """The same tensor, weights in files not read, for a value of another name.

    onnx_ir writes the name of a value on its tensor, which here belongs to another model too.
    """
    if not isinstance(tensor, ir.serde.TensorProtoTensor):
        return copy.copy(tensor)
    proto = onnx.TensorProto()
    proto.CopyFrom(tensor.raw)
    return ir.serde.TensorProtoTensor(proto)


def without_symbols(shape: ir.Shape | None) -> ir.Shape | None:
    """The shape with its symbols, which are those of one scope or step, made anonymous."""
    if shape is None:
        return None
    return ir.Shape(size if isinstance(size, int) else None for size in shape)
