"""infer-shapes: writes down what follows, and nothing else."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx_text import proto_of
from pass_checks import checked, to_text

from gdn_ir import pass_manager, pipeline
from gdn_ir.graph_view import scopes

CHAIN = """g (float[2,3] x) => (float[M,K] y) {
  s = Shape (x)
  one = Constant <value_ints = [1]> ()
  grown = Concat <axis = 0> (one, s)
  e = Expand (x, grown)
  y = Squeeze (e, zero)
}"""


def test_shapes_that_are_computed():
    text = CHAIN.replace("(float[M,K] y)", "(float[M,K] y) <int64[1] zero = {0}>")
    model = ir.from_proto(proto_of(text))
    pass_manager.run(model, pipeline.parse("infer-shapes"), [])
    shapes = {v.name: v.shape for node in model.graph for v in node.outputs}
    assert shapes["e"] == [1, 2, 3]
    assert shapes["y"] == ["M", "K"], "what the interface declares stays"
    assert checked("infer-shapes,fold-constants,dce", model, tolerance=0).ops == {
        "Expand": 1,
        "Squeeze": 1,
    }


BODY = """g (int64 n, bool on, float[2,3] x) => (float[2,3] y) {
  y = Loop (n, on, x) <body = b (int64 i, bool go, float[2,3] v) => (bool go_on, float[2,3] u) {
    go_on = Identity (go)
    t = Transpose (v)
    u = Transpose (t)
  }>
}"""


def test_bodies_too():
    model = ir.from_proto(proto_of(BODY))
    pass_manager.run(model, pipeline.parse("infer-shapes"), [])
    (body,) = (graph for graph in scopes(model) if graph is not model.graph)
    assert body[1].outputs[0].shape == [3, 2]


@pytest.mark.parametrize("declared", [[2, 3], ["A", "B"]])
def test_what_is_declared_stays_unless_it_becomes_static(declared):
    model = ir.from_proto(
        proto_of("g (float[N,3] x) => (float[N,3] y) { a = Neg (x) y = Neg (a) }")
    )
    a = model.graph[0].outputs[0]
    a.shape, a.dtype = ir.Shape(declared), ir.DataType.FLOAT
    pass_manager.run(model, pipeline.parse("infer-shapes"), [])
    assert a.shape == declared


def test_it_changes_no_node_and_no_interface():
    model = ir.from_proto(proto_of(BODY))
    before = to_text(model)
    feeds = {"n": np.array(2), "on": np.array(True), "x": np.ones((2, 3), np.float32)}
    checked("infer-shapes", model, feeds, tolerance=0)
    assert to_text(model) == before
