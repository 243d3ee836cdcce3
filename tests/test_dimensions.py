"""Numbers for symbolic dimensions, everywhere they occur."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx_text import model_of, ops_of, proto_of, value_of

import gdn_ir
from gdn_ir.dimensions import bind_dimensions, parse
from gdn_ir.graph_view import scopes
from gdn_ir.verify.equivalence import check_interfaces

# What a Shape gives, in the main graph and in a body, and what is computed from it.
CHAIN = """g (float[B,S] x) => (float[B,T] y, float[B,S] w) <int64 one = {1}, int64[1] two = {2}> {
  shape = Shape (x)
  size = Gather (shape, one)
  n = Unsqueeze (size, zero)
  twice = Mul (n, two)
  from = Shape <end = 1> (x)
  to = Concat <axis = 0> (from, twice)
  both = Concat <axis = 1> (x, x)
  y = Reshape (both, to)
  w = Loop (one, , x) <body = b (int64 i, bool go, float[B,S] v) => (bool on, float[B,S] u) {
    on = Identity (go)
    u = Neg (v)
  }>
}"""


def chain() -> ir.Model:
    return model_of(CHAIN.replace("int64 one", "int64[1] zero = {0}, int64 one"))


def shapes(model: ir.Model) -> set[str]:
    values = [v for graph in scopes(model) for v in (*graph.inputs, *graph.outputs)]
    return {str(value.shape) for value in values}


def test_bodies_and_outputs_follow():
    model = chain()
    bind_dimensions(model, {"B": 2, "S": 3})
    assert shapes(model) == {"[2,3]", "[2,6]", "[]"}
    onnx.checker.check_model(ir.to_proto(model), full_check=True)


def test_only_what_is_named_is_bound():
    model = chain()
    bind_dimensions(model, {"S": 3})
    assert str(model.graph.inputs[0].shape) == "[B,3]"


def test_values_and_functions():
    text = """<ir_version: 10, opset_import: ["": 20, "l": 1]>
    g (float[S] x) => (float[S] y) <float[S] z> { z = Neg (x) y = l.f (z) }
    <domain: "l", opset_import: ["": 20]>
    f (a) => (b) <float[S] t> { t = Neg (a) b = Exp (t) }"""
    model = model_of(text)
    (function,) = model.functions.values()
    function[0].outputs[0].shape = ir.Shape(["S"])
    bind_dimensions(model, {"S": 4})
    assert str(value_of(model, "z").shape) == str(function[0].outputs[0].shape) == "[4]"


def test_shapes_that_are_arithmetic():
    text = "g (float[S] x) => (float[T] y, float[U] z) { y = Concat <axis = 0> (x, x) z = Neg (x) }"
    model = model_of(text)
    y, z = model.graph.outputs
    y.shape, z.shape = ir.Shape(["2*S"]), ir.Shape(["past-S"])
    z.producer().outputs[0].type = None  # so that nothing is inferred
    bind_dimensions(model, {"S": 4})
    assert str(y.shape) == "[8]"
    assert z.shape[0] in (4, "past - 4")


@pytest.mark.parametrize("name", ["a S", "S**S**S**S**S", "S(", "(S", "S." * 400, "exp(S)"])
def test_names_that_are_no_arithmetic_stay(name):
    model = model_of("g (float[S] x, float[T] w) => (float[S] y) { y = Neg (x) }")
    model.graph.inputs[1].shape = ir.Shape([name])
    bind_dimensions(model, {"S": 4})
    assert str(model.graph.inputs[0].shape) == "[4]"
    assert not model.graph.inputs[1].shape.is_static()


@pytest.mark.parametrize("name", ["S - 9", "S/3"])
def test_a_size_that_makes_another_impossible(name):
    model = model_of("g (float[S] x, float[T] w) => (float[S] y) { y = Neg (x) }")
    model.graph.inputs[1].shape = ir.Shape([name])
    with pytest.raises(ValueError, match=r"'w' has a dimension '.*', which would be"):
        bind_dimensions(model, {"S": 4})


@pytest.mark.parametrize("size", [0, -1, True, 1.5, "7", 2**31])
def test_bad_sizes(size):
    with pytest.raises(ValueError, match="the size must be a whole number from 1 to"):
        bind_dimensions(chain(), {"S": size})


def test_a_name_that_no_input_has():
    with pytest.raises(ValueError, match=r"no input has a dimension 'T'; .*: 'B', 'S'"):
        bind_dimensions(chain(), {"T": 4})


@pytest.mark.parametrize("text", ["S", "=3", "S=", "S=x", "S=-1", "S=1.5", "S=\u0663"])
def test_text_that_binds_nothing(text):
    with pytest.raises(ValueError, match="write NAME=SIZE"):
        parse([text])


def test_text():
    assert parse(["S=3", "a b=4", "a=b=5"]) == {"S": 3, "a b": 4, "a=b": 5}
    with pytest.raises(ValueError, match="'S' is given twice"):
        parse(["S=3", "S=3"])


def test_optimize_binds_before_it_runs():
    model = chain()
    optimized, report = gdn_ir.optimize(model, dims={"S": 3, "B": 2})
    assert report.dims == report.to_json()["dims"] == {"S": 3, "B": 2}
    assert report.whole_model  # shapes are static now, so the whole model was run
    assert "Shape" not in ops_of(optimized.graph)
    assert shapes(model) == shapes(chain())
    check_interfaces(model, optimized)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for old, new in zip(
        gdn_ir.runtime.run(model, {"x": x}), gdn_ir.runtime.run(optimized, {"x": x}), strict=True
    ):
        np.testing.assert_array_equal(old, new)


def test_an_inference_that_fails_leaves_the_bound_shapes():
    proto = proto_of("g (float[S] x) => (float[S] y) { y = Neg (x) }")
    proto.graph.node[0].op_type = "NoSuchOp"
    model = ir.from_proto(proto)
    bind_dimensions(model, {"S": 4})
    assert shapes(model) == {"[4]"}


def test_a_loop_is_unrolled_once_its_length_is_bound():
    model = model_of("""g (float[S,2] x) => (float[2] y) <float[2] zero = {0, 0}> {
      y = Scan (zero, x) <num_scan_inputs = 1,
        body = b (float[2] v, float[2] s) => (float[2] u) { u = Add (v, s) }>
    }""")
    _, report = gdn_ir.optimize(model, passes="static-unroll", dims={"S": 3})
    assert report.passes[0].rewrites[0].found == "Scan of 3 steps: 1 nodes become 3"
