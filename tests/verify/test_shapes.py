"""Shapes to prove at, where dimensions are open."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx_text import model_of

from gdn_ir.modular.points import LOG2_BOUND
from gdn_ir.verify.shapes import COUNTS, LENGTHS, bind, prove_at_shapes, symbols

SUM = "g (float[{0},3] a, float[{1},3] b) => (float[K,3] y) {{ y = {2} }}"


def lengths_tried(verdict, name="a"):
    return [shapes[name][0] for shapes in verdict.shapes]


def both(first, second, size=("s1", "s1")):
    return [model_of(SUM.format(*size, text)) for text in (first, second)]


def test_each_length_in_turn_under_one_bound():
    verdict = prove_at_shapes(*both("Add (a, b)", "Add (b, a)"))
    assert verdict.status == "PROVED"
    assert lengths_tried(verdict) == list(LENGTHS)
    assert verdict.log2_bound <= LOG2_BOUND


def test_one_length_under_two_names():
    # torch gives the length of each input a name of its own.
    verdict = prove_at_shapes(*both("Add (a, b)", "Add (b, a)", ("s25", "s81")))
    assert verdict.status == "PROVED"
    assert all(shapes["a"][0] == shapes["b"][0] or 1 in (shapes["a"][0], shapes["b"][0])
               for shapes in verdict.shapes)  # fmt: skip
    assert {1, 64, 65} <= set(lengths_tried(verdict))


@pytest.mark.parametrize("name", ["unk__7", "(s25 + 63)//64"])
def test_what_counts_chunks_is_tried_small(name):
    models = both("Add (a, b)", "Add (b, a)", ("T", "T"))
    for model in models:
        for value in model.graph.inputs:
            value.shape = ir.Shape([name, 3])
    assert symbols(models[0]) == [name]
    assert lengths_tried(prove_at_shapes(*models)) == list(COUNTS)


def test_two_lengths_that_inference_named_are_two():
    texts = ["n = Shape (a) m = Shape (b) z = Sub (n, n) y = Add (n, z)", "y = Shape (b)"]
    models = [
        model_of(f"g (float[unk__0,3] a, float[unk__1,3] b) => (int64[2] y) {{ {text} }}")
        for text in texts
    ]
    assert prove_at_shapes(*models).status == "DIFFERENT"


def test_a_length_at_which_they_differ():
    models = both("Add (a, b)", "Sub (a, b)")
    assert prove_at_shapes(*models).status == "DIFFERENT"


def test_an_input_of_unknown_rank():
    (first, second) = both("Add (a, b)", "Add (b, a)")
    for model in (first, second):
        model.graph.inputs[0].shape = None
    verdict = prove_at_shapes(first, second)
    assert verdict.status == "UNSUPPORTED"
    assert "input 'a' has shape None" in verdict.reason


def test_bound_shapes():
    model = model_of(SUM.format("N", "N", "Add (a, b)"))
    assert [np.prod(v.shape) for v in bind(model, {"N": 5}).graph.inputs] == [15, 15]
    assert bind(model, {}) is model
