"""Takes nodes out of a graph, with all that they hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import onnx_ir as ir

from gdn_ir.graph_view import bodies, walk


def erase(graph: ir.Graph, node: ir.Node) -> None:
    """Removes an unused node and all uses that its bodies make of outer values.

    onnx_ir detaches the node but not its bodies, whose captures would count as uses for ever.
    """
    for body in bodies(node):
        release(body)
    graph.remove(node, safe=True)


def release(body: ir.Graph) -> None:
    """Ends all uses that a body, which nothing needs any more, makes of any value."""
    for inner in walk(body):
        for index in range(len(inner.inputs)):
            inner.replace_input_with(index, None)


def remove_dead(graph: ir.Graph, nodes: Sequence[ir.Node], keep: Collection[ir.Value] = ()) -> None:
    """Removes those of `nodes` (in topological order) that nothing, nor `keep`, needs any more."""
    kept = set(keep)
    for node in reversed(nodes):
        is_needed = any(v.uses() or v.is_graph_output() or v in kept for v in node.outputs)
        if node.graph is graph and not is_needed:
            erase(graph, node)
