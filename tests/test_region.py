"""What a region is, how it stands alone, and what replacing it leaves behind."""

import networkx as nx
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx_text import FUNCTION, LOOP, model_of, ops_of, value_of, values_of

from gdn_ir import region as region_module
from gdn_ir.evaluate import evaluate
from gdn_ir.graph_view import bodies, node_graph
from gdn_ir.region import OpenRegion, Region, is_constant, replace
from gdn_ir.removal import erase
from gdn_ir.verify.structure import defects

CHAIN = """g (float[2] x, float[2] w) => (float[2] y, float[2] z) <float[2] c = {1, 2}> {
  k = Constant <value = float[2] {3, 5}> ()
  a = Add (x, c)
  b = Mul (a, w)
  y = Sub (b, k)
  z = Neg (a)
}"""
X, W = np.float32([1, 2]), np.float32([0.5, 3])


def between(model, inputs, outputs):
    return Region.between(values_of(model, inputs), values_of(model, outputs))


# --- between --------------------------------------------------------------------------------------


def test_a_closed_region_holds_its_nodes_and_constants_only():
    model = model_of(CHAIN)
    region = between(model, "x w", "y")
    assert sorted(ops_of(region.nodes)) == ["Add", "Constant", "Mul", "Sub"]
    assert [value.name for value in region.constants] == ["c"]
    assert [value.name for value in region.inputs] == ["x", "w"]


def test_a_region_ends_at_its_boundary():
    assert ops_of(between(model_of(CHAIN), "b", "y").nodes) == ["Constant", "Sub"]
    assert ops_of(between(model_of(CHAIN), "a", "a").nodes) == []


def test_nodes_shared_by_two_outputs_are_there_once():
    region = between(model_of(CHAIN), "x w", "z y")
    assert sorted(ops_of(region.nodes)) == ["Add", "Constant", "Mul", "Neg", "Sub"]


def test_an_open_region_names_the_value_it_lacks():
    with pytest.raises(OpenRegion, match="it also depends on 'w'"):
        between(model_of(CHAIN), "x", "y")


def test_an_initializer_that_callers_may_override_is_no_constant():
    model = model_of(
        "g (float[2] x, float[2] c) => (float[2] y) <float[2] c = {1, 2}> { y = Add (x, c) }"
    )
    assert not is_constant(value_of(model, "c"))
    with pytest.raises(OpenRegion, match="'c'"):
        between(model, "x", "y")


def test_what_a_body_captures_is_an_input_like_any_other():
    model = model_of(LOOP)
    assert ops_of(between(model, "n on x w s", "y").nodes) == ["Loop"]
    assert ops_of(between(model, "n on x w", "y").nodes) == ["Mul", "Loop"]
    with pytest.raises(OpenRegion, match="'w'"):
        between(model, "n on x s", "y")
    assert ops_of(between(model, "v w s", "v_next").nodes) == ["Mul", "Add"]


def test_a_region_that_swallows_the_model_is_refused(monkeypatch):
    monkeypatch.setattr(region_module, "_MOST_NODES", 2)
    with pytest.raises(OpenRegion, match="more than 2 nodes"):
        between(model_of(CHAIN), "x w", "y")


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=12))
def test_a_region_is_what_its_output_depends_on_in_order(picks):
    names = ["x"]
    nodes = []
    for number, (left, right) in enumerate(picks):
        nodes.append(f"v{number} = Add ({names[left % len(names)]}, {names[right % len(names)]})")
        names.append(f"v{number}")
    model = model_of(f"g (float[2] x) => (float[2] {names[-1]}) {{ {' '.join(nodes)} }}")
    region = between(model, "x", names[-1])
    last = value_of(model, names[-1]).producer()
    assert set(region.nodes) == nx.ancestors(node_graph(model.graph), last) | {last}
    known = {value_of(model, "x")}
    for node in region.nodes:
        assert known.issuperset(node.inputs)
        known.update(node.outputs)


# --- a region as a model --------------------------------------------------------------------------


def test_a_region_computes_alone_what_it_computed_in_its_model():
    model = model_of(CHAIN)
    piece = between(model, "a w", "y z").to_model(model)
    assert [v.name for v in (*piece.graph.inputs, *piece.graph.outputs)] == ["a", "w", "y", "z"]
    y, z = evaluate(piece, {"a": X, "w": W})
    np.testing.assert_array_equal(y, X * W - [3, 5])
    np.testing.assert_array_equal(z, -X)
    assert len(model.graph) == 5


def test_constants_are_shared_with_the_model():
    model = model_of(CHAIN)
    piece = between(model, "x", "a").to_model(model)
    assert piece.graph.initializers["c"].const_value is value_of(model, "c").const_value


def test_local_functions_come_along_where_they_are_called():
    model = model_of(FUNCTION)
    piece = between(model, "x", "y").to_model(model)
    (y,) = evaluate(piece, {"x": X})
    np.testing.assert_allclose(y, np.exp(-X))
    assert not between(model, "x", "x").to_model(model).functions


def test_a_region_of_a_body_stands_alone_too():
    model = model_of(LOOP)
    piece = between(model, "v w s", "v_next").to_model(model)
    (v_next,) = evaluate(piece, {"v": X, "w": W, "s": W})
    np.testing.assert_array_equal(v_next, X * W + W)


# --- replace --------------------------------------------------------------------------------------


def test_a_replacement_takes_over_name_type_shape_and_uses():
    model = model_of(CHAIN)
    x = value_of(model, "x")
    before, after = replace(
        model,
        between(model, "x", "a"),
        lambda emit: [emit.op("Sub", x, -np.float32([1, 2]))],
        tag="t",
    )
    model.graph.sort()
    a = value_of(model, "a")
    assert a.producer().op_type == "Sub"
    assert sorted(ops_of(use.node for use in a.uses())) == ["Mul", "Neg"]
    assert defects(model) == []
    for piece in (before, after):
        np.testing.assert_array_equal(evaluate(piece, {"x": X})[0], [2, 4])
    assert (ops_of(before.graph), ops_of(after.graph)) == (["Add"], ["Sub"])
    y, z = evaluate(model, {"x": X, "w": W})
    np.testing.assert_array_equal(y, [2 * 0.5 - 3, 4 * 3 - 5])
    np.testing.assert_array_equal(z, [-2, -4])


def test_graph_outputs_keep_name_type_shape_and_place():
    model = model_of(CHAIN)
    x, w = values_of(model, "x w")
    region = between(model, "x w", "z y")
    replace(model, region, lambda emit: [emit.op("Neg", x), emit.op("Exp", w)], tag="t")
    model.graph.sort()
    assert [(v.name, str(v.type), str(v.shape)) for v in model.graph.outputs] == [
        ("y", "FLOAT", "[2]"),
        ("z", "FLOAT", "[2]"),
    ]
    assert [v.producer().op_type for v in model.graph.outputs] == ["Exp", "Neg"]
    assert sorted(ops_of(model.graph)) == ["Exp", "Neg"]


def test_an_input_as_replacement_goes_through_an_identity():
    model = model_of(CHAIN)
    replace(model, between(model, "x", "a"), lambda emit: [value_of(model, "x")], tag="t")
    assert value_of(model, "a").producer().op_type == "Identity"
    assert value_of(model, "x") is model.graph.inputs[0]


def test_one_value_for_two_outputs_goes_through_an_identity():
    model = model_of(CHAIN)

    def build(emit):
        new = emit.op("Exp", value_of(model, "x"))
        return [new, new]

    replace(model, between(model, "x w", "y z"), build, tag="t")
    model.graph.sort()
    assert ops_of(model.graph) == ["Exp", "Identity"]
    y, z = evaluate(model, {"x": X, "w": W})
    np.testing.assert_array_equal(y, z)


def test_a_constant_as_replacement_goes_through_an_identity():
    model = model_of(CHAIN)
    build = lambda emit: [emit.constant(np.float32([7, 8]))]  # noqa: E731
    replace(model, between(model, "x", "a"), build, tag="t")
    model.graph.sort()
    assert defects(model) == []
    np.testing.assert_array_equal(evaluate(model, {"x": X, "w": W})[1], [-7, -8])


def test_inner_nodes_stay_for_their_other_users():
    model = model_of(CHAIN)  # a is inner here, and z needs it
    w = value_of(model, "w")
    replace(model, between(model, "x w", "y"), lambda emit: [emit.op("Neg", w)], tag="t")
    model.graph.sort()
    assert sorted(ops_of(model.graph)) == ["Add", "Neg", "Neg"]
    np.testing.assert_array_equal(evaluate(model, {"x": X, "w": W})[1], -X - [1, 2])


def test_new_nodes_tell_where_they_come_from():
    model = model_of(CHAIN)
    x = value_of(model, "x")
    build = lambda emit: [emit.op("Add", emit.op("Neg", x), np.float32([1]))]  # noqa: E731
    replace(model, between(model, "x", "a"), build, tag="my-pass{leaf=2}")
    made = [node for node in model.graph if "gdn_ir.pass" in node.metadata_props]
    assert [node.metadata_props["gdn_ir.pass"] for node in made] == ["my-pass{leaf=2}"] * 2
    assert [node.name for node in made] == ["a/my-pass/0", "a/my-pass/1"]
    assert "a/my-pass/const_0" in model.graph.initializers


def test_types_and_shapes_of_new_values_are_inferred():
    model = model_of(CHAIN)
    x = value_of(model, "x")

    def build(emit):
        column = emit.op("Unsqueeze", x, np.array([1]))
        return [emit.op("ReduceSum", column, np.array([1]), keepdims=0)]

    replace(model, between(model, "x", "a"), build, tag="t")
    column = value_of(model, "a/t/0")
    assert (str(column.type), str(column.shape)) == ("FLOAT", "[2,1]")


def test_equal_constants_are_one_initializer_and_unused_ones_none():
    model = model_of(CHAIN)
    x = value_of(model, "x")

    def build(emit):
        emit.constant(np.float32([9, 9]))
        return [emit.op("Add", emit.op("Add", x, np.float32([1])), np.float32([1]))]

    replace(model, between(model, "x", "a"), build, tag="t")
    made = [value for name, value in model.graph.initializers.items() if name.startswith("a/t/")]
    assert [value.const_value.numpy().tolist() for value in made] == [[1]]


LOOP_FEEDS = {"n": np.array(3), "on": np.array(True), "x": X, "w": W}


def add_twice(model, names):
    """v + v + s, which is what the body of a LOOP with w = 2 makes."""
    v, s = values_of(model, names)
    return lambda emit: [emit.op("Add", emit.op("Add", v, v), s)]


def test_a_region_of_a_body_is_replaced_there():
    model = model_of(LOOP)
    feeds = LOOP_FEEDS | {"w": np.float32([2, 2])}
    expected = evaluate(model, feeds)
    replace(model, between(model, "v w s", "v_next"), add_twice(model, "v s"), tag="t")
    model.graph.sort()
    assert defects(model) == []
    assert ops_of(model.graph) == ["Mul", "Loop"]
    (body,) = bodies(value_of(model, "y").producer())
    assert ops_of(body) == ["Identity", "Add", "Add"]
    np.testing.assert_array_equal(evaluate(model, feeds), expected)


CAPTURED_CONSTANT = LOOP.replace(
    "s = Mul (x, w)", "s = Mul (x, w) k = Constant <value = float[2] {2, 2}> ()"
).replace("t = Mul (v, w)", "t = Mul (v, k)")


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        pytest.param(CAPTURED_CONSTANT, "v s", id="constant"),
        pytest.param(LOOP, "v w x", id="slice"),  # s = Mul (x, w) is part of it
    ],
)
def test_a_region_of_a_body_may_begin_outside_it(text, inputs):
    model = model_of(text)
    feeds = LOOP_FEEDS | {"w": np.float32([2, 2])}
    expected = evaluate(model, feeds)
    x, w, v, s = values_of(model, "x w v s")

    def build(emit):
        return [
            emit.op("Add", emit.op("Add", v, v), emit.op("Mul", x, w) if x in region.inputs else s)
        ]

    region = between(model, inputs, "v_next")
    replace(model, region, build, tag="t")
    model.graph.sort()
    assert defects(model) == []
    np.testing.assert_array_equal(evaluate(model, feeds), expected)


def test_constants_of_a_replacement_in_a_local_function_are_kept():
    model = model_of(FUNCTION)
    (function,) = model.functions.values()
    a, b = function.inputs[0], function.outputs[0]
    build = lambda emit: [emit.op("Div", np.float32([1]), emit.op("Exp", a))]  # noqa: E731
    replace(model, Region.between([a], [b]), build, tag="t")
    function.sort()
    onnx.checker.check_model(ir.to_proto(model))
    np.testing.assert_allclose(evaluate(model, {"x": X})[0], np.exp(-X))


def test_one_pass_may_replace_a_value_twice():
    model = model_of("g (float[2] x) => (float[2] y) { y = Neg (x) }")
    for number in (1, 2):
        source = value_of(model, "x" if number == 1 else "y/t/0")
        build = lambda emit, v=source, n=number: [  # noqa: E731
            emit.op("Add", emit.op("Abs", v), np.float32([n]))
        ]
        replace(model, Region.between([source], [value_of(model, "y")]), build, tag="t")
        model.graph.sort()
        assert defects(model) == []
    np.testing.assert_array_equal(evaluate(model, {"x": X})[0], X + 2)


# --- erase ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2])
def test_erasing_a_node_releases_what_its_bodies_capture(depth):
    text = LOOP
    if depth == 2:
        text = text.replace(
            "t = Mul (v, w)",
            """yes = Identity (go)
            t = If (yes) <then_branch = p () => (float[2] a) { a = Mul (v, w) },
                          else_branch = q () => (float[2] e) { e = Exp (w) }>""",
        )
    model = model_of(text.replace("=> (float[2] y)", "=> (float[2] s)"))
    w, s = values_of(model, "w s")
    loop = model.graph[1]
    assert len(list(w.uses())) == 1 + depth
    erase(model.graph, loop)
    assert ops_of(use.node for use in w.uses()) == ["Mul"]
    assert list(s.uses()) == []
    assert ops_of(model.graph) == ["Mul"]


def test_a_node_in_use_is_not_erased():
    model = model_of(CHAIN)
    with pytest.raises(ValueError, match="used"):
        erase(model.graph, value_of(model, "a").producer())
