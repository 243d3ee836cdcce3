"""fold-constants: what is computed here and now, in which type, and what must never be."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from pass_checks import checked, declines, optimized, whole_before_and_after
from small_graphs import SCOPES, Writer, build, info, parse

import gdn_ir
from gdn_ir.graph_view import scopes

HUGE = 2**40  # elements: 4 TiB in float32


def folded(text: str, options: str = "") -> dict[str, np.ndarray]:
    """The initializers that fold-constants leaves, by name, after dce."""
    outcome = checked(f"fold-constants{options},dce", parse(text), tolerance=0)
    return {name: v.const_value.numpy() for name, v in outcome.model.graph.initializers.items()}


@pytest.mark.parametrize("scope", SCOPES)
def test_one_sweep_reaches_whole_chains_in_every_scope(scope):
    def write(w, x):
        shape = w.op("Concat", w.op("Shape", x, start=0, end=1), w.op("Mul", [1], [-1]), axis=0)
        flat = w.op("Reshape", x, shape)
        ones = w.op("Expand", w.op("Cast", np.array(1), to=onnx.TensorProto.FLOAT), [6])
        return w.op("Add", flat, w.op("Neg", ones))

    outcome = checked(
        "fold-constants,dce", build(write, {"x": (2, 3, 2)}, scope=scope), tolerance=0
    )
    left = {"Reshape", "Add", "Identity", "Loop", "Scan", "If"}
    assert set(outcome.ops) <= left


def test_captured_constants_fold_where_they_are_used():
    text = """g (int64 n, bool on, float[2] x) => (float[2] y) <float[2] c = {1, 2}> {
      d = Neg (c)
      y = Loop (n, on, x) <body = b (int64 i, bool go, float[2] v) => (bool go_on, float[2] u)
        <float[2] own = {5, 6}> {
        go_on = Identity (go)
        e = Mul (d, own)
        s = Shape (x)
        t = ConstantOfShape (s)
        f = Add (e, t)
        u = Add (v, f)
      }>
    }"""
    feeds = {"n": np.array(3), "on": np.array(True), "x": np.ones(2, np.float32)}
    outcome = checked("fold-constants,dce", parse(text), feeds, tolerance=0)
    assert outcome.ops == {"Loop": 1, "Identity": 1, "Add": 1}
    _, body = scopes(outcome.model)
    assert list(body.initializers) == ["f"]


@pytest.mark.parametrize("kind", ["float16", "float", "double"])
def test_floats_keep_their_type(kind):
    third = {"float16": np.float16, "float": np.float32, "double": np.float64}[kind](1) / 3
    text = f"""g ({kind}[2] x) => ({kind}[2] y) <{kind} one = {{1}}, {kind} three = {{3}}> {{
      third = Div (one, three)
      y = Mul (x, third)
    }}"""
    outcome = checked("fold-constants,dce", parse(text), tolerance=np.finfo(third.dtype).eps)
    folded_third = outcome.model.graph.initializers["third"].const_value.numpy()
    assert folded_third == third
    assert folded_third.dtype == third.dtype


REDUCTIONS = ("L1", "L2", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


@pytest.mark.parametrize("kind", ["float16", "float", "int32", "int64"])
@pytest.mark.parametrize("reduction", [*REDUCTIONS])
def test_reductions_keep_their_type(reduction, kind):
    text = f"""g ({kind}[1] x) => ({kind}[1] y) <{kind}[3] c = {{1, 2, 3}}> {{
      r = Reduce{reduction} (c)
      y = Add (x, r)
    }}"""
    model = parse(text)
    after = optimized("fold-constants", model).model
    assert after.graph.initializers["r"].dtype == model.graph.inputs[0].dtype


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ("", [2, 3, 4]),
        ("<start = 1>", [3, 4]),
        ("<start = -1>", [4]),
        ("<end = 2>", [2, 3]),
        ("<end = -1>", [2, 3]),
        ("<start = 1, end = 2>", [3]),
        ("<start = -9, end = 9>", [2, 3, 4]),
        ("<start = 2, end = 1>", []),
    ],
)
def test_static_shapes(bounds, expected):
    n = len(expected)
    text = f"""g (float[2,3,4] x, int64[{n}] z) => (int64[{n}] y) {{
      s = Shape {bounds} (x)
      y = Add (s, z)
    }}"""
    np.testing.assert_array_equal(folded(text)["s"], np.array(expected, np.int64))


def test_static_size():
    text = "g (float[2,3,4] x, int64 z) => (int64 y) { s = Size (x) y = Add (s, z) }"
    assert folded(text)["s"] == 24


@pytest.mark.parametrize("op", ["Shape", "Shape <start = 1>", "Size"])
def test_a_shape_with_an_unknown_dimension_stays(op):
    text = f"g (float[N,3] x) => (int64[M] y) {{ s = {op} (x) y = Neg (s) }}"
    assert declines("fold-constants", parse(text)) == []


def test_an_output_stays():
    text = """g (float[2] x) => (float[2] y, int64[1] s) <float[2] c = {1, 2}> {
      y = Neg (c)
      s = Shape (x)
    }"""
    assert declines("fold-constants", parse(text)) == []


def test_an_output_of_a_body_stays():
    def write(w, x):
        return w.op("Neg", np.float32([1, 2]))  # goes; the Identity that returns it does not

    outcome = checked("fold-constants,dce", build(write, {"x": (2,)}, scope="if"), tolerance=0)
    assert outcome.ops == {"If": 1, "Identity": 2}


def test_an_initializer_that_callers_may_override_is_no_constant():
    w = Writer()
    c = w.constant(np.float32([1, 2]))
    result = w.op("Exp", w.op("Neg", c))
    model = w.model([info(c, [2])], [info(result, [2])])
    assert declines("fold-constants", model) == []


@pytest.mark.parametrize(
    "node",
    [
        "Bernoulli (c)",
        "Multinomial (c)",
        "RandomNormalLike (c)",
        "RandomUniformLike (c)",
        "RandomNormal <shape = [2, 2]> ()",
        "RandomUniform <shape = [2, 2]> ()",
        "Dropout (c, half, yes)",
        "custom.Neg (c)",
        "If (yes) <then_branch = t () => (float[2,2] p) { p = Exp (x) },"
        " else_branch = e () => (float[2,2] q) { q = Neg (x) }>",
    ],
)
def test_draws_foreign_ops_and_control_flow_stay(node):
    text = f"""<ir_version: 10, opset_import: ["": 20, "custom": 1]>
    g (float[2,2] x) => (float[2,2] y)
      <float[2,2] c = {{1, 1, 1, 1}}, float half = {{0.5}}, bool yes = {{1}}> {{
      a = {node}
      b = Cast <to = 1> (a)
      y = Add (b, x)
    }}"""
    assert declines("fold-constants", parse(text)) == []


def test_local_functions_stay():
    text = """<ir_version: 10, opset_import: ["": 20, "local": 1]>
    g (float[2] x) => (float[2] y) { y = local.f (x) }
    <domain: "local", opset_import: ["": 20]>
    f (u) => (v) { c = Constant <value_float = 1.0> () d = Neg (c) v = Add (u, d) }"""
    assert declines("fold-constants", parse(text)) == []


# --- the limit ---

# What each makes of `n` float32 elements; the shape, 1 + 8 bytes at most, is made all the same.
MAKERS = {
    "ConstantOfShape": "ConstantOfShape (shape)",
    "Expand": "Expand (one, shape)",
    "Tile": "Tile (one, shape)",
    "Range": "Range (zero, end, step)",
    "Pad": "Pad (one, pads)",
    "HannWindow": "HannWindow (length)",
    "Resize": "Resize (one, , , shape)",
    "CenterCropPad": "CenterCropPad (one, shape)",
}


def maker(name: str, n: int) -> ir.Model:
    # No Add after it: onnx's own shape inference makes one entry an element of what it adds.
    return parse(f"""g (float[1] x) => (float[N] y)
      <int64[1] shape = {{{n}}}, int64[2] pads = {{0, {n - 1}}}, int64 length = {{{n}}},
       float[1] one = {{1}}, float zero = {{0}}, float end = {{{n}}}, float step = {{1}}> {{
      made = {MAKERS[name]}
      y = Neg (made)
    }}""")


@pytest.mark.parametrize("name", MAKERS)
def test_nothing_huge_is_made(name):
    assert declines("fold-constants", maker(name, HUGE)) == []


@pytest.mark.parametrize("name", MAKERS)
def test_the_limit_is_in_bytes(name):
    assert (
        "made" in optimized("fold-constants{limit=400}", maker(name, 100)).model.graph.initializers
    )
    assert declines("fold-constants{limit=399}", maker(name, 100)) == []
    assert declines("fold-constants{limit=400}", maker(name, 101)) == []


def test_two_modest_constants_make_a_huge_one():
    text = """g (float[1,1] x) => (float[N,M] y) <int64[2] tall = {1048576, 1}, float one = {1}> {
      column = Expand (one, tall)
      row = Transpose (column)
      product = MatMul (column, row)
      sum = Add (column, row)
      y = Sum (product, sum, x)
    }"""
    after = optimized("fold-constants", parse(text)).model
    assert set(after.graph.initializers) & {"product", "sum"} == set()
    assert "row" in after.graph.initializers


@pytest.mark.parametrize(
    ("node", "kind"),
    [("NonZero (mask)", "int64"), ("Compress (mask, mask)", "bool"), ("Unique (mask)", "bool")],
)
def test_the_limit_holds_for_data_dependent_sizes(node, kind):
    ones = ", ".join("1" * 64)
    text = f"""g ({kind}[1] x) => ({kind}[N] y) <bool[64] mask = {{{ones}}}> {{
      made = {node}
      y = Concat <axis = -1> (made, x)
    }}"""
    # One byte an element comes in; NonZero makes eight of it.
    assert declines("fold-constants{limit=1}", parse(text)) == []


# --- faults ---


def test_outputs_that_are_left_out():
    text = """g (int64[4] x) => (int64[4] y) <float[4] c = {1, 2, 2, 3}> {
      u, , inverse = Unique (c)
      y = Add (inverse, x)
    }"""
    np.testing.assert_array_equal(folded(text)["inverse"], [0, 1, 1, 2])


def test_the_standard_domain_by_its_long_name():
    text = """<ir_version: 10, opset_import: ["ai.onnx": 20]>
    g (float[2] x) => (float[2] y) <float[2] c = {1, 2}> { d = Neg (c) y = Add (x, d) }"""
    model, _ = gdn_ir.optimize(parse(text))
    assert [node.op_type for node in model.graph] == ["Add"]


def test_golden(golden):
    text = """g (float[2,3] x) => (float[3,2] y) <float[1] half = {0.5}, int64[1] rest = {-1}> {
      rows = Shape <start = 1> (x)
      shape = Concat <axis = 0> (rows, rest)
      turned = Reshape (x, shape)
      halves = Expand (half, shape)
      positive = Abs (half)
      y = Mul (turned, positive)
    }"""
    golden("fold-constants.txt").check(whole_before_and_after("fold-constants", parse(text)))
