"""Both gates on a rewrite: what each stops, what it says, what it leaves to see it again."""

import dataclasses

import numpy as np
import pytest
from onnx_text import FUNCTION, model_of

from gdn_ir import pipeline
from gdn_ir.facts import Fact
from gdn_ir.models.baseline import build_unrolled
from gdn_ir.rewrite import Rewrite, Sample
from gdn_ir.verify import VerificationFailed
from gdn_ir.verify.numeric import NumericGate
from gdn_ir.verify.proof_gate import ProofGate

C = 8
TEXT = f"g (float[{C}] g) => (float[{C},{C}] y) <int64 last = {{0}}, int64[1] zero = {{0}}, "
TEXT += "int64[1] one = {1}, int64 none = {0}> { s = CumSum (g, last) "
TEXT += "r = Unsqueeze (s, one) c = Unsqueeze (s, zero) "
DIFFERENCE = TEXT + "d = Sub (r, c) e = Exp (d) y = Trilu <upper = 0> (e, none) }"
# The same by exp(a - b) = exp(a) exp(-b).
OUTER = (
    TEXT + "a = Exp (r) n = Neg (c) b = Exp (n) e = Mul (a, b) y = Trilu <upper = 0> (e, none) }"
)
OFF_BY_ONE = DIFFERENCE.replace("int64 none = {0}", "int64 none = {-1}")


def decay(after, log_decay=0.1):
    feeds = {"g": np.full(C, -log_decay)}
    return Rewrite(
        pass_text="decay",
        where="y",
        found="a decay",
        before=model_of(DIFFERENCE),
        after=model_of(after),
        assumes=(),
        samples=lambda: [Sample(f"log-decay -{log_decay}", feeds)],
    )


def test_an_outer_product_is_exact_algebra_and_overflows():
    gate = ProofGate(strict=True)
    gate.rewrote(decay(OUTER))
    assert gate.verdicts[0].verdict.status == "PROVED"
    NumericGate().rewrote(decay(OUTER))  # gentle decays do not show it
    with pytest.raises(VerificationFailed, match="numeric gate: pass 'decay' at 'y'"):
        NumericGate().rewrote(decay(OUTER, 167))


def test_a_mask_off_by_one_is_different_and_shown():
    with pytest.raises(VerificationFailed) as caught:
        ProofGate(strict=False).rewrote(decay(OFF_BY_ONE))
    assert str(caught.value).startswith("proof: pass 'decay' at 'y': DIFFERENT: output 'y' at [")
    evidence = caught.value.evidence
    assert evidence.pass_text == "decay"
    with pytest.raises(VerificationFailed, match="DIFFERENT"):
        ProofGate(strict=False, seed=evidence.seed).rewrote(decay(OFF_BY_ONE))


ROW_LOOP = {"seq": 16, "chunk": 16, "heads": 1, "head_dim": 4}


def inverse_rewrite(method="block"):
    (pass_,) = pipeline.parse(f"parallel-inverse{{method={method}}}")
    (rewrite,) = (e for e in pass_.run(build_unrolled(**ROW_LOOP)) if isinstance(e, Rewrite))
    return rewrite


def test_the_fact_that_a_rewrite_assumes_is_what_makes_it_true():
    rewrite = inverse_rewrite()
    ProofGate(strict=True).rewrote(rewrite)
    with pytest.raises(VerificationFailed, match="DIFFERENT"):
        ProofGate(strict=False).rewrote(dataclasses.replace(rewrite, assumes=()))


def test_a_truncated_series_is_different():
    rewrite = inverse_rewrite("neumann")
    after = rewrite.after.clone()
    adds = [node for node in after.graph if node.op_type == "Add"]
    # The last sum takes the power before the last a second time.
    adds[-1].replace_input_with(1, adds[-2].inputs[1])
    with pytest.raises(VerificationFailed, match="DIFFERENT"):
        ProofGate(strict=False).rewrote(dataclasses.replace(rewrite, after=after))


def test_equal_rewrites_are_proved_once_under_equal_facts():
    gate = ProofGate(strict=False)
    for rewrite in (decay(OUTER), decay(DIFFERENCE), decay(OUTER)):
        gate.rewrote(rewrite)
    assert (len(gate.verdicts), gate.repeated) == (2, 1)
    gate.rewrote(dataclasses.replace(decay(OUTER), assumes=(Fact("g", "finite", "test"),)))
    assert (len(gate.verdicts), gate.repeated) == (3, 1)


def small(before, after):
    text = "g (float[3,3] x) => (float[3,3] y) { %s }"
    return dataclasses.replace(
        decay(OUTER), before=model_of(text % before), after=model_of(text % after)
    )


@pytest.mark.parametrize(
    ("before", "after", "op"),
    [
        ("d = Det (x) y = Mul (x, d)", "d = Det (x) y = Mul (d, x)", "Det at 'd'"),
        ("a = Relu (x) y = Add (a, a)", "a = Add (x, x) y = Relu (a)", "Relu"),
    ],
)
def test_what_cannot_be_decided_is_a_failure_or_a_label(before, after, op):
    rewrite = small(before, after)
    gate = ProofGate(strict=False)
    gate.rewrote(rewrite)
    (left,) = gate.unproved
    assert str(left).startswith("not proved: 'y' (decay): ")
    assert op in str(left)
    with pytest.raises(VerificationFailed, match=op):
        ProofGate(strict=True).rewrote(rewrite)


def test_open_dimensions_are_proved_at_several_sizes():
    text = "g (float[B,T] x) => (float[B,T] y) { %s }"
    rewrite = dataclasses.replace(
        decay(OUTER),
        before=model_of(text % "y = Neg (x)"),
        after=model_of(text % "a = Neg (x) b = Neg (a) y = Neg (b)"),
    )
    gate = ProofGate(strict=True)
    gate.rewrote(rewrite)
    verdict = gate.verdicts[0].verdict
    found = {shapes["x"] for shapes in verdict.shapes}
    assert {(2, 1), (2, 64), (2, 65), (1, 3), (128, 3)} <= found
    assert "x [2, 1]} and at {" in str(verdict)


def test_what_holds_at_some_sizes_only_is_different():
    """A frozen size, 64 here, is right at that size alone."""
    constants = "<int64[1] zero = {0}, int64[1] full = {64}>"
    text = f"g (float[T] x) => (float[T] y) {constants} {{ %s }}"
    rewrite = dataclasses.replace(
        decay(OUTER),
        before=model_of(text % "y = Neg (x)"),
        after=model_of(text % "a = Slice (x, zero, full) y = Neg (a)"),
    )
    with pytest.raises(VerificationFailed, match="has shape"):
        ProofGate(strict=False).rewrote(rewrite)


def test_local_functions_are_entered():
    changed = FUNCTION.replace("b = Exp (t)", "u = Exp (t) b = Identity (u)")
    rewrite = dataclasses.replace(decay(OUTER), before=model_of(FUNCTION), after=model_of(changed))
    gate = ProofGate(strict=True)
    gate.rewrote(rewrite)
    wrong = dataclasses.replace(rewrite, after=model_of(FUNCTION.replace("Neg", "Identity")))
    with pytest.raises(VerificationFailed, match="DIFFERENT"):
        gate.rewrote(wrong)
