"""Local functions with attribute parameters, whose nodes are others in each call."""

import numpy as np
import pytest
from onnx_text import model_of
from pass_checks import checked

import gdn_ir
from gdn_ir import pipeline, targets

MODEL = """<ir_version: 10, opset_import: ["": 20, "l": 1]>
g (float[2,2] x) => (float[2,2] y) { y = l.f <to = 1, perm = [0, 1], n = 2> (x) }
<domain: "l", opset_import: ["": 20]>
f <to, perm, n> (a) => (b) {
  c = Cast <to : int = @to> (a)
  d = Transpose <perm : ints = @perm> (c)
  k = Constant <value_int : int = @n> ()
  e = Cast <to = 1> (k)
  o = Mul (e, e)
  t = Constant <value = bool {1}> ()
  h = Loop (k, t, d) <body = r (int64 i, bool on, float[2,2] v) => (bool go, float[2,2] w) {
    go = Identity (on)
    w = Cast <to : int = @to> (v)
  }>
  b = Mul (h, o)
}"""
FEEDS = {"x": np.array([[1, -2], [3, 0.5]], np.float32)}


@pytest.mark.parametrize("name", sorted(pipeline.registry()))
def test_every_pass_leaves_them_alone(name):
    checked(name, model_of(MODEL), FEEDS)


def test_the_default_pipeline():
    after, _ = gdn_ir.optimize(model_of(MODEL), passes=targets.load("portable").pipeline)
    (function,) = after.functions.values()
    assert [n.op_type for n in function].count("Transpose") == 1
