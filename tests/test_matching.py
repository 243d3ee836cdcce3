"""Patterns: what they bind, and what they say when they do not hold."""

import numpy as np
import pytest
from onnx_text import model_of, value_of

from gdn_ir.matching import Constant, Mismatch, Op, OpIndex, Var, array_of, is_identity

TEXT = """g (float[2,2] x, float[2,2] w) => (float[2,2] y)
  <float[2,2] eye = {1, 0, 0, 1}, float[2,2] two = {2, 2, 2, 2}> {
    p = Mul (x, w)
    q = Mul (x, x)
    a = Add (p, eye)
    b = Add (eye, p)
    c = Add (p, two)
    d = Add (p, w)
    r = Clip (q, , two)
    s = Neg (q)
    y = Add (r, s)
}"""
EYE = Constant("eye", is_identity, "an identity")


@pytest.fixture
def model():
    return model_of(TEXT)


def match(model, pattern, name):
    return pattern.match(value_of(model, name).producer())


def test_a_match_binds_values_by_name(model):
    found = match(model, Op("Add", Op("Mul", Var("left"), Var("right")), EYE), "a")
    assert found
    assert {name: value.name for name, value in found.items()} == {
        "left": "x",
        "right": "w",
        "eye": "eye",
    }


def test_operands_beyond_the_pattern_are_no_matter(model):
    assert match(model, Op("Add", Var("p")), "a")["p"].name == "p"


@pytest.mark.parametrize(("name", "commutes", "expected"), [
    ("a", False, True), ("b", False, False), ("a", True, True), ("b", True, True),
    ("c", True, False),
])  # fmt: skip
def test_order_counts_unless_the_op_commutes(model, name, commutes, expected):
    found = match(model, Op("Add", Op("Mul"), EYE, commutes=commutes), name)
    assert bool(found) is expected


@pytest.mark.parametrize(
    ("pattern", "name", "reason"),
    [
        (Op("Sub"), "a", "'a' is made by Add, not Sub"),
        (Op("Add", Op("Exp")), "a", "'p' is made by Mul, not Exp"),
        (Op("Add", Var("p"), Op("Exp")), "d", "'w' is not made by Exp"),
        (Op("Add", Var("p"), EYE), "c", "'two' is not an identity"),
        (Op("Add", Var("p"), EYE), "d", "'w' is not a constant"),
        (Op("Neg", Var("a"), Var("b")), "s", "'s' has 1 input"),
        (Op("Clip", Var("x"), Var("low")), "r", "'r' lacks an optional input"),
        (Op("Mul", Var("same"), Var("same")), "p", "'w' is not the same value as same"),
    ],
)
def test_a_mismatch_says_where_and_why(model, pattern, name, reason):
    found = match(model, pattern, name)
    assert isinstance(found, Mismatch)
    assert not found
    assert str(found) == reason


def test_two_variables_of_one_name_are_one_value(model):
    assert match(model, Op("Mul", Var("same"), Var("same")), "q")["same"].name == "x"
    nested = Op("Add", Op("Mul", Var("left"), Var("right")), Var("right"))
    assert match(model, nested, "d")["right"].name == "w"
    assert not match(model, nested, "c")


def test_an_op_of_another_domain_does_not_match():
    model = model_of(
        '<ir_version: 10, opset_import: ["": 20, "c": 1]>'
        "g (float[2] x) => (float[2] y) { y = c.Neg (x) }"
    )
    assert not match(model, Op("Neg"), "y")
    assert list(OpIndex(model.graph).of("Neg")) == []


def test_the_index_gives_nodes_by_type_while_they_are_there(model):
    index = OpIndex(model.graph)
    assert [node.outputs[0].name for node in index.of("Neg", "Mul")] == ["p", "q", "s"]
    dead = value_of(model, "c").producer()
    model.graph.remove(dead)
    assert [node.outputs[0].name for node in index.of("Add")] == ["a", "b", "d", "y"]


def test_arrays_of_constants_only(model):
    assert array_of(value_of(model, "two")).tolist() == [[2, 2], [2, 2]]
    assert array_of(value_of(model, "x")) is None
    assert array_of(value_of(model, "p")) is None
    assert array_of(None) is None


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.eye(3), True),
        (np.broadcast_to(np.eye(3), (2, 4, 3, 3)), True),
        (np.eye(3, dtype=bool), True),
        (np.eye(1), False),
        (np.eye(3, 4), False),
        (np.eye(3, k=1), False),
        (2 * np.eye(3), False),
        (np.ones(3), False),
    ],
)
def test_what_an_identity_is(array, expected):
    assert is_identity(array) is expected
