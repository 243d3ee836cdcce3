"""The canonical hash: deaf to clean-up, and to nothing else."""

import dataclasses
from typing import ClassVar

import numpy as np
import onnx_ir as ir
import pytest
from fixture_files import load_fixture
from onnx_text import FUNCTION, LOOP, NESTED, model_of, ops_of, value_of

from gdn_ir.pass_base import CleanUp
from gdn_ir.pass_manager import run
from gdn_ir.passes.exp_mask import ExpMask
from gdn_ir.pipeline import parse
from gdn_ir.verify import VerificationFailed
from gdn_ir.verify.canonical import CanonicalCheck, canonical_outputs

TEXT = """g (float[2] x) => (float[2] y, float[2] z) <float[2] c = {1, 2}, float[2] d = {1, 2}> {
  k = Add (c, d)
  a = Mul (x, k)
  b = Mul (x, k)
  i = Identity (a)
  unused = Exp (b)
  y = Sub (i, b)
  z = Identity (x)
}"""
CLEAN = "fold-constants,cse,identity,dce"


def hashes(text):
    return canonical_outputs(model_of(text))


@pytest.mark.parametrize("pipeline", [*CLEAN.split(","), CLEAN])
@pytest.mark.parametrize("text", [TEXT, LOOP, NESTED, FUNCTION])
def test_clean_up_leaves_the_hashes(text, pipeline):
    model = model_of(text)
    before = canonical_outputs(model)
    run(model, parse(pipeline), [CanonicalCheck()])
    assert canonical_outputs(model) == before


def test_clean_up_did_something():
    model = model_of(TEXT)
    run(model, parse(CLEAN), [CanonicalCheck()])
    assert ops_of(model.graph) == ["Mul", "Sub", "Identity"]


def test_clean_up_after_a_rewrite_of_a_real_export():
    model = load_fixture("hf_fill_inf")
    run(model, parse("exp-mask,parallel-inverse"))
    nodes, before = len(model.graph), canonical_outputs(model)
    run(model, parse(CLEAN), [CanonicalCheck()])
    assert len(model.graph) < nodes
    assert canonical_outputs(model) == before


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        pytest.param(TEXT, "Mul (x, k)\n  i", "Add (x, k)\n  i", id="op"),
        pytest.param(TEXT, "Sub (i, b)", "Sub (b, k)", id="operand"),
        pytest.param(TEXT, "d = {1, 2}", "d = {1, 3}", id="constant"),
        pytest.param(TEXT, "Identity (x)", "Identity (a)", id="what an identity passes on"),
        pytest.param(TEXT, "float[2] x", "float16[2] x", id="type"),
        pytest.param(LOOP, "Add (t, s)", "Add (t, w)", id="capture"),
        pytest.param(NESTED, "Add (q, t)", "Sub (q, t)", id="op two levels down"),
    ],
)
def test_a_difference_makes_another_hash(text, old, new):
    assert old in text
    assert hashes(text) != hashes(text.replace(old, new))


def test_each_output_has_a_hash():
    one, other = hashes(TEXT), hashes(TEXT.replace("z = Identity (x)", "z = Identity (a)"))
    assert one[0] == other[0]
    assert one[1] != other[1]


def test_operand_order_counts():
    text = "g (float[2] x, float[2] w) => (float[2] y) { y = Sub (x, w) }"
    assert hashes(text) != hashes(text.replace("Sub (x, w)", "Sub (w, x)"))


def test_two_random_draws_are_not_one():
    text = """g (float[2] x) => (float[2] y) {
      a = RandomNormalLike (x) b = RandomNormalLike (x) y = Sub (a, b) }"""
    assert hashes(text) != hashes(text.replace("Sub (a, b)", "Sub (a, a)"))


def test_a_body_s_input_is_no_captured_value():
    text = """g (int64 n, bool on, float[2] x) => (float[2] y) {
      y = Loop (n, on, x) <body = b (int64 i, bool go, float[2] v) => (bool go_on, float[2] u) {
        go_on = Identity (go)
        u = Add (v, v)
      }>
    }"""
    assert hashes(text) != hashes(text.replace("Add (v, v)", "Add (v, x)"))


def test_branches_are_not_interchangeable():
    text = """g (bool c, float[2] x) => (float[2] y) {
      y = If (c) <then_branch = t () => (float[2] p) { p = Neg (x) },
                  else_branch = e () => (float[2] q) { q = Exp (x) }>
    }"""
    swapped = text.replace("then_", "?").replace("else_", "then_").replace("?", "else_")
    assert hashes(text) != hashes(swapped)


def test_the_body_of_a_local_function_counts():
    assert hashes(FUNCTION) != hashes(FUNCTION.replace("Neg", "Abs"))


# --- The check ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Vandal(CleanUp):
    """A clean-up pass that does what `damage` says."""

    name: ClassVar[str] = "vandal"

    damage: str = ""

    def clean(self, model):
        if self.damage == "operands":
            value_of(model, "y").producer().replace_input_with(1, value_of(model, "x"))
        elif self.damage == "constant":
            value_of(model, "c").const_value = ir.tensor(np.float32([1, 3]), name="c")
        return True


@pytest.mark.parametrize("damage", ["operands", "constant"])
def test_a_clean_up_pass_that_changes_an_output_is_named(damage):
    with pytest.raises(VerificationFailed) as caught:
        run(model_of(TEXT), [Vandal(damage=damage)], [CanonicalCheck()])
    assert str(caught.value) == (
        f"clean-up pass 'vandal{{damage={damage}}}' changed what output 'y' computes"
    )


def test_a_clean_up_pass_that_changes_nothing_passes():
    run(model_of(TEXT), [Vandal()], [CanonicalCheck()])


def test_constants_of_two_types_are_not_merged():
    model = model_of("""<ir_version: 10, opset_import: ["": 21]>
      g (float[2] x) => (int4[2] y, uint4[2] z) <float s = {1}, int4 i = {0}, uint4 u = {0}> {
        a = QuantizeLinear (x, s, i) b = QuantizeLinear (x, s, u)
        y = Identity (a) z = Identity (b) }""")
    run(model, parse("cse"), [CanonicalCheck()])
    assert ops_of(model.graph).count("QuantizeLinear") == 2


def test_other_passes_are_not_checked_this_way():
    model = load_fixture("hf_fill_inf")
    before = canonical_outputs(model)
    run(model, [ExpMask()], [CanonicalCheck()])
    assert canonical_outputs(model) != before
