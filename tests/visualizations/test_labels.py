"""Short texts for ops, constants and shapes."""

import numpy as np
import onnx_ir as ir
import pytest
from small_graphs import build, parse

from gdn_ir.visualizations.labels import clean, detail, is_constant, op_name, shape_text


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ([[1, 64, 64]], "1x64x64"),
        ([[1, 1, 64], [1, 63, 64], [1, 7, 64]], "1x1..63x64"),
        ([["S", 4], ["S", 4]], "Sx4"),
        ([["a_name_that_an_exporter_made", 4]], "?x4"),
        ([["unk__7", 4]], "?x4"),
        ([[None, None]], ""),
        ([[]], "scalar"),
        ([[1], [1, 2]], ""),
        ([None], ""),
        ([], ""),
    ],
)
def test_shapes(shapes, text):
    assert shape_text(None if s is None else ir.Shape(s) for s in shapes) == text


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (lambda w, x: w.op("Slice", x, [0], [16], [1]), ":16 axis 1"),
        (lambda w, x: w.op("Slice", x, [-1], [2**63 - 1], [1]), "-1: axis 1"),
        (lambda w, x: w.op("Slice", x, [-1], [-(2**63)], [0], [-2]), "-1::-2 axis 0"),
        (lambda w, x: w.op("Gather", x, 3, axis=1), "[3] axis 1"),
        (lambda w, x: w.op("Transpose", x, perm=[1, 0]), "[1,0]"),
        (lambda w, x: w.op("Reshape", x, [4, -1]), ""),
        (lambda w, x: w.op("Mul", x, np.float32(0.17677669)), "0.1768"),
        (lambda w, x: w.op("Mul", x, np.zeros((64, 64), np.float32)), "const 64x64"),
        (lambda w, x: w.op("Mul", x, w.op("Unsqueeze", np.float32(2), [0])), "2"),
    ],
)
def test_details(write, text):
    model = build(write, {"x": (64, 64)})
    assert detail([model.graph.node(-2)]) == text


def test_steps_that_differ_show_the_first_and_the_last():
    def write(w, x):
        first, last = (w.op("Gather", x, row, axis=0) for row in (1, 63))
        return w.op("Add", first, last)

    graph = build(write, {"x": (64, 64)}).graph
    assert detail([graph.node(0), graph.node(1)]) == "[1]..[63] axis 0"


def test_what_a_caller_may_replace_is_no_constant():
    model = parse("""<ir_version: 10, opset_import: ["": 20]>
      g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}, float[2] c = {1, 2}> {
        a = Add (x, w)
        y = Add (a, c)
      }""")
    assert [is_constant(node.inputs[1]) for node in model.graph] == [False, True]


def test_lines_print():
    assert clean("a\nb\x00c\u202e") == "a?b?c?"
    assert len(clean("x" * 1000)) == 36
    assert op_name(ir.Node("com.microsoft", "Gelu", [])) == "com.microsoft.Gelu"


def test_ops_of_other_domains_may_have_any_operands():
    x = ir.Value(name="x")
    for op_type in ("Gather", "Slice", "Reshape", "Constant", "Identity"):
        node = ir.Node("my.ops", op_type, [x])
        assert detail([node]) == ""
        assert not is_constant(node.outputs[0])
