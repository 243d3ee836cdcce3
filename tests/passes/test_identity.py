"""identity: an Identity is its input, but where a scope's interface needs the node."""

import numpy as np
import pytest
from pass_checks import checked, whole_before_and_after
from small_graphs import SCOPES, build, parse

LOOP_FEEDS = {"n": np.array(2), "on": np.array(True), "x": np.ones(2, np.float32)}


@pytest.mark.parametrize("scope", SCOPES)
def test_chains_go_in_every_scope(scope):
    def write(w, x):
        return w.op("Neg", w.op("Identity", w.op("Identity", w.op("Exp", w.op("Identity", x)))))

    model = build(write, {"x": (2, 3)}, scope=scope)
    before = checked("dce", model).ops["Identity"]
    assert checked("identity", model, tolerance=0).ops["Identity"] == before - 3


@pytest.mark.parametrize("source", ["x", "constant", "a"])
def test_an_output_keeps_its_node_and_name(source):
    text = f"""g (float[2] x) => (float[2] y) <float[2] constant = {{1, 2}}> {{
      a = Add (x, constant)
      y = Identity ({source})
    }}"""
    assert checked("identity", parse(text), tolerance=0).ops["Identity"] == 1


def test_two_names_of_one_value():
    # onnx_ir's own pass makes the outputs (z, z) of this.
    text = """g (float[2] x) => (float[2] y, float[2] z) {
      y = Neg (x)
      z = Identity (y)
    }"""
    outcome = checked("identity", parse(text), tolerance=0)
    assert [value.name for value in outcome.model.graph.outputs] == ["y", "z"]
    assert outcome.ops == {"Neg": 1, "Identity": 1}


def test_a_captured_value_that_a_body_returns():
    # onnx_ir's own pass makes the body return `e`, which no scope but its own may.
    text = """g (int64 n, bool on, float[2] x) => (float[2] y) {
      e = Exp (x)
      y = Loop (n, on, x) <body = b (int64 i, bool go, float[2] v) => (bool go_on, float[2] u) {
        go_on = Identity (go)
        u = Identity (e)
      }>
    }"""
    outcome = checked("identity", parse(text), LOOP_FEEDS, tolerance=0)
    assert outcome.ops["Identity"] == 2


def test_a_branch_that_returns_a_captured_value_through_two():
    text = """g (float[2] x, bool c) => (float[2] y) {
      y = If (c) <then_branch = t () => (float[2] p) { a = Identity (x) p = Identity (a) },
                  else_branch = e () => (float[2] q) { q = Neg (x) }>
    }"""
    outcome = checked("identity", parse(text), tolerance=0)
    assert outcome.ops == {"If": 1, "Identity": 1, "Neg": 1}


def test_an_identity_that_bodies_capture():
    text = """g (int64 n, bool on, float[2] x) => (float[2] y) {
      e = Identity (x)
      y = Loop (n, on, x) <body = b (int64 i, bool go, float[2] v) => (bool go_on, float[2] u) {
        go_on = Identity (go)
        w = Identity (e)
        u = Add (v, w)
      }>
    }"""
    outcome = checked("identity", parse(text), LOOP_FEEDS, tolerance=0)
    assert outcome.ops == {"Loop": 1, "Identity": 1, "Add": 1}


def test_a_foreign_identity_stays():
    text = """<ir_version: 10, opset_import: ["": 20, "local": 1]>
    g (float[2] x) => (float[2] y) { a = local.Identity (x) y = Neg (a) }
    <domain: "local", opset_import: ["": 20]>
    Identity (u) => (v) { t = Identity (u) v = Exp (t) }"""
    outcome = checked("identity", parse(text), tolerance=0)
    assert outcome.ops == {"Identity": 1, "Neg": 1, "Exp": 1}


def test_golden(golden):
    text = """g (float[2] x) => (float[2] y, float[2] z) {
      a = Identity (x)
      b = Exp (a)
      y = Identity (b)
      z = Identity (x)
    }"""
    golden("identity.txt").check(whole_before_and_after("identity", parse(text)))
