"""The Scan over tokens: right for any number of tokens, one Scan and nothing dynamic beside it."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from rule_error import assert_is_the_rule, rule_errors

from gdn_ir.models.baseline import build_rule, build_scan
from gdn_ir.models.reference import adversarial_inputs
from gdn_ir.models.rule_form import RuleForm
from gdn_ir.verify.structure import defects

CASES = {
    "default": {},
    "state": {"state": True},
    "gqa-batch-narrow": {"batch": 2, "heads": 4, "key_heads": 2, "head_dim": 16, "value_dim": 8},
    "l2norm-wide": {"l2norm": True, "value_dim": 48, "state": True},
}


@pytest.mark.parametrize("name", CASES)
def test_any_length_equals_the_recurrence(name):
    case = CASES[name]
    model = build_scan(**case)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert defects(model) == []
    for seq in (1, 5, 100):
        assert_is_the_rule(model, case, seq)


def test_constant_extreme_decay():
    inputs = adversarial_inputs(seq=70, state=True)["random"]
    inputs["g"] = np.full_like(inputs["g"], -167.0)
    assert rule_errors(build_scan(state=True), {"extreme": inputs})["extreme"] < 1e-5


def test_a_given_length_equals_the_recurrence():
    case = {"state": True, "key_heads": 1, "l2norm": True}
    model = build_scan(seq=30, **case)
    assert all(v.shape.is_static() for node in model.graph.all_nodes() for v in node.outputs)
    assert_is_the_rule(model, case, 30)


@pytest.mark.parametrize("l2norm", [False, True])
def test_float16(l2norm):
    case = {"key_heads": 1, "state": True, "l2norm": l2norm}
    model = build_scan(dtype="float16", **case)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert_is_the_rule(model, case, 100, limit=2e-3)


def test_one_scan_carries_the_state():
    model = build_scan(state=True)
    (scan,) = [node for node in model.graph if node.op_type == "Scan"]
    body = scan.attributes["body"].value
    assert [str(v.shape) for v in body.inputs] == [
        "[1,2,32,32]",
        "[1,2,32]",
        "[1,2,32]",
        "[1,2,32]",
        "[1,2]",
        "[1,2]",
    ]
    assert [str(v.shape) for v in model.graph.outputs] == ["[1,S,2,32]", "[1,2,32,32]"]
    assert [v.name for v in build_scan().graph.outputs] == ["o"]
    names = [v.name for node in model.graph.all_nodes() for v in node.outputs]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"mask": "fill-zero"}, "mask is 'fill-zero', but form scan goes token by token"),
        ({"chunk": 64}, "chunk is 64, but form scan goes token by token; leave chunk out"),
    ],
)
def test_chunks_and_masks_are_refused(form, message):
    with pytest.raises(ValueError, match=message):
        build_rule(RuleForm("scan", **form))


def test_an_open_length_needs_a_form_that_can_have_one():
    with pytest.raises(ValueError, match="seq is None; form unrolled needs a number"):
        build_rule(RuleForm("unrolled"))
    with pytest.raises(ValueError, match="form is 'while'; it must be one of unrolled, loop, scan"):
        RuleForm("while")
