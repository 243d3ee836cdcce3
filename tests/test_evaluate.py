"""Evaluation is in float64 throughout, whatever the model's own types are."""

import math

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator
from onnx_text import FUNCTION, LOOP, NESTED, model_of

from gdn_ir.evaluate import CannotEvaluate, evaluate

RNG = np.random.default_rng(0)
# Numbers that float32 cannot hold.
X, W = RNG.standard_normal(2), RNG.standard_normal(2)


def evaluated(nodes, x=X, constants="", inputs="float[2] x"):
    model = model_of(f"g ({inputs}) => (float[a] y) <{constants}> {{ {nodes} }}")
    (y,) = evaluate(model, {"x": x})
    return y


def close(actual, expected):
    assert actual.dtype == np.float64
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=0)


# 0.5 and 3; in ONNX text, 16-bit floats are written as their bits.
HALF_AND_THREE = {
    "float": "0.5, 3",
    "double": "0.5, 3",
    "float16": f"{0x3800}, {0x4200}",
    "bfloat16": f"{0x3F00}, {0x4040}",
}


@pytest.mark.parametrize("narrow", HALF_AND_THREE)
def test_initializers_are_widened(narrow):
    constant = f"{narrow}[2] c = {{{HALF_AND_THREE[narrow]}}}"
    close(evaluated("y = Mul (x, c)", constants=constant), X * [0.5, 3])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_inputs_are_widened(dtype):
    x = X.astype(dtype)
    close(evaluated("y = Mul (x, x)", x=x), x.astype(np.float64) ** 2)


@pytest.mark.parametrize(
    "nodes",
    [
        "y = Cast <to = 1> (x)",
        "y = Cast <to = 10> (x)",
        "h = Cast <to = 10> (x) y = Cast <to = 1> (h)",
        "z = Cast <to = 11> (x) y = CastLike (z, x)",
    ],
)
def test_casts_do_not_round(nodes):
    close(evaluated(nodes), X)


def test_casts_to_integers_do_truncate():
    y = evaluated("i = Cast <to = 7> (x) y = Cast <to = 1> (i)", x=np.array([1.75, -1.75]))
    close(y, [1, -1])


@pytest.mark.parametrize(
    ("node", "value"),
    [
        ("c = ConstantOfShape (shape)", 0),
        ("c = ConstantOfShape <value = float[1] {3}> (shape)", 3),
        ("c = ConstantOfShape <value = float16[1] {16896}> (shape)", 3),
        ("c = Constant <value = float[2] {3, 3}> ()", 3),
        ("c = Constant <value_float = 3.0> ()", 3),
        ("c = Constant <value_floats = [3.0, 3.0]> ()", 3),
        ("e = EyeLike <dtype = 1> (square) c = ReduceMin <keepdims = 0> (e)", 0),
        ("r = Range (zero, four, two) c = ReduceMax <keepdims = 0> (r)", 2),
    ],
)
def test_made_constants_are_wide(node, value):
    constants = "int64[1] shape = {2}, float[2,2] square = {0, 0, 0, 0}, float zero = {0}, "
    constants += "float two = {2}, float four = {4}"
    close(evaluated(f"{node} y = Add (x, c)", constants=constants), X + value)


def test_integers_and_booleans_keep_their_type():
    model = model_of("""g (int64[2] i, bool[2] b) => (int64[2] j, bool[2] c, int32[2] k)
      { j = Add (i, i) c = Not (b) k = Cast <to = 6> (i) }""")
    feeds = {"i": np.array([2**60, 1]), "b": np.array([True, False])}
    j, c, k = evaluate(model, feeds)
    assert (j.dtype, c.dtype, k.dtype) == (np.int64, np.bool_, np.int32)
    assert j.tolist() == [2**61, 2]
    assert c.tolist() == [False, True]


def test_inside_a_loop():
    model = model_of(
        LOOP.replace(
            "t = Mul (v, w)",
            "k = Constant <value_float = 0.25> () h = Cast <to = 10> (v) t = Mul (h, k)",
        )
    )
    expected = X
    for _ in range(5):
        expected = expected * 0.25 + X * W
    feeds = {"n": np.array(5), "on": np.array(True), "x": X, "w": W}
    close(evaluate(model, feeds)[0], expected)


def test_inside_nested_bodies():
    feeds = {"c": np.array(True), "n": np.array(3), "x": X}
    t = np.exp(-X)
    expected = t
    for _ in range(3):
        expected = expected * X - X + t
    close(evaluate(model_of(NESTED), feeds)[0], expected)
    close(evaluate(model_of(NESTED), feeds | {"c": np.array(False)})[0], np.abs(X))


def test_inside_a_local_function():
    close(evaluate(model_of(FUNCTION), {"x": X})[0], np.exp(-X))
    text = FUNCTION.replace("b = Exp (t)", "h = Cast <to = 10> (t) b = Exp (h)")
    close(evaluate(model_of(text), {"x": X})[0], np.exp(-X))


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("y = Exp (x)", np.exp(X)),
        ("y = Sigmoid (x)", 1 / (1 + np.exp(-X))),
        ("y = Softplus (x)", np.log1p(np.exp(X))),
        ("y = Softmax (x)", np.exp(X) / np.exp(X).sum()),
        ("y = ReduceL2 (x)", np.sqrt((X * X).sum(keepdims=True))),
        ("y = LpNormalization (x)", X / np.linalg.norm(X)),
        ("y = CumSum (x, axis)", np.cumsum(X)),
        ('y = Einsum <equation = "i,i->i"> (x, x)', X * X),
        ("y = Reciprocal (x)", 1 / X),
        pytest.param(
            "y = Erf (x)",
            np.array([math.erf(v) for v in X]),
        ),
    ],
)  # fmt: skip
def test_ops_are_accurate(node, expected):
    close(evaluated(node, constants="int64 axis = {0}"), expected)


def test_overflow_and_nan_come_without_a_warning():
    y = evaluated("a = Exp (x) b = Sub (a, a) y = Add (a, b)", x=np.array([1e4, 0.0]))
    assert np.isnan(y[0])
    assert y[1] == 1


def test_the_model_is_left_as_it_is():
    model = model_of("g (float[2] x) => (float[2] y) <float[2] c = {1, 2}> { y = Add (x, c) }")
    evaluate(model, {"x": X})
    assert model.graph.initializers["c"].const_value.numpy().dtype == np.float32
    assert str(model.graph.inputs[0].type) == "FLOAT"


def test_an_unknown_op_is_an_error():
    text = '<ir_version: 10, opset_import: ["": 20, "c": 1]> g (float[2] x) => (float[2] y) '
    with pytest.raises(CannotEvaluate, match="Foo"):
        evaluate(model_of(text + "{ y = c.Foo (x) }"), {"x": X})


# --- ScatterElements ------------------------------------------------------------------------------


def scatter_node(**attributes):
    return onnx.helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], **attributes)


@st.composite
def scatters(draw):
    """data, distinct indices (also negative), updates no larger than data but along the axis."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    part = [draw(st.integers(1, size)) for size in shape]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    order = rng.permuted(
        np.broadcast_to(np.arange(shape[axis]), [*np.delete(part, axis), shape[axis]]), axis=-1
    )
    indices = np.moveaxis(order[..., : part[axis]], -1, axis)
    indices = np.where(rng.random(indices.shape) < 0.5, indices, indices - shape[axis])
    return rng.standard_normal(shape), indices, rng.standard_normal(part), axis


@given(scatters())
def test_scatter_elements_is_onnx_s(scatter):
    data, indices, updates, axis = scatter
    node = scatter_node(axis=axis)
    feeds = {"x": data, "i": indices, "u": updates}
    (expected,) = ReferenceEvaluator(node).run(None, feeds)
    dims = [f"[{','.join(map(str, a.shape))}]" for a in (data, indices, updates)]
    model = model_of(
        f"g (double{dims[0]} x, int64{dims[1]} i, double{dims[2]} u) => (double{dims[0]} y) "
        f"{{ y = ScatterElements <axis = {axis}> (x, i, u) }}"
    )
    (actual,) = evaluate(model, feeds)
    np.testing.assert_array_equal(actual, expected)


def test_scatter_elements_does_not_write_into_its_input():
    x = np.zeros(3)
    model = model_of("""g (float[3] x) => (float[3] y) <int64[1] i = {1}, float[1] u = {5}>
      { y = ScatterElements (x, i, u) }""")
    assert evaluate(model, {"x": x})[0].tolist() == [0, 5, 0]
    assert x.tolist() == [0, 0, 0]


def test_scatter_elements_with_a_reduction_is_refused():
    model = model_of("""g (float[3] x) => (float[3] y) <int64[1] i = {1}, float[1] u = {5}>
      { y = ScatterElements <reduction = "add"> (x, i, u) }""")
    with pytest.raises(CannotEvaluate, match="reduction='add'"):
        evaluate(model, {"x": np.zeros(3)})
