"""A repetition in three parts: before it, inside, after it; for hoist-chunk-work."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gdn_ir.emitter import Emitter
from gdn_ir.facts import static_shape
from gdn_ir.passes._batched import Batch, rank, to_front
from gdn_ir.passes._distribution import Distribution
from gdn_ir.passes._repeats import Repeat
from gdn_ir.passes._stages import placed, total
from gdn_ir.removal import release

_END = np.iinfo(np.int64)
_ROWS = ("scan_output_axes", "scan_output_directions")


def distributed(
    emit: Emitter, repeat: Repeat, parts: Distribution, count: int | None
) -> list[ir.Value]:
    """What stands in the place of the repetition; returns those of its outputs that are needed.

    Args:
        emit: takes the nodes.
        repeat: a Loop whose every step is run, or a Scan.
        parts: which of its nodes run before it, and which after it.
        count: the number of steps, if it is known.
    """
    batch = Batch(emit, count)
    _give_steps(emit, repeat, batch)
    for node in parts.before:
        batch.node(node)
    kept = [i for i, row in enumerate(repeat.rows) if not _leaves(row, parts, batch)]
    outputs = _inside(emit, repeat, parts, batch, kept)
    states = len(repeat.initial)
    collected = outputs[states + len(kept) :]
    batch.of_steps.update(zip(parts.crossing, collected, strict=True))
    for node in parts.after:
        batch.node(node)
    rows = dict(zip(kept, outputs[states:], strict=False))
    results = [
        *outputs[:states],
        *(
            rows[index] if index in rows else placed(emit, repeat, index, batch.of_steps[row])
            for index, row in enumerate(repeat.rows)
        ),
    ]
    needed = repeat.outputs
    return [results[i] for i, value in enumerate(repeat.node.outputs) if value in needed]


def _leaves(row: ir.Value, parts: Distribution, batch: Batch) -> bool:
    """Whether a collected value is made outside of the body."""
    producer = row.producer()
    return producer in parts.late or (producer in parts.moved and row in batch.of_steps)


def _give_steps(emit: Emitter, repeat: Repeat, batch: Batch) -> None:
    """The iteration numbers, or what a Scan reads, of all steps."""
    if repeat.is_loop:
        number = repeat.body.inputs[0]
        steps = emit.op("Range", np.array(0), total(emit, repeat), np.array(1))
        if rank(number):
            steps = emit.op("Unsqueeze", steps, np.array([1]))
        steps.type = ir.TensorType(ir.DataType.INT64)
        steps.shape = ir.Shape([batch.steps] + [1] * (rank(number) or 0))
        batch.of_steps[number] = steps
        batch.number = number
        return
    scanned = repeat.body.inputs[len(repeat.carried) :]
    axes = repeat.integers("scan_input_axes", len(scanned))
    backward = repeat.integers("scan_input_directions", len(scanned))
    for value, source, axis, back in zip(scanned, repeat.scanned, axes, backward, strict=True):
        dims = (rank(value) or 0) + 1
        steps = to_front(emit, source, axis % dims, dims)
        if back:
            end = (np.array([-1]), np.array([_END.min]), np.array([0]), np.array([-1]))
            steps = emit.op("Slice", steps, *end)
        batch.of_steps[value] = steps


def _inside(
    emit: Emitter, repeat: Repeat, parts: Distribution, batch: Batch, kept: list[int]
) -> list[ir.Value]:
    """The repetition without what leaves it; its carried values, kept rows and crossing values."""
    body = repeat.body.clone(allow_outer_scope_values=True)
    twin = dict(zip(repeat.body.inputs, body.inputs, strict=True))
    for node, copy in zip(repeat.body, body, strict=True):
        twin.update(zip(node.outputs, copy.outputs, strict=True))
    scanned = _read_from_outside(emit, repeat, parts, batch, body, twin)
    count = len(repeat.initial)
    first = body.outputs[: count + repeat.is_loop]
    rows = [body.outputs[count + repeat.is_loop + index] for index in kept]
    for value in parts.crossing:
        # A body returns each of its values once.
        copy = ir.node("Identity", [twin[value]])
        copy.outputs[0].type, copy.outputs[0].shape = value.type, value.shape
        body.append(copy)
        rows.append(copy.outputs[0])
    body.outputs.clear()
    body.outputs.extend([*first, *rows])

    inner = emit.body()
    inputs = [inner.input_like(value) for value in body.inputs]
    graph = inner.as_graph(inputs, inner.copy(body, inputs))
    release(body)
    outputs = _node(emit, repeat, graph, scanned, kept, len(parts.crossing))
    for value, like in zip(outputs, repeat.node.outputs[:count], strict=False):
        value.type, value.shape = like.type, like.shape
    for value, index in zip(outputs[count:], kept, strict=False):
        like = repeat.node.outputs[count + index]
        value.type, value.shape = like.type, like.shape
    for value, like in zip(outputs[count + len(kept) :], parts.crossing, strict=True):
        value.type, value.shape = like.type, ir.Shape([batch.steps, *(static_shape(like) or ())])
    return list(outputs)


def _read_from_outside(
    emit: Emitter,
    repeat: Repeat,
    parts: Distribution,
    batch: Batch,
    body: ir.Graph,
    twin: dict[ir.Value, ir.Value],
) -> list[ir.Value]:
    """Has the body read what was moved before it; returns what a Scan is to read in addition."""
    scanned: list[ir.Value] = []
    stays = parts.moved | parts.late
    for value in (v for node in repeat.body if node in parts.moved for v in node.outputs):
        if not value.is_graph_output() and all(user in stays for user, _ in value.uses()):
            continue
        if value not in batch.of_steps:
            new = _returnable(batch[value], body) if value.is_graph_output() else batch[value]
        elif repeat.is_loop:
            new = _of_this_step(emit, batch[value], body)
        else:
            new = ir.Value(name=f"step_of_{value.name}")
            body.inputs.append(new)
            scanned.append(batch[value])
        if new is not batch[value]:
            new.type, new.shape = value.type, value.shape
        ir.convenience.replace_all_uses_with(twin[value], new, replace_graph_outputs=True)
    return scanned


def _returnable(value: ir.Value, body: ir.Graph) -> ir.Value:
    """A value of the scope around, as one that the body may return."""
    node = ir.node("Identity", [value])
    body.insert_before(body[0], node)
    return node.outputs[0]


def _of_this_step(emit: Emitter, steps: ir.Value, body: ir.Graph) -> ir.Value:
    """What a Loop's body reads of a value of all steps, by its iteration number."""
    number = body.inputs[0]
    nodes = [ir.node("Gather", [steps, number], {"axis": 0})]
    if rank(number):
        nodes.append(ir.node("Squeeze", [nodes[0].outputs[0], emit.constant(np.array([0]))]))
    body.insert_before(body[0], nodes)
    return nodes[-1].outputs[0]


def _node(
    emit: Emitter,
    repeat: Repeat,
    body: ir.Graph,
    scanned: list[ir.Value],
    kept: list[int],
    crossing: int,
) -> tuple[ir.Value, ...]:
    """The repetition again, with another body."""
    count = len(repeat.initial) + len(kept) + crossing
    if repeat.is_loop:
        return emit.ops("Loop", *repeat.node.inputs, outputs=count, body=body)
    reads, new = len(repeat.scanned), len(scanned)
    given = [repeat.integers(name, len(repeat.rows)) for name in _ROWS]
    return emit.ops(
        "Scan",
        *repeat.node.inputs,
        *scanned,
        outputs=count,
        body=body,
        num_scan_inputs=reads + new,
        scan_input_axes=[*repeat.integers("scan_input_axes", reads), *[0] * new],
        scan_input_directions=[*repeat.integers("scan_input_directions", reads), *[0] * new],
        **{
            name: [*(values[index] for index in kept), *[0] * crossing]
            for name, values in zip(_ROWS, given, strict=True)
        },
    )
