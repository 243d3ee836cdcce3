"""Hashes forget names and nothing else."""

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from onnx_text import LOOP, NESTED, model_of, value_of

from gdn_ir.structural_hash import (
    SMALL,
    array_digest,
    combine,
    constant_digest,
    graph_digest,
    operator_key,
)

TEXT = """g (float[2] x, float[2] w) => (float[2] y) <float[2] c = {1, 2}> {
  a = Mul (x, w)
  b = LeakyRelu <alpha = 1.0> (a)
  y = Add (b, c)
}"""
IF = """g (bool c, float[2] x) => (float[2] y) {
  y = If (c) <then_branch = t () => (float[2] p) { p = Neg (x) },
              else_branch = e () => (float[2] q) { q = Exp (x) }>
}"""


def digest(text):
    return graph_digest(model_of(text).graph)


@pytest.mark.parametrize("text", [TEXT, LOOP, NESTED, IF])
def test_copies_under_other_names_are_equal(text):
    model = model_of(text)
    copy = model.clone()
    for node in ir.traversal.RecursiveGraphIterator(copy.graph):
        node.name = f"other {node.name}"
        for value in (*node.inputs, *node.outputs):
            if value is not None and not value.name.startswith("other "):
                value.name = f"other {value.name}"
    assert value_of(copy, "other y")
    assert graph_digest(copy.graph) == graph_digest(model.graph)


def test_what_no_output_needs_does_not_matter():
    assert digest(TEXT) == digest(TEXT.replace("a = Mul", "d = Exp (w) a = Mul"))


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        pytest.param(TEXT, "Mul (x", "Sub (x", id="op"),
        pytest.param(TEXT, "alpha = 1.0", "alpha = 1.5", id="attribute value"),
        pytest.param(TEXT, "LeakyRelu <alpha = 1.0>", "LeakyRelu", id="attribute absent"),
        pytest.param(TEXT, "alpha = 1.0", "alpha = 1", id="attribute type"),
        pytest.param(TEXT, "(x, w)", "(w, x)", id="operand order"),
        pytest.param(TEXT, "(x, w)", "(x, x)", id="operand"),
        pytest.param(TEXT, "{1, 2}", "{1, 3}", id="constant"),
        pytest.param(TEXT, "<float[2] c = {1, 2}>", "<float[1,2] c = {1, 2}>", id="constant shape"),
        pytest.param(TEXT, "<float[2] c", "<int32[2] c", id="constant type"),
        pytest.param(TEXT, "float[2] x", "float16[2] x", id="input type"),
        pytest.param(TEXT, "float[2] x", "float[1] x", id="input shape"),
        pytest.param(TEXT, "float[2] y)", "float[2] y, float[2] a)", id="outputs"),
        pytest.param(TEXT, "float[2] y)", "float[2] b)", id="output"),
        pytest.param(LOOP, "Add (t, s)", "Sub (t, s)", id="op in a body"),
        pytest.param(LOOP, "Add (t, s)", "Add (t, w)", id="capture of a body"),
        pytest.param(LOOP, "Mul (v, w)", "Mul (v, v)", id="operand in a body"),
        pytest.param(NESTED, "Add (q, t)", "Add (q, s)", id="capture two levels down"),
        pytest.param(IF, "Neg (x)", "Abs (x)", id="branch"),
    ],
)
def test_a_difference_makes_another_hash(text, old, new):
    assert old in text
    assert digest(text.replace(old, new)) != digest(text)


def test_a_body_s_input_is_no_captured_value():
    text = """g (int64 n, bool on, float[2] x) => (float[2] y) {
      y = Loop (n, on, x) <body = b (int64 i, bool go, float[2] v) => (bool go_on, float[2] u) {
        go_on = Identity (go)
        u = Add (v, v)
      }>
    }"""
    assert digest(text) != digest(text.replace("Add (v, v)", "Add (v, x)"))


def test_branches_in_either_order():
    then, else_ = "then_branch = t () => (float[2] p)", "else_branch = e () => (float[2] q)"
    swapped = IF.replace("then_branch", "?").replace("else_branch", "then_branch")
    assert digest(IF) != digest(swapped.replace("?", "else_branch"))  # another computation
    (head, tail) = IF.split("<then")
    bodies = f"<{else_} {{ q = Exp (x) }}, {then} {{ p = Neg (x) }}>"
    assert tail
    assert digest(IF) == digest(f"{head}{bodies}\n}}")  # the same, written the other way round


def test_optional_inputs_count_by_their_place():
    text = "g (float[2] x, float m) => (float[2] y) { y = Clip (x, m) }"
    assert digest(text) != digest(text.replace("(x, m) }", "(x, , m) }"))


def test_combine_keeps_its_parts_apart():
    assert combine("ab", "c") != combine("a", "bc")
    assert combine("a") != combine("a", "")
    assert combine("a", "b") == combine("a", "b")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.float32([1]), np.float64([1])),
        (np.float32([0, 0]), np.int32([0, 0])),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (np.zeros(()), np.zeros(1)),
        (np.float32([0.0]), np.float32([-0.0])),
        pytest.param(
            np.zeros(2, ml_dtypes.int4),
            np.zeros(2, ml_dtypes.uint4),
        ),
        pytest.param(
            np.zeros(2, ml_dtypes.float8_e4m3fn),
            np.zeros(2, ml_dtypes.float8_e4m3fnuz),
        ),
    ],
)
def test_arrays_differ_in_type_shape_and_bits(one, other):
    assert array_digest(one) == array_digest(one.copy())
    assert array_digest(one) != array_digest(other)


def test_an_array_s_layout_in_memory_does_not_count():
    array = np.arange(6.0).reshape(2, 3)
    assert array_digest(np.asfortranarray(array)) == array_digest(array)


def test_a_constant_is_hashed_again_when_its_tensor_changes():
    value = value_of(model_of(TEXT), "c")
    first = constant_digest(value)
    assert constant_digest(value) == first
    value.const_value = ir.tensor(np.float32([1, 3]), name="c")
    assert constant_digest(value) != first


def external(folder, name, offset, size):
    return ir.Value(
        name=name,
        const_value=ir.ExternalTensor(
            "weights",
            offset,
            size,
            ir.DataType.UINT8,
            shape=ir.Shape([size]),
            name=name,
            base_dir=folder,
        ),
    )


def test_large_weights_in_files_are_compared_by_place(tmp_path):
    size = SMALL + 1
    at_0, at_1 = (external(tmp_path, name, 0, size) for name in "ab")
    elsewhere = external(tmp_path, "c", size, size)  # no file at all: nothing is read
    assert constant_digest(at_0) == constant_digest(at_1)
    assert constant_digest(at_0) != constant_digest(elsewhere)


def test_small_weights_in_files_are_compared_by_content(tmp_path):
    (tmp_path / "weights").write_bytes(b"abab")
    one, other = external(tmp_path, "a", 0, 2), external(tmp_path, "b", 2, 2)
    assert constant_digest(one) == constant_digest(other)
    inline = ir.Value(name="c", const_value=ir.tensor(np.frombuffer(b"ab", np.uint8)))
    assert constant_digest(one) == constant_digest(inline)


def test_the_operator_key_leaves_bodies_and_operands_out():
    loop = model_of(LOOP).graph[1]
    other = model_of(LOOP.replace("Add (t, s)", "Sub (t, w)")).graph[1]
    assert operator_key(loop) == operator_key(other)
    split = model_of("g (float[2] x) => (float[1] a) { a, b = Split <num_outputs = 2> (x) }").graph[
        0
    ]
    single = model_of("g (float[2] x) => (float[2] a) { a = Split <num_outputs = 2> (x) }").graph[0]
    assert operator_key(split) != operator_key(single)
