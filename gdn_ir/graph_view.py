"""A scope of a model as a networkx graph: built for one question, thrown away after a mutation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import networkx as nx
import onnx_ir as ir

# Ops that only rename or re-index what is there: no arithmetic, and no copy that a reader would
# call one. Counted as neither work nor traffic.
VIEW_OPS = frozenset({"Identity", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten"})
COPY_IN_OPS = frozenset({"Slice", "Gather", "GatherElements", "GatherND", "Split"})
SCATTER_OPS = ("ScatterElements", "ScatterND")
COPY_OUT_OPS = frozenset({"Concat", "Scatter", *SCATTER_OPS})
_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
_RANDOM_OPS = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
     "RandomUniformLike"}
)  # fmt: skip


def is_onnx(node: ir.Node, op_type: str | None = None) -> bool:
    """Whether the node is an op of the standard domain (and of this type)."""
    return node.domain in ("", "ai.onnx") and op_type in (None, node.op_type)


def is_deterministic(node: ir.Node) -> bool:
    """Whether equal inputs give equal outputs; ops of foreign domains are not known to."""
    if not is_onnx(node) or node.op_type in _RANDOM_OPS:
        return False
    if node.op_type != "Dropout":
        return True
    # Dropout draws random numbers only in training mode, its third input.
    return len(node.inputs) < 3 or node.inputs[2] is None


def bodies(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs a control-flow node holds (Loop, Scan, If), in the order of their names."""
    held = [attr for attr in node.attributes.values() if attr.type in _GRAPHS]
    for attr in sorted(held, key=lambda attr: attr.name):
        if attr.type == ir.AttributeType.GRAPH:
            yield attr.as_graph()
        else:
            yield from attr.as_graphs()


def captures(node: ir.Node) -> list[ir.Value]:
    """Values of enclosing scopes that the bodies of `node` use, each once, in order of use.

    onnx_ir counts such a use on the body node, not on the Loop, Scan or If that owns the body.
    """
    found: dict[ir.Value, None] = {}
    inside: set[ir.Graph] = set()
    stack = list(bodies(node))
    while stack:
        graph = stack.pop()
        inside.add(graph)
        for inner in graph:
            stack.extend(bodies(inner))
            found.update((value, None) for value in inner.inputs if value is not None)
        found.update((value, None) for value in graph.outputs)
    return [value for value in found if value.graph is not None and value.graph not in inside]


def operands(node: ir.Node) -> list[ir.Value]:
    """All values the node needs: its inputs, then what its bodies capture."""
    return [value for value in node.inputs if value is not None] + captures(node)


def walk(nodes: Iterable[ir.Node]) -> Iterator[ir.Node]:
    """The nodes and, after each, those of the bodies it holds."""
    stack = list(nodes)[::-1]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(inner for body in bodies(node) for inner in body)


def only_consumer(value: ir.Value) -> ir.Node | None:
    """The node that alone uses the value, if it stands in the value's own scope."""
    uses = tuple(value.uses())
    if len(uses) != 1 or value.is_graph_output():
        return None
    consumer = uses[0].node
    return consumer if consumer.graph is value.graph else None


def scopes(model: ir.Model) -> Iterator[ir.Graph]:
    """Every graph of the model: main, local functions, and the bodies inside, outermost first."""
    stack = [function.graph for function in model.functions.values()] + [model.graph]
    while stack:
        graph = stack.pop()
        yield graph
        for node in graph:
            stack.extend(bodies(node))


def has_parameters(node: ir.Node) -> bool:
    """Whether an attribute, here or in a body, is a parameter of the local function around it.

    Then the node is another in each call.
    """
    return any(attr.is_ref() for inner in walk([node]) for attr in inner.attributes.values())


def index_bound(value: ir.Value, *, otherwise: int) -> int:
    """The size of what the value indexes (a vocabulary); `otherwise` where it indexes nothing."""
    sizes = []
    for node, position in value.uses():
        table = node.inputs[0]
        if not is_onnx(node, "Gather") or position != 1 or table is None:
            continue
        tensor = ir.convenience.get_const_tensor(table)
        shape = table.shape if tensor is None else tensor.shape
        if shape is None:
            continue
        axis = node.attributes.get("axis")
        size = shape[axis.as_int() if axis else 0]
        if isinstance(size, int):
            sizes.append(size)
    return min(sizes, default=otherwise)


def trip_counts(model: ir.Model) -> list[str]:
    """The model's integer inputs of one element that decide how often some Loop runs."""
    found: dict[str, None] = {}
    loops = [node for graph in scopes(model) for node in graph if is_onnx(node, "Loop")]
    stack = [loop.inputs[0] for loop in loops if loop.inputs]
    visited: set[ir.Value | None] = {None}
    while stack:
        value = stack.pop()
        if value is None or value in visited:
            continue
        visited.add(value)
        producer = value.producer()
        if producer is not None:
            stack.extend(producer.inputs if producer.op_type != "Shape" else ())
        elif value.graph is model.graph and value.is_graph_input() and _is_one_integer(value):
            found[value.name or ""] = None
    return list(found)


def _is_one_integer(value: ir.Value) -> bool:
    is_integer = value.dtype is not None and value.dtype.is_integer()
    return is_integer and value.shape is not None and list(value.shape) in ([], [1])


def node_graph(graph: ir.Graph) -> nx.DiGraph:
    """The scope's nodes and one edge per producer and consumer in it.

    A control-flow node also depends on the producers of what its bodies capture. 20,000 nodes
    take about 0.1 s.
    """
    view = nx.DiGraph()
    view.add_nodes_from(graph)
    for node in graph:
        for value in operands(node):
            producer = value.producer()
            if producer is not None and producer.graph is graph:
                view.add_edge(producer, node)
    return view


def serial_steps(graph: ir.Graph) -> int:
    """Ops on the longest dependent path of the scope, views and constants not counted."""
    view = node_graph(graph)
    steps: dict[ir.Node, int] = {}
    for node in nx.topological_sort(view):
        before = max((steps[source] for source in view.predecessors(node)), default=0)
        steps[node] = before + (node.op_type not in VIEW_OPS | {"Constant"})
    return max(steps.values(), default=0)


def copies(graph: ir.Graph) -> tuple[int, int]:
    """Ops that take a piece out of a tensor, and ops that put pieces into one."""
    ops = [node.op_type for node in graph if is_onnx(node)]
    return sum(op in COPY_IN_OPS for op in ops), sum(op in COPY_OUT_OPS for op in ops)
