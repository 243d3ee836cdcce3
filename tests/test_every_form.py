"""Every form that a rule comes in through the portable pipeline: proved, gated, still the rule."""

import pytest
from fixture_files import load_fixture
from rule_error import LIMITS, assert_is_the_rule, rule_errors

from gdn_ir import targets
from gdn_ir.models.baseline import build_rule
from gdn_ir.models.layer_model import build_layer
from gdn_ir.models.reference import adversarial_inputs
from gdn_ir.models.rule_form import RuleForm
from gdn_ir.observers import count_ops
from gdn_ir.optimizer import optimize

CHUNKED = {"exp-mask", "parallel-inverse"}
FORMS = {
    "unrolled": (RuleForm("unrolled", chunk=16), 40, CHUNKED | {"scatter-to-concat"}),
    "unrolled, blocks": (
        RuleForm("unrolled", inverse="blocks", mask="fill-zero", chunk=32), 40, CHUNKED,
    ),
    "loop": (RuleForm("loop", chunk=16), None, CHUNKED),
    "loop, older masks": (RuleForm("loop", mask="fill-zero", chunk=16), None, CHUNKED),
    "loop, blocks": (RuleForm("loop", inverse="blocks", chunk=32), None, CHUNKED),
    "loop of known length": (RuleForm("loop", chunk=16), 40, CHUNKED),
    "scan": (RuleForm("scan"), None, set()),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_builder_forms(name):
    form, seq, expected = FORMS[name]
    model = build_rule(form, seq=seq, heads=2, key_heads=1, head_dim=4, state=True)
    optimized, report = optimize(model)
    passes = {record.pass_text for record in report.passes if record.rewrites}
    assert expected <= passes
    assert {proof.verdict.status for proof in report.proofs} <= {"PROVED"}
    assert report.whole_model, "the whole model was run"
    serial = count_ops(optimized)
    assert serial["ScatterND"] == serial["ScatterElements"] == 0
    # What carries a state stays, and is told.
    assert report.left_alone == {
        "loop": {"Loop": 1}, "scan": {"Scan": 1}, "unrolled": {},
    }[form.form]  # fmt: skip
    case = {"heads": 2, "key_heads": 1, "head_dim": 4, "state": True}
    assert_is_the_rule(optimized, case, 40)


@pytest.mark.parametrize("name", FORMS)
def test_builder_forms_without_chunk_work(name):
    form, seq, _ = FORMS[name]
    case = {"heads": 2, "key_heads": 1, "head_dim": 4, "state": True}
    model = build_rule(form, seq=seq, **case)
    passes = f"{targets.load('portable').pipeline},hoist-chunk-work,identity,fold-constants,cse,dce"
    optimized, report = optimize(model, passes=passes)
    assert {proof.verdict.status for proof in report.proofs} <= {"PROVED"}
    for tokens in (40,) if seq else (40, 1):
        assert_is_the_rule(optimized, case, tokens)


@pytest.mark.slow
@pytest.mark.parametrize("seq", [None, 40])
def test_layers_of_loops(seq):
    form = RuleForm("loop", chunk=16)
    model = build_layer(form, layers=3, seq=seq, heads=1, head_dim=4)
    optimized, report = optimize(model)
    assert {proof.verdict.status for proof in report.proofs} == {"PROVED"}
    # Layers are alike: each rewrite is proved for one of them.
    inverses = [proof for proof in report.proofs if proof.pass_text == "parallel-inverse"]
    assert len(inverses) == 1
    assert count_ops(optimized)["Loop"] == 3


@pytest.mark.slow
def test_alike_layers_are_proved_once():
    reports = [
        optimize(
            build_layer(RuleForm("unrolled", chunk=8), layers=count, seq=16, heads=1, head_dim=4)
        )[1]
        for count in (1, 3)
    ]
    assert len(reports[0].proofs) == len(reports[1].proofs) > 1
    done = [sum(len(record.rewrites) for record in report.passes) for report in reports]
    assert done[1] == 3 * done[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "passes", "loops"),
    [
        ("ts_fill_zero", {"no-ops", *CHUNKED, "scatter-to-concat", "flatten-matmul"}, {}),
        ("ts_loop_tokens", {"no-ops"}, {"Loop": 1}),
        ("scan_tokens", set(), {"Scan": 1}),
    ],
)
def test_exports(name, passes, loops):
    optimized, report = optimize(load_fixture(name))
    assert {record.pass_text for record in report.passes if record.rewrites} == passes
    assert {proof.verdict.status for proof in report.proofs} <= {"PROVED"}
    assert report.left_alone == loops
    if name == "ts_fill_zero":
        assert sum(count_ops(optimized).values()) < 150, "of 8724 nodes"
    for family, error in rule_errors(optimized, adversarial_inputs()).items():
        assert error < LIMITS.get(family, 1e-5), family
