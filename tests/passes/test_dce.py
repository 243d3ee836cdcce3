"""dce: what nothing needs goes, in one run; what looks unused but is not stays."""

import numpy as np
import pytest
from pass_checks import checked, whole_before_and_after
from small_graphs import SCOPES, build, parse

from gdn_ir.graph_view import scopes


@pytest.mark.parametrize("scope", SCOPES)
def test_dead_chains_and_their_constants(scope):
    def write(w, x):
        w.op("Exp", w.op("Sub", w.op("Neg", x), np.float32([1, 2, 3])))
        return w.op("Mul", x, np.float32([4, 5, 6]))

    outcome = checked("dce", build(write, {"x": (2, 3)}, scope=scope), tolerance=0)
    assert not {"Exp", "Sub", "Neg"} & set(outcome.ops)
    constants = [
        v.const_value.numpy() for g in scopes(outcome.model) for v in g.initializers.values()
    ]
    assert any(np.array_equal(c, [4, 5, 6]) for c in constants)
    assert not any(np.array_equal(c, [1, 2, 3]) for c in constants)


def test_a_dead_loop_lets_go_of_what_it_captured():
    # onnx_ir's own pass keeps the producer of `e`, even when it runs again.
    text = """g (int64 n, bool on, float[2] x) => (float[2] y) <float[2] unused = {1, 2}> {
      e = Exp (x)
      s = Add (e, unused)
      t = Loop (n, on, x) <body = b (int64 i, bool go, float[2] v) => (bool go_on, float[2] u) {
        go_on = Identity (go)
        r = If (go) <then_branch = p () => (float[2] a) { a = Add (s, v) },
                     else_branch = q () => (float[2] b) { b = Sub (e, v) }>
        u = Add (r, e)
      }>
      y = Neg (x)
    }"""
    outcome = checked("dce", parse(text), tolerance=0)
    assert outcome.ops == {"Neg": 1}
    assert not outcome.model.graph.initializers
    assert [value.name for value in outcome.model.graph.inputs] == ["n", "on", "x"]


def test_dead_nodes_inside_a_live_loop():
    text = """g (int64 n, bool on, float[2] x) => (float[2] y) {
      e = Exp (x)
      y = Loop (n, on, x) <body = b (int64 i, bool go, float[2] v) => (bool go_on, float[2] u) {
        go_on = Identity (go)
        dead = Mul (v, e)
        u = Neg (v)
      }>
    }"""
    feeds = {"n": np.array(3), "on": np.array(True), "x": np.ones(2, np.float32)}
    outcome = checked("dce", parse(text), feeds, tolerance=0)
    assert outcome.ops == {"Loop": 1, "Identity": 1, "Neg": 1}


@pytest.mark.parametrize(
    "body",
    [
        "a, y = Split <num_outputs = 2> (x)",
        "y = Neg (x)  z = Exp (x)",
        "z = Exp (x)  y = Neg (z)",
        "y = If (c) <then_branch = p () => (float[2] a) { a = Add (one, x) }, "
        "else_branch = q () => (float[2] b) { b = Identity (one) }>",
    ],
    ids=["one output of two", "an output", "an output that is read", "captured constant"],
)
def test_nothing_that_is_needed_goes(body):
    outputs = "float[N] y, float[N] z" if "z =" in body else "float[N] y"
    one = "<float[2] one = {1, 1}>" if "one" in body else ""
    model = parse(f"g (float[2] x, bool c) => ({outputs}) {one} {{ {body} }}")
    nodes = len(model.graph)
    outcome = checked("dce", model, tolerance=0)
    assert len(outcome.model.graph) == nodes
    assert len(outcome.model.graph.initializers) == len(model.graph.initializers)


def test_an_initializer_that_callers_may_override_stays():
    model = parse("g (float[2] x, float[2] w) => (float[2] y) { y = Neg (x) }")
    w = model.graph.inputs[1]
    w.const_value = parse("g () => () <float[2] w = {1, 2}> {}").graph.initializers["w"].const_value
    model.graph.register_initializer(w)
    outcome = checked("dce", model, {"x": np.ones(2, np.float32)}, tolerance=0)
    assert list(outcome.model.graph.initializers) == ["w"]


def test_an_initializer_that_is_an_output_stays():
    text = "g (float[2] x) => (float[2] y, float[2] w) <float[2] w = {1, 2}> { y = Neg (x) }"
    assert list(checked("dce", parse(text), tolerance=0).model.graph.initializers) == ["w"]


def test_local_functions_are_cleaned_too():
    text = """<ir_version: 10, opset_import: ["": 20, "local": 1]>
    g (float[2] x) => (float[2] y) { y = local.f (x) }
    <domain: "local", opset_import: ["": 20]>
    f (u) => (v) { dead = Exp (u) v = Neg (u) }"""
    assert checked("dce", parse(text), tolerance=0).ops == {"f": 1, "Neg": 1}


def test_golden(golden):
    text = """g (float[2] x) => (float[2] y) <float[2] one = {1, 1}, float[2] two = {2, 2}> {
      a = Add (x, one)
      b = Exp (a)
      c, d = Split <num_outputs = 2> (b)
      y = Mul (x, two)
    }"""
    golden("dce.txt").check(whole_before_and_after("dce", parse(text)))
