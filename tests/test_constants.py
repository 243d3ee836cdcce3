"""What follows from constants, and what must be left to the runtime."""

import numpy as np
import pytest
from onnx_text import model_of, value_of

from gdn_ir import constants
from gdn_ir.constants import compute
from gdn_ir.pipeline import parse
from gdn_ir.runtime import run, weight_bytes

CONSTANTS = """float[2] c = {1, 3}, float16[2] h = {15360, 15360}, int64[2] i = {7, -7},
  int64[1] two = {2}, bool yes = {1}, int64[2] big = {4096, 4096},
  int64[2] big2 = {2, 2}, float top = {2}, float[1,1] square = {2}"""
LIMIT = 2**20


def computed(node, outputs="y", limit=LIMIT, inputs="float[2] x", imports='"": 20', more=""):
    text = f"<ir_version: 10, opset_import: [{imports}]> g ({inputs}) => (float[a] {outputs}) "
    model = model_of(f"{text} <{CONSTANTS}{more}> {{ {node} }}")
    return compute(value_of(model, outputs).producer(), model.opset_imports, limit)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("y = Add (c, c)", np.float32([2, 6])),
        ("y = Add (h, h)", np.float16([2, 2])),
        ("y = Div (i, two)", np.int64([3, -3])),
        ("y = Cast <to = 10> (c)", np.float16([1, 3])),
        ("y = Expand (c, big2)", np.float32([[1, 3], [1, 3]])),
        ("y = ConstantOfShape (two)", np.float32([0, 0])),
        ("y = Constant <value_int = 5> ()", np.int64(5)),
        ("y = Clip (c, , top)", np.float32([1, 2])),
        ("y = NonZero (c)", np.int64([[0, 1]])),
        ("y = Where (yes, c, c)", np.float32([1, 3])),
        ("y = Dropout (c)", np.float32([1, 3])),
    ],
)
def test_computed_in_the_model_s_own_types(node, expected):
    (array,) = computed(node)
    assert array.dtype == expected.dtype
    np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("y = Shape (s)", [2, 3, 4]),
        ("y = Shape <start = 1> (s)", [3, 4]),
        ("y = Shape <end = 0> (s)", []),
        ("y = Shape <start = -2, end = -1> (s)", [3]),
        ("y = Shape <start = -9, end = 9> (s)", [2, 3, 4]),
        ("y = Size (s)", 24),
    ],
)
def test_shapes_follow_from_static_shapes(node, expected):
    (array,) = computed(node, inputs="float[2,3,4] s")
    assert array.dtype == np.int64
    np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize(
    ("node", "options"),
    [
        pytest.param("y = Add (c, x)", {}, id="an input"),
        pytest.param("y = Shape (x)", {"inputs": "float[n] x"}, id="dynamic shape"),
        pytest.param("y = RandomNormalLike (c)", {}, id="random"),
        pytest.param("y = RandomUniform <shape = [2]> ()", {}, id="random without inputs"),
        pytest.param("y = Dropout (c, r, yes)", {}, id="dropout in training"),
        pytest.param("y = d.Add (c, c)", {"imports": '"": 20, "d": 1'}, id="foreign domain"),
        pytest.param("y = Reshape (c, big)", {}, id="impossible"),
        pytest.param(
            "y = If (yes) <then_branch = t () => (float[2] p) { p = Neg (c) },"
            " else_branch = e () => (float[2] q) { q = Exp (c) }>", {}, id="control flow"),
    ],
)  # fmt: skip
def test_left_alone(node, options):
    assert computed(node, **options) is None


def test_an_initializer_that_callers_may_override_is_no_constant():
    model = model_of("g (float[2] c) => (float[2] y) <float[2] c = {1, 2}> { y = Neg (c) }")
    assert compute(model.graph[0], model.opset_imports, LIMIT) is None


@pytest.mark.parametrize(
    "node", ["y = ConstantOfShape (big)", "y = Expand (top, big)", "y = Tile (square, big)"]
)
def test_nothing_above_the_limit_is_made(node, monkeypatch):
    made = []
    monkeypatch.setattr(constants, "ReferenceEvaluator", made.append)
    assert computed(node, limit=4096 * 4096 * 4 - 1) is None
    assert made == []


def test_the_limit_counts_all_outputs():
    node = "y, z = Split <num_outputs = 2> (c)"
    assert computed(node, limit=7) is None
    assert [array.tolist() for array in computed(node, limit=8)] == [[1], [3]]


def test_a_node_is_read_under_the_model_s_opset():
    # From opset 13 on the axes are an input, and this attribute means nothing.
    node, more = "y = ReduceSum <axes = [0], keepdims = 0> (m)", ", float[2,2] m = {1, 2, 3, 4}"
    (array,) = computed(node, imports='"": 12', more=more)
    assert array.tolist() == [4, 6]


def test_constants_may_come_from_elsewhere():
    model = model_of("g (float[2] x) => (float[2] y) { y = Neg (x) }")
    (array,) = compute(model.graph[0], model.opset_imports, LIMIT, lambda value: np.float32([1, 2]))
    assert array.tolist() == [-1, -2]


def test_outputs_that_are_left_out():
    model = model_of("""g () => (int64[2] y) <float[2] c = {3, 1}> {
      u, , i = Unique (c)
      y = Add (i, i)
    }""")
    parse("fold-constants")[0](model)
    assert run(model, {})[0].tolist() == [2, 0]


def test_strings_are_no_numbers():
    assert computed("y = StringConcat (s, s)", more=', string[1] s = {"a"}') is None


def test_a_model_with_a_constant_of_strings_is_of_use_after_folding():
    model = model_of("""g () => (string[1] y) {
      s = Constant <value_strings = ["a"]> ()
      y = StringConcat (s, s)
    }""")
    (fold,) = parse("fold-constants")
    fold(model)
    assert weight_bytes(model) < 100
    assert run(model, {})[0].tolist() == ["aa"]
