"""Captures, scopes and counts, against hand-written graphs."""

import pytest
from onnx_text import FUNCTION, LOOP, NESTED, model_of, value_of

from gdn_ir.graph_view import (
    bodies,
    captures,
    copies,
    is_deterministic,
    is_onnx,
    node_graph,
    operands,
    scopes,
    serial_steps,
)


def names(values):
    return [value.name for value in values]


def graph_of(nodes, outputs="float[4] y", constants=""):
    text = f"g (float[4] x) => ({outputs}) <int64[1] four = {{4}} {constants}> {{ {nodes} }}"
    return model_of(text).graph


def test_captures_of_one_body():
    loop = value_of(model_of(LOOP), "y").producer()
    assert names(captures(loop)) == ["w", "s"]
    assert names(operands(loop)) == ["n", "on", "x", "w", "s"]


def test_captures_through_two_levels():
    model = model_of(NESTED)
    if_, loop = value_of(model, "y").producer(), value_of(model, "p").producer()
    assert sorted(names(captures(if_))) == ["n", "s", "x"]
    assert sorted(names(captures(loop))) == ["s", "t", "x"]
    assert captures(value_of(model, "s").producer()) == []


def test_scopes_are_every_graph_the_outer_before_the_inner():
    model = model_of(NESTED)
    found = list(scopes(model))
    assert [graph.name for graph in found] == ["g", "a", "b", "d"]
    assert [graph.name for graph in scopes(model_of(LOOP))] == ["g", "b"]
    function = model_of(FUNCTION)
    assert len(list(scopes(function))) == 2


def test_a_control_flow_node_depends_on_the_makers_of_what_it_captures():
    model = model_of(LOOP)
    view = node_graph(model.graph)
    assert [(a.op_type, b.op_type) for a, b in view.edges] == [("Mul", "Loop")]
    (body,) = bodies(model.graph[1])
    edges = [(a.op_type, b.op_type) for a, b in node_graph(body).edges]
    assert edges == [("Mul", "Add")]


@pytest.mark.parametrize(
    ("nodes", "steps"),
    [
        pytest.param("y = Neg (x)", 1, id="one op"),
        pytest.param("y = Identity (x)", 0, id="one view"),
        pytest.param("a = Neg (x) b = Exp (a) y = Abs (b)", 3, id="chain"),
        pytest.param("a = Neg (x) b = Exp (x) y = Add (a, b)", 2, id="diamond"),
        pytest.param("a = Neg (x) b = Reshape (a, four) y = Exp (b)", 2, id="view between"),
        pytest.param("a = Reshape (x, four) b = Neg (a) y = Exp (b)", 2, id="view first"),
        pytest.param("a = Neg (x) y = Identity (a)", 1, id="view last"),
        pytest.param("k = Constant <value_float = 2.0> () y = Mul (x, k)", 1, id="constant"),
        pytest.param("a = Neg (x) b = Exp (a) c = Neg (x) y = Add (b, c)", 3, id="longest path"),
        pytest.param("a = Neg (x) b = Exp (x) y = Abs (x)", 1, id="independent"),
        pytest.param(
            "a = Reshape (x, four) b = Identity (a) y = Neg (x)",
            1,
            id="an op beside views",
        ),
    ],
)
def test_serial_steps(nodes, steps):
    assert serial_steps(graph_of(nodes)) == steps


def test_serial_steps_through_a_capture():
    assert serial_steps(model_of(LOOP).graph) == 2  # the Loop waits for the Mul
    assert serial_steps(model_of(NESTED).graph) == 2


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("y = Neg (x)", (0, 0)),
        ("a, b = Split <num_outputs = 2> (x) y = Concat <axis = 0> (b, a)", (1, 1)),
        ("a = Gather (x, four) b = Slice (x, four, four) y = Neg (x)", (2, 0)),
        ("a = Reshape (x, four) y = ScatterElements (a, four, x)", (0, 1)),
    ],
)
def test_copies(nodes, expected):
    assert copies(graph_of(nodes)) == expected


def test_copies_of_other_domains_are_not_known():
    text = '<ir_version: 10, opset_import: ["": 20, "c": 1]> g (float[4] x) => (float[4] y) '
    graph = model_of(text + "{ a = c.Slice (x) y = c.Concat (a) }").graph
    assert copies(graph) == (0, 0)
    assert not is_onnx(graph[0])
    assert not is_deterministic(graph[0])


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("y = Neg (x)", True),
        ("y = RandomNormalLike (x)", False),
        ("y = Bernoulli (x)", False),
        ("y = Dropout (x)", True),
        ("y = Dropout (x, ratio)", True),
        ("y = Dropout (x, ratio, training)", False),
    ],
)
def test_which_ops_draw_random_numbers(node, expected):
    constants = ", float ratio = {0.5}, bool training = {1}"
    (node,) = graph_of(node, constants=constants)
    assert is_deterministic(node) is expected
