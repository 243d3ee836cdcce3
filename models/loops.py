"""Loops over one carried value, as torch.onnx writes a scripted `for`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from gdn_ir.models.graph_writer import Dim, GraphWriter

__all__ = ["counted_loop"]


def counted_loop(
    w: GraphWriter,
    name: str,
    trips: ir.Value,
    carried: ir.Value,
    shape: Sequence[Dim],
    turn: Callable[[GraphWriter, ir.Value, ir.Value], Sequence[ir.Value]],
    *,
    result: str,
    collected: str | None = None,
    collected_shape: Sequence[Dim] = (),
) -> Sequence[ir.Value]:
    """A Loop of `trips` turns that carries one float32 value and may collect another.

    `turn` gets the body's writer, the iteration number (rank 0) and the carried value; it returns
    the next carried value and, with `collected`, one more value, which the Loop stacks along a new
    first axis. Bodies capture: `turn` may use any value made before.

    Args:
        w: writes the graph around the Loop.
        name: of the Loop's own inner values.
        trips: the number of turns, int64 of rank 0.
        carried: the first carried value.
        shape: of the carried value, which no turn changes; inference cannot know that.
        turn: writes one turn.
        result: name of the last carried value.
        collected: name of the stack.
        collected_shape: of the stack.

    Returns the last carried value and, with `collected`, the stack.
    """
    body = w.body(f"{name}_body")
    number = body.input(f"{name}_number", ir.DataType.INT64, ())
    goes_on = body.input(f"{name}_goes_on", ir.DataType.BOOL, ())
    before = body.input(f"{name}_carried", ir.DataType.FLOAT, shape)
    after = turn(body, number, before)
    body.output(body.op("Identity", goes_on, name=f"{name}_still_goes_on"))
    for value in after:
        body.output(value)
    always = w.shared("true", np.array(True))
    names = [result] if collected is None else [result, collected]
    results = w.ops("Loop", trips, always, carried, names=names, body=body.graph())
    shapes = [shape, collected_shape][: len(results)]
    for value, known in zip(results, shapes, strict=True):
        w.annotate(value, ir.DataType.FLOAT, known)
    return results
