"""Any two models of one interface: what is peeled by hash, what is proved, what is run."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from fixture_files import load_fixture
from onnx_text import LOOP, model_of

from gdn_ir.models.baseline import build_unrolled
from gdn_ir.optimizer import optimize
from gdn_ir.verify.equivalence import EQUAL_BY_HASH, compare
from gdn_ir.verify.shapes import bind
from gdn_ir.verify.two_models import verify_models

SIZE = {"seq": 24, "chunk": 8, "heads": 2, "head_dim": 8}


def outcome(before, after, **options):
    (found,) = verify_models(before, after, **options)
    return found


def model(nodes, inputs="float[4,4] x", output="float[4,4] y"):
    return model_of(f"g ({inputs}) => ({output}) {{ {nodes} }}")


def test_a_model_is_itself():
    found = outcome(build_unrolled(**SIZE), build_unrolled(**SIZE))
    assert found.comparison.outputs == {"o": EQUAL_BY_HASH}
    assert found.comparison.proved == {}
    assert all(error.is_accepted for error in found.errors)
    assert {error.sample for error in found.errors} == {
        "random inputs", "equal tokens", "equal tokens, 'g' = 1", "equal tokens, 'beta' = 1",
    }  # fmt: skip


def test_two_exports_of_one_rule_are_proved_equal():
    before, after = (build_unrolled(**SIZE, mask=mask) for mask in ("fill-inf", "fill-zero"))
    found = outcome(before, after)
    assert found.comparison.outputs["o"].status == "PROVED"
    assert found.comparison.outputs["o"].log2_bound <= -40
    assert all(error.is_accepted for error in found.errors)


@pytest.mark.slow
def test_a_scan_over_tokens_is_the_chunk_form():
    scan, chunks = bind(load_fixture("scan_tokens"), {"T": 128}), load_fixture("hf_fill_inf")
    for pair in ((scan, chunks), (chunks, scan)):
        found = compare(*pair)
        assert {name: verdict.status for name, verdict in found.outputs.items()} == {
            "o": "PROVED", "final_state": "PROVED",
        }  # fmt: skip
        assert all(verdict.log2_bound <= -40 for verdict in found.outputs.values())


def test_what_loses_digits_on_equal_tokens_is_not_accepted():
    sizes = {"seq": 64, "chunk": 64, "heads": 1, "head_dim": 8, "l2norm": True}
    before = build_unrolled(**sizes)
    after, _ = optimize(before, passes="parallel-inverse{method=doubling}", verify="none")
    found = outcome(before, after)
    assert found.comparison.status == "PROVED"
    by_sample = {error.sample: error.is_accepted for error in found.errors}
    assert by_sample["random inputs"]
    assert not by_sample["equal tokens, 'beta' = 1"]


def test_a_whole_qwen_is_equal_by_hash_around_proved_regions():
    """Its nested exp, IsNaN and data-dependent Where mean nothing to the algebra."""
    before = load_fixture("qwen3_5_tiny")
    after, report = optimize(before, verify="proof")
    assert all(proof.verdict.status == "PROVED" for proof in report.proofs)
    comparison = compare(before, after)
    assert comparison.outputs == {"logits": EQUAL_BY_HASH}
    assert comparison.proved
    assert all(verdict.status == "PROVED" for verdict in comparison.proved.values())


def _is_exclusive(node):
    return "exclusive" in node.attributes and node.attributes["exclusive"].as_int() == 1


def test_a_wrong_region_in_a_whole_qwen_is_found():
    before = load_fixture("qwen3_5_tiny")
    after, _ = optimize(before, verify="structure")
    suffix = next(n for n in after.graph if n.op_type == "CumSum" and _is_exclusive(n))
    suffix.attributes["exclusive"] = ir.AttrInt64("exclusive", 0)
    # Conv, far above, keeps it from being called different.
    assert compare(before, after).status == "UNSUPPORTED"


def test_ops_without_meaning_do_not_matter_where_both_have_them():
    shared = "d = Det (x) e = Mul (x, d) "
    before = model(shared + "a = Add (e, e) y = Add (a, x)")
    after = model(shared + "a = Add (e, x) y = Add (a, e)")
    found = compare(before, after)
    assert found.status == "PROVED"
    # Different for unknown e; whether Det makes it equal is not known.
    wrong = compare(before, model(shared + "a = Add (e, x) y = Add (a, x)"))
    assert wrong.status == "UNSUPPORTED"


def test_an_op_without_meaning_in_what_differs_is_named():
    before, after = (
        model("d = Det (x) y = Mul (x, d)"),
        model("t = Transpose (x) d = Det (t) y = Mul (x, d)"),
    )
    found = compare(before, after)
    assert found.status == "UNSUPPORTED"
    assert "Det" in found.outputs["y"].reason


def test_random_numbers_of_two_models_are_two():
    draws = model("t = RandomNormalLike (x) y = Add (x, t)")
    found = compare(draws, draws.clone())
    assert found.status == "UNSUPPORTED"
    assert "RandomNormalLike" in found.outputs["y"].reason


def test_a_difference_is_shown_with_its_place_and_seed():
    found = outcome(model("y = Add (x, x)"), model("y = Mul (x, x)"), seed=5)
    verdict = found.comparison.outputs["y"]
    assert (verdict.status, verdict.seed) == ("DIFFERENT", 5)
    assert verdict.reason.startswith("output 'y' at [")
    assert not all(error.is_accepted for error in found.errors)


def test_each_output_has_a_verdict_of_its_own():
    text = "g (float[3,3] x) => (float[3,3] y, float[3,3] z) {{ y = {} (x, x) a = {} z = Neg (a) }}"
    first = model_of(text.format("Add", "Add (x, x)"))
    second = model_of(text.format("Mul", "Sum (x, x)"))
    found = compare(first, second).outputs
    assert (found["y"].status, found["z"].status) == ("DIFFERENT", "PROVED")


def test_one_gate_alone():
    pair = model("y = Add (x, x)"), model("y = Mul (x, x)")
    assert outcome(*pair, numeric=False).errors == []
    assert outcome(*pair, proof=False).comparison is None


def test_open_dimensions_take_the_numbers_of_the_other_model():
    found = outcome(
        model("y = Neg (x)", "float[N,M] x", "float[N,M] y"),
        model("a = Neg (x) b = Neg (a) y = Neg (b)"),
    )
    assert found.sizes == {}
    assert found.comparison.outputs["y"].shapes == ({"x": (4, 4)},)


def test_dimensions_open_in_both_get_several_sizes():
    before = model("y = Neg (x)", "float[N,3] x", "float[N,3] y")
    after = model("a = Neg (x) b = Neg (a) y = Neg (b)", "float[M,3] x", "float[M,3] y")
    found = list(verify_models(before, after))
    assert [dict(at.sizes) for at in found] == [{"N": n} for n in (1, 63, 64, 65, 128)]
    assert all(at.comparison.status == "PROVED" and at.errors for at in found)


@pytest.mark.parametrize(
    ("inputs", "output", "message"),
    [
        ("float[4,4] w", "float[4,4] y", "the models' inputs differ: x and w"),
        ("float[4,5] x", "float[4,4] y", "input 'x' is [4,4] in one model and [4,5] in the other"),
        ("float[4] x", "float[4,4] y", "input 'x' is [4,4] in one model and [4] in the other"),
        ("double[4,4] x", "double[4,4] y", "input 'x' is FLOAT in one model, DOUBLE in the other"),
        ("float[4,4] x", "float[4,4] z", "the models' outputs differ: y and z"),
    ],
)
def test_interfaces_that_differ(inputs, output, message):
    name, result = inputs.split()[1], output.split()[1]
    with pytest.raises(ValueError, match=r"differ|in one model") as caught:
        list(verify_models(model("y = Neg (x)"), model(f"{result} = Neg ({name})", inputs, output)))
    assert str(caught.value) == message


def test_loops_are_compared_too():
    text = LOOP.replace("int64 n, bool on, ", "")
    text = text.replace("(float[2] y) {", "(float[2] y) <int64 n = {3}, bool on = {1}> {")
    longer = text.replace("t = Mul (v, w)", "r = Neg (v) q = Neg (r) t = Mul (q, w)")
    wrong = text.replace("t = Mul (v, w)", "q = Neg (v) t = Mul (q, w)")
    assert compare(model_of(text), model_of(longer)).status == "PROVED"
    assert compare(model_of(text), model_of(wrong)).status == "DIFFERENT"


def test_many_layers_are_told_apart_by_one_wrong_one():
    """Equal layers, the fourth of which is rewritten wrongly."""
    rule = ir.to_proto(build_unrolled(seq=8, chunk=8, heads=1, head_dim=4))
    chain = onnx.compose.add_prefix(rule, "0/")
    for i in range(1, 4):
        layer = onnx.compose.add_prefix(rule, f"{i}/")
        chain = onnx.compose.merge_models(chain, layer, [(f"{i - 1}/o", f"{i}/v")])
    before = ir.from_proto(chain)
    after, _ = optimize(before, verify="structure")
    found = compare(before, after)
    assert found.status == "PROVED"
    masks = [
        v
        for v in after.graph.initializers.values()
        if np.isneginf(v.const_value.numpy().astype(float)).any()
    ]
    wrong = masks[-1].const_value.numpy().copy()
    wrong[-1, 0] = -np.inf
    masks[-1].const_value = ir.tensor(wrong, name=masks[-1].name)
    assert compare(before, after).status == "DIFFERENT"


def test_an_old_opset_is_refused_whose_ops_mean_something_else():
    text = '<ir_version: 7, opset_import: ["": 11]> g (float[2,3,4] x) => (float[2,3,4] y) '
    models = [model_of(text + "{ y = Softmax <axis = 1> (x) }") for _ in range(2)]
    with pytest.raises(ValueError, match="the model has opset 11; gdn-ir needs 13 or later"):
        list(verify_models(*models))
