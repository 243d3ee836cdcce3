"""The main job on a small baseline: what comes back, what stays, what the report says."""

import json

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx_text import model_of, ops_of, value_of

import gdn_ir
from gdn_ir import BadPipeline, VerificationFailed, optimizer, runtime
from gdn_ir.graph_view import serial_steps
from gdn_ir.models.baseline import build_unrolled
from gdn_ir.optimizer import optimize
from gdn_ir.pass_manager import Observer
from gdn_ir.region import Region

SIZE = {"seq": 24, "chunk": 8, "heads": 2, "head_dim": 8}
# A chunk in which the doubling series loses all digits in float32.
UNSAFE = {"seq": 64, "chunk": 64, "heads": 1, "head_dim": 8}


def serialized(model):
    return ir.to_proto(model).SerializeToString(deterministic=True)


@pytest.fixture(scope="module")
def baseline():
    return build_unrolled(**SIZE)


@pytest.fixture(scope="module")
def two_layers():
    """Two equal rules, the output of the first being v of the second."""
    rule = ir.to_proto(build_unrolled(**SIZE))
    first, second = (onnx.compose.add_prefix(rule, prefix) for prefix in ("first/", "second/"))
    return ir.from_proto(onnx.compose.merge_models(first, second, [("first/o", "second/v")]))


def test_the_result_computes_the_same_in_fewer_steps(baseline):
    optimized, report = optimize(baseline)
    feeds = runtime.random_inputs(baseline)
    (old,), (new,) = runtime.run(baseline, feeds), runtime.run(optimized, feeds)
    np.testing.assert_allclose(new, old, atol=1e-6 * np.abs(old).max())
    assert "ScatterND" in ops_of(baseline.graph)
    assert "ScatterND" not in ops_of(optimized.graph)
    assert serial_steps(optimized.graph) < serial_steps(baseline.graph)
    assert report.passes[0].nodes_before == len(baseline.graph)
    assert report.passes[-1].nodes_after == len(optimized.graph)


def test_the_original_stays_as_it_is(baseline):
    before = serialized(baseline)
    optimized, _ = optimize(baseline)
    assert serialized(baseline) == before
    assert optimized is not baseline
    again, _ = optimize(baseline)
    assert serialized(again) == serialized(optimized)


def test_a_model_may_be_a_path(baseline, tmp_path):
    gdn_ir.save(baseline, tmp_path / "m.onnx")
    from_path, _ = optimize(tmp_path / "m.onnx", verify="structure")
    from_text, _ = optimize(str(tmp_path / "m.onnx"), verify="structure")
    from_model, _ = optimize(baseline, verify="structure")
    assert ops_of(from_path.graph) == ops_of(from_text.graph) == ops_of(from_model.graph)


def test_an_optimized_model_is_left_alone(baseline):
    once, _ = optimize(baseline, verify="structure")
    twice, report = optimize(once, verify="structure")
    assert not any(record.rewrites for record in report.passes)
    assert ops_of(twice.graph) == ops_of(once.graph)


def test_the_report_says_what_happened(baseline):
    _, report = optimize(baseline, passes="exp-mask, parallel-inverse{leaf=4},dce")
    assert report.pipeline == "exp-mask,parallel-inverse{leaf=4},dce"
    assert [record.pass_text for record in report.passes] == report.pipeline.split(",")
    (inverse,) = report.passes[1].rewrites
    assert (inverse.where, inverse.pass_text) == ("inverse", "parallel-inverse{leaf=4}")
    assert any("strictly lower (whatever" in fact for fact in report.assumes)
    assert {error.pass_text for error in report.region_errors} == set(
        report.pipeline.split(",")[:2]
    )
    assert [error.output for error in report.whole_model] == ["o"]
    assert report.whole_model[0].difference < 1e-5
    assert (report.warnings, report.repeated) == ([], 0)


def test_the_report_is_json(baseline):
    _, report = optimize(baseline, passes="exp-mask,parallel-inverse,dce")
    data = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert data["pipeline"] == report.pipeline
    assert [record["pass"] for record in data["passes"]] == report.pipeline.split(",")
    inverse = data["passes"][1]
    assert inverse["nodes_before"] - inverse["nodes_after"] == -sum(inverse["op_delta"].values())
    assert inverse["op_delta"]["ScatterND"] == -7
    assert inverse["rewrites"][0]["where"] == "inverse"
    assert inverse["rewrites"][0]["nodes_before"] > inverse["rewrites"][0]["nodes_after"]
    assert data["assumes"] == report.assumes
    assert {error["sample"] for error in data["region_errors"]} >= {"random keys"}
    assert data["whole_model"][0]["output"] == "o"


def test_equal_layers_are_checked_once(two_layers):
    (optimized, two), (_, one) = optimize(two_layers), optimize(build_unrolled(**SIZE))
    rewrites = sum(len(record.rewrites) for record in one.passes)
    assert sum(len(record.rewrites) for record in two.passes) == 2 * rewrites
    assert two.repeated == one.repeated + rewrites
    assert len(two.region_errors) == len(one.region_errors)
    assert two.to_json()["repeated_regions"] == two.repeated
    assert "ScatterND" not in ops_of(optimized.graph)


# --- What to run ----------------------------------------------------------------------------------


def test_the_default_is_the_portable_pipeline(baseline):
    _, default = optimize(baseline, verify="structure")
    _, portable = optimize(baseline, target="portable", verify="structure")
    assert default.pipeline == portable.pipeline
    assert "parallel-inverse" in default.pipeline


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"target": "portable", "passes": "dce"},
            ValueError,
            "target and passes exclude each other",
        ),
        ({"target": "portabel"}, ValueError, "no target 'portabel'; did you mean 'portable'?"),
        ({"passes": ""}, BadPipeline, "the pipeline is empty; name a pass"),
        ({"passes": "ded"}, BadPipeline, "no pass 'ded'; did you mean 'dce'?"),
        ({"verify": "most"}, ValueError, "verify is one of .*structure.*, not 'most'"),
        ({"assume": ["A"]}, ValueError, "--assume A: "),
        ({"assume": ["nobody:strictly-lower"]}, ValueError, "has no value 'nobody'$"),
        (
            {"assume": ["k_beat:strictly-lower"]},
            ValueError,
            "no value 'k_beat'; did you mean 'k_beta'( or '.*')?$",
        ),
        (
            {"assume": ["q:finite"]},
            ValueError,
            "'finite' is no fact that can be stated; write NAME:FACT, where FACT is strictly-lower",
        ),
    ],
)
def test_bad_options(baseline, options, error, message):
    with pytest.raises(error, match=message.replace("?", r"\?")):
        optimize(baseline, **options)


def test_a_model_of_an_old_opset_is_refused():
    model = model_of(
        '<ir_version: 8, opset_import: ["": 12]> g (float[2] x) => (float[2] y) { y = Neg (x) }'
    )
    with pytest.raises(ValueError, match="opset 12; gdn-ir needs 13 or later"):
        optimize(model)


# --- Verification ---------------------------------------------------------------------------------


def test_a_rewrite_that_loses_digits_is_rejected():
    model = build_unrolled(**UNSAFE)
    before = serialized(model)
    with pytest.raises(VerificationFailed, match=r"pass 'parallel-inverse\{method=doubling\}' at"):
        optimize(model, passes="parallel-inverse{method=doubling}")
    assert serialized(model) == before


@pytest.mark.parametrize("verify", ["structure", "none"])
def test_without_the_gate_it_is_written_with_warnings(verify):
    passes = "parallel-inverse{method=doubling}"
    optimized, report = optimize(build_unrolled(**UNSAFE), passes=passes, verify=verify)
    assert "ScatterND" not in ops_of(optimized.graph)
    assert any("method=doubling loses all digits" in warning for warning in report.warnings)
    assert any("not checked numerically" in warning for warning in report.warnings)
    assert (report.verify, report.region_errors, report.whole_model) == (verify, [], [])


def test_nothing_rewritten_is_nothing_unchecked(baseline):
    assert optimize(baseline, passes="dce", verify="none")[1].warnings == []


def test_what_cannot_be_run_whole_is_said(baseline, monkeypatch):
    strings = model_of("g (string[2] x) => (string[2] y) { y = Identity (x) }")
    (warning,) = optimize(strings)[1].warnings
    assert warning.startswith("the whole model was not run: input 'x' has type STRING")
    monkeypatch.setattr(optimizer, "is_small_enough", lambda model: False)
    _, report = optimize(baseline, passes="dce")
    assert report.warnings == ["the whole model was not run: more than 1 GiB of weights"]
    assert report.whole_model == []


def test_open_dimensions_are_run_at_two_lengths():
    dynamic = model_of("g (float[n] x) => (float[n] y) { a = Neg (x) b = Neg (x) y = Add (a, b) }")
    _, report = optimize(dynamic)
    assert [error.output for error in report.whole_model] == ["y", "y"]


@pytest.fixture(scope="module")
def bare_inverse():
    """The inverse of a bare input: nothing above it says that it is strictly lower."""
    rule = build_unrolled(**SIZE)
    region = Region.between([value_of(rule, "A")], [value_of(rule, "inverse")])
    return region.to_model(rule)


def test_a_fact_that_the_user_states_is_repeated(bare_inverse):
    def rewritten(**options):
        return optimize(bare_inverse, passes="parallel-inverse", verify="structure", **options)[1]

    (declined,) = rewritten().passes[0].declined
    assert "A is not known to be strictly lower" in declined.reason
    assert rewritten(assume=["A:strictly-lower"]).assumes == [
        "'A' strictly lower (stated by the user)"
    ]
    assert rewritten().assumes == []  # the word was given for one call


def test_a_fact_that_no_rewrite_relied_on_is_reported(bare_inverse):
    def warnings(passes):
        facts = ["A:strictly-lower"]
        return optimize(bare_inverse, passes=passes, assume=facts)[1].warnings

    assert warnings("parallel-inverse") == []
    assert warnings("dce") == ["--assume A:strictly-lower was not used: no rewrite relied on it"]


def test_a_fact_that_the_user_states_holds_when_the_whole_model_runs(bare_inverse):
    _, report = optimize(bare_inverse, assume=["A:strictly-lower"])
    assert sum(len(record.rewrites) for record in report.passes) == 1
    assert all(error.difference < 1e-5 for error in report.whole_model)


# --- What stays -----------------------------------------------------------------------------------

LOOPS = """g (int64 n, bool on, float[2] x) => (float[2] y) <float zero = {0}> {
  y = Loop (n, on, x) <body = b (int64 i, bool go, float[2] v) => (bool go_on, float[2] u) {
    go_on = Identity (go)
    s, p = Scan <num_scan_inputs = 1, body = c (float h, float e) => (float k, float m) {
      k = Add (h, e)
      m = Identity (k)
    }> (zero, v)
    t, u = Scan <num_scan_inputs = 1, body = d (float h, float e) => (float k, float m) {
      k = Mul (h, e)
      m = Identity (k)
    }> (zero, p)
  }>
}"""


def test_loops_are_counted_in_all_scopes(baseline):
    _, report = optimize(model_of(LOOPS), verify="structure")
    assert report.left_alone == report.to_json()["left_alone"] == {"Loop": 1, "Scan": 2}
    assert optimize(baseline, verify="structure")[1].left_alone == {}


# --- Miscompilations ------------------------------------------------------------------------------


@pytest.mark.parametrize("verify", ["numeric", "structure"])
def test_a_body_s_input_that_hides_an_outer_name(verify, tmp_path):
    model = model_of("""g (int64 n, bool on, float[2] x) => (float[2] y) {
      w = Identity (x)
      y = Loop (n, on, w) <body = b (int64 i, bool go, float[2] x) => (bool go_on, float[2] u) {
        go_on = Identity (go)
        u = Add (x, w)
      }>
    }""")
    feeds = {"n": np.array(3), "on": np.array(True), "x": np.float32([1, 2])}
    (expected,) = runtime.run(model, feeds)
    try:
        optimized, _ = optimize(model, verify=verify)
    except VerificationFailed:
        return
    np.testing.assert_array_equal(runtime.run(optimized, feeds)[0], expected)


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param(
            """z = ScatterElements <reduction = "add"> (x, at, u)
               y = ScatterElements <reduction = "add"> (z, at, u)""", id="reduction"),
        pytest.param(
            """w = c.Foo (u) z = ScatterElements (x, at, w)
               y = ScatterElements (z, at, w)""", id="custom op"),
    ],
)  # fmt: skip
def test_scatters_that_cannot_be_evaluated_are_left_alone(nodes):
    text = '<ir_version: 10, opset_import: ["": 20, "c": 1]> g (float[2,2] x) => (float[2,2] y) '
    text += "<int64[1,2] at = {0, 0}, int64[1] none = {0}, int64[1] one = {1}> "
    model = model_of(f"{text} {{ u = Slice (x, none, one) {nodes} }}")
    optimized, _ = optimize(model, verify="structure")
    assert ops_of(optimized.graph) == ops_of(model.graph)


def test_scatters_of_integers_are_rewritten():
    model = model_of("""g (int64[1,2] a, int64[1,2] b) => (int64[2,2] y)
      <int64[2,2] zero = {0, 0, 0, 0}, int64[1,2] first = {0, 0}, int64[1,2] second = {1, 1}> {
        t = ScatterElements (zero, first, a)
        y = ScatterElements (t, second, b)
    }""")
    assert ops_of(optimize(model)[0].graph) == ["Concat"]


def test_inputs_with_defaults():
    model = model_of("""<ir_version: 3, opset_import: ["": 13]>
      g (float[4] x, int64[2] shape) => (float[2,2] y) <int64[2] shape = {2, 2}>
      { y = Reshape (x, shape) }""")
    assert optimize(model)[1].whole_model[0].difference == 0


# --- Dumps and observers --------------------------------------------------------------------------


def test_dumped_models_load_again(baseline, tmp_path):
    passes = "exp-mask,parallel-inverse,dce"
    optimized, report = optimize(baseline, passes=passes, dump=tmp_path / "dump")
    paths = sorted((tmp_path / "dump").iterdir())
    assert [path.name for path in paths] == [
        "000-input.onnx",
        "001-exp-mask.onnx",
        "002-parallel-inverse.onnx",
        "003-dce.onnx",
    ]
    models = [gdn_ir.load(path) for path in paths]
    assert [len(model.graph) for model in models] == [
        report.passes[0].nodes_before,
        *(record.nodes_after for record in report.passes),
    ]
    feeds = runtime.random_inputs(baseline)
    np.testing.assert_array_equal(runtime.run(models[0], feeds), runtime.run(baseline, feeds))
    np.testing.assert_array_equal(runtime.run(models[-1], feeds), runtime.run(optimized, feeds))


def test_observers_hear_of_what_passed_the_checks():
    heard = []

    class Listener(Observer):
        def rewrote(self, rewrite):
            heard.append(rewrite.where)

        def after(self, pass_, model):
            heard.append(str(pass_))

    model = build_unrolled(**UNSAFE)
    optimize(model, passes="parallel-inverse,dce", observers=[Listener()])
    assert heard == ["inverse", "parallel-inverse", "dce"]
    heard.clear()
    with pytest.raises(VerificationFailed):
        optimize(model, passes="parallel-inverse{method=doubling}", observers=[Listener()])
    assert heard == []


# --- What the gates cannot check ------------------------------------------------------------------

# ONNX Runtime's CPU has no MatMul of bfloat16, and onnx's reference no such op as Foo.
FOREIGN = """<ir_version: 10, opset_import: ["": 20, "c": 1]>
  g (float[2,2] x) => (float[2,2] y) <int64[4] none = {0, 0, 0, 0}> {
    a = c.Foo (x) p = Pad (a, none) y = Neg (p)
  }"""


def test_an_op_that_no_gate_knows_does_not_matter_around_a_rewrite():
    model = model_of(FOREIGN)
    left, report = optimize(model)
    assert ops_of(left.graph) == ["Foo", "Pad", "Neg"]
    declined = [text for record in report.passes for text in record.declined]
    assert "the type or rank of 'a' is not known" in declined[0].reason
    a = value_of(model, "a")
    a.dtype, a.shape = ir.DataType.FLOAT, ir.Shape([2, "N"])
    optimized, report = optimize(model)
    assert ops_of(optimized.graph) == ["Foo", "Neg"]
    (warning,) = report.warnings
    assert warning.startswith("the whole model was not run: ONNX Runtime: ")


def bfloat16(model):
    """The model in bfloat16."""
    for value in (*model.graph.inputs, *(v for n in model.graph for v in n.outputs)):
        if value.dtype == ir.DataType.FLOAT:
            value.dtype = ir.DataType.BFLOAT16
    for value in model.graph.initializers.values():
        if value.dtype == ir.DataType.FLOAT:
            array = value.const_value.numpy().astype(ir.DataType.BFLOAT16.numpy())
            value.const_value = ir.tensor(array, name=value.name)
            value.dtype = ir.DataType.BFLOAT16
    return model


def test_a_region_that_does_not_run_is_written_if_it_is_proved(bare_inverse):
    model = bfloat16(bare_inverse.clone())
    options = {"assume": ["A:strictly-lower"], "passes": "parallel-inverse"}
    optimized, report = optimize(model, **options)
    assert "ScatterND" not in ops_of(optimized.graph)
    assert any(warning.startswith("not run: 'inverse'") for warning in report.warnings)
    assert [proof.verdict.status for proof in report.proofs] == ["PROVED"]
    with pytest.raises(VerificationFailed, match="no gate could check pass 'parallel-inverse'"):
        optimize(model, **options, verify="numeric")
