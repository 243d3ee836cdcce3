"""Every defect of a graph's structure, made by hand."""

import re

import numpy as np
import onnx_ir as ir
import pytest
from onnx_text import FUNCTION, LOOP, NESTED, model_of, value_of

from gdn_ir.graph_view import bodies
from gdn_ir.passes.dce import DeadCode
from gdn_ir.verify import VerificationFailed
from gdn_ir.verify.structure import StructureCheck, defects, interface

TEXT = """g (float[2] x, float[2] w) => (float[2] y) <float[2] c = {1, 2}> {
  a = Mul (x, w)
  b = Add (a, c)
  y = Neg (b)
}"""


@pytest.mark.parametrize("text", [TEXT, LOOP, NESTED, FUNCTION])
def test_a_sound_model_has_no_defects(text):
    assert defects(model_of(text)) == []


def test_names_may_repeat_where_onnx_allows_it():
    # In two branches; and a body's input may hide a name of the graph.
    assert defects(model_of("""g (bool c, float[2] x) => (float[2] y) {
      y = If (c) <then_branch = t () => (float[2] p) { p = Neg (x) },
                  else_branch = e () => (float[2] p) { p = Exp (x) }>
    }""")) == []  # fmt: skip
    assert (
        defects(model_of(LOOP.replace("float[2] v)", "float[2] x)").replace("Mul (v", "Mul (x")))
        == []
    )


def no_name(model):
    value_of(model, "a").name = ""


def twice(model):
    value_of(model, "a").name = "b"


def like_an_input(model):
    value_of(model, "a").name = "x"


def wrong_key(model):
    value = model.graph.initializers.pop("c")
    model.graph.initializers.data["d"] = value
    value._graph, value._is_initializer = model.graph, True


def empty(model):
    value_of(model, "c").const_value = None


def unsorted(model):
    node = model.graph[0]
    model.graph.remove(node)
    model.graph.append(node)


def undefined(model):
    model.graph[1].replace_input_with(1, ir.Value(name="nowhere"))


def from_another_graph(model):
    model.graph[2].replace_input_with(0, value_of(model_of(TEXT), "b"))


def removed_maker(model):
    model.graph.remove(model.graph[0])


def lost_output(model):
    node = model.graph[2]
    model.graph.remove(node)


def unknown_use(model):
    value = value_of(model, "a")
    value._remove_usage(model.graph[1], 0)


def unknown_maker(model):
    value_of(model, "a")._producer = None


def in_two_places(model):
    node = model.graph[0]
    node._graph = ir.Graph([], [], nodes=[], name="other")


@pytest.mark.parametrize(
    ("damage", "defect"),
    [
        (no_name, "value has no name"),
        (twice, "value 'b' is defined twice"),
        (like_an_input, "value 'x' is defined twice"),
        (wrong_key, "initializer 'c' is registered as 'd'"),
        (empty, "initializer 'c' holds nothing"),
        (unsorted, "node .* uses 'a', which is not defined before it"),
        (undefined, "node .* uses 'nowhere', which is not defined before it"),
        (from_another_graph, "node .* uses 'b', which is not defined before it"),
        (removed_maker, "node .* uses 'a', which is not defined before it"),
        (lost_output, "output 'y' is not defined in its own scope"),
        (unknown_use, "'a' does not know its use by '.*'"),
        (unknown_maker, "'a' does not know that '.*' makes it"),
        (in_two_places, "node '.*' stands in two places"),
    ],
)
def test_a_defect_is_found(damage, defect):
    model = model_of(TEXT)
    damage(model)
    assert any(re.fullmatch(defect, found) for found in defects(model)), defects(model)


def test_a_defect_in_a_body_is_found():
    model = model_of(NESTED)
    value_of(model, "r").name = "s"  # hides a value of the graph two levels up
    assert "value 's' is defined twice" in defects(model)


def test_what_a_body_defines_is_not_seen_outside_it():
    model = model_of(LOOP)
    model.graph.append(ir.node("Neg", [value_of(model, "t")], name="peeks"))
    model.graph[-1].outputs[0].name = "peeked"
    assert defects(model) == ["node 'peeks' uses 't', which is not defined before it"]


def test_a_defect_in_a_local_function_is_found():
    model = model_of(FUNCTION)
    (function,) = model.functions.values()
    function.graph[0].outputs[0].name = "a"
    assert defects(model) == ["value 'a' is defined twice"]


def test_a_body_that_uses_an_outer_value_which_its_input_hides():
    model = model_of("""g (int64 n, bool on, float[2] x) => (float[2] y) {
      w = Identity (x)
      y = Loop (n, on, x) <body = b (int64 i, bool go, float[2] x) => (bool go_on, float[2] u) {
        go_on = Identity (go)
        u = Add (x, w)
      }>
    }""")
    (body,) = bodies(value_of(model, "y").producer())
    body[1].replace_input_with(1, model.graph.inputs[2])  # Add (x, x) in the file
    assert defects(model) != []


# --- The interface --------------------------------------------------------------------------------


def test_the_interface_is_name_type_and_shape():
    model = model_of("g (float[2,n] x, int64 i) => (float y) { y = ReduceSum <keepdims = 0> (x) }")
    assert interface(model.graph.inputs) == (("x", "FLOAT", "[2,n]"), ("i", "INT64", "[]"))


def renamed(model):
    value_of(model, "y").name = "z"


def retyped(model):
    value_of(model, "y").dtype = ir.DataType.FLOAT16


def reshaped(model):
    value_of(model, "w").shape = ir.Shape([3])


def reordered(model):
    model.graph.inputs.reverse()


def one_more(model):
    model.graph.outputs.append(value_of(model, "a"))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (renamed, "outputs"),
        (retyped, "outputs"),
        (one_more, "outputs"),
        (reshaped, "inputs"),
        (reordered, "inputs"),
    ],
)
def test_a_pass_that_changes_the_interface_is_named(change, what):
    model, check = model_of(TEXT), StructureCheck()
    check.before(DeadCode(), model)
    change(model)
    with pytest.raises(VerificationFailed, match=f"pass 'dce' left an invalid graph: .* {what}"):
        check.after(DeadCode(), model)


def test_a_pass_that_breaks_the_graph_is_named():
    model, check = model_of(TEXT), StructureCheck()
    check.before(DeadCode(), model)
    check.after(DeadCode(), model)
    unsorted(model)
    with pytest.raises(VerificationFailed, match=r"pass 'dce' left an invalid graph: .*'a'"):
        check.after(DeadCode(), model)


def test_weights_are_not_part_of_the_structure():
    model, check = model_of(TEXT), StructureCheck()
    check.before(DeadCode(), model)
    value_of(model, "c").const_value = ir.tensor(np.float32([5, 6]), name="c")
    check.after(DeadCode(), model)
