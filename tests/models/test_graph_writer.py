"""The writer under all builders: names, constants and bodies."""

import numpy as np
import onnx_ir as ir
import pytest

from gdn_ir.models.graph_writer import GraphWriter
from gdn_ir.models.loops import counted_loop

FLOAT = ir.DataType.FLOAT


def doubled(trips=3):
    """x doubled `trips` times in a Loop that collects what it carries."""
    w = GraphWriter("doubled")
    x = w.input("x", FLOAT, (2,))
    y = w.op("Neg", x, name="y")

    def turn(body, number, value):
        twice = body.op("Mul", value, body.scalar(2.0, FLOAT), name="twice")
        captured = body.op("Add", twice, y, name="captured")
        return [twice, captured]

    results = counted_loop(
        w,
        "loop",
        w.ints(trips),
        x,
        (2,),
        turn,
        result="last",
        collected="all",
        collected_shape=(trips, 2),
    )
    for value in results:
        w.output(value)
    return w


def test_a_loop_carries_collects_and_captures():
    model = doubled().model()
    (loop,) = [node for node in model.graph if node.op_type == "Loop"]
    assert [str(v.shape) for v in loop.outputs] == ["[2]", "[3,2]"]
    body = loop.attributes["body"].value
    # Inference does not see constants of the graph outside: each graph has its own.
    assert list(body.initializers) == ["loop_body_float_2.0"]
    assert "y" in {v.name for node in body for v in node.inputs}


def test_a_name_is_taken_once_in_all_graphs():
    w = doubled()
    for name in ("x", "y", "twice", "loop_number", "last"):
        with pytest.raises(RuntimeError, match=f"{name}: this name is taken"):
            w.op("Neg", w.ints(1), name=name)


def test_prefixes_nest_and_leave_shared_constants_alone():
    w = GraphWriter("g")
    x = w.input("x", FLOAT, (2,))
    with w.prefixed("a_"), w.prefixed("b_"):
        y = w.op("Add", x, w.scalar(1.0, FLOAT), name="y")
        assert w.constant("c", np.zeros(1)).name == "a_b_c"
    assert y.name == "a_b_y"
    assert y.producer().name == "node_a_b_y"
    assert w.op("Neg", y, name="y").name == "y"
    assert w.scalar(1.0, FLOAT) is y.producer().inputs[1]
    w.output(y, name="renamed")
    assert [v.name for v in w.model().graph.outputs] == ["renamed"]


def test_a_value_without_a_type_is_a_mistake():
    w = GraphWriter("g")
    x = w.input("x", FLOAT, ("S",))
    w.output(w.annotate(w.op("NoSuchOp", x, name="y"), FLOAT, ("S",)))
    w.op("NoSuchOp", x, name="z")
    with pytest.raises(RuntimeError, match="NoSuchOp z: no type or rank is known"):
        w.model()
