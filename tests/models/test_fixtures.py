"""The committed exports: they load, they run, and they compute the rule."""

import collections

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from fixture_files import FIXTURES, fixture_bytes, load_fixture
from rule_error import LIMITS, rule_errors, session_for

from gdn_ir.models import export_hf
from gdn_ir.models.reference import adversarial_inputs, recurrence

RULES = {
    "hf_fill_inf": {},
    "hf_fill_inf_gqa_ragged_state": {"seq": 100, "key_heads": 1, "state": True},
    "hf_fill_zero": {},
    "ts_fill_zero": {},
    "scan_tokens": {"seq": 70},
    "ts_loop_tokens": {"seq": 70},
}


def test_the_folder_holds_what_the_exporter_makes():
    assert {f.name for f in FIXTURES.glob("*.xz")} == {f"{n}.onnx.xz" for n in export_hf.FIXTURES}


@pytest.mark.parametrize("name", export_hf.FIXTURES)
def test_is_small_valid_and_tells_no_path(name):
    assert (FIXTURES / f"{name}.onnx.xz").stat().st_size <= export_hf.MAX_BYTES
    assert not [path for path in export_hf.LOCAL_PATHS if path in fixture_bytes(name)]
    model = load_fixture(name)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert model.opset_imports == {"": 20}
    interface = {
        v.name: tuple(size if isinstance(size, int) else size.value for size in v.shape)
        for v in model.graph.inputs
    }
    assert interface == export_hf.FIXTURES[name].inputs
    assert tuple(v.name for v in model.graph.outputs) == export_hf.FIXTURES[name].outputs


@pytest.mark.parametrize("name", RULES)
def test_equals_the_recurrence(name):
    families = adversarial_inputs(**RULES[name])
    l2norm = name == "hf_fill_inf_gqa_ragged_state"
    for family, error in rule_errors(load_fixture(name), families, l2norm=l2norm).items():
        assert error < LIMITS.get(family, 1e-5), family


def test_the_scripted_inverse_inverts():
    a = np.tril(np.random.default_rng(0).standard_normal((1, 2, 2, 64, 64)) / 8, -1)
    (inverse,) = session_for(load_fixture("ts_loop_inverse")).run(None, {"A": a.astype(np.float32)})
    np.testing.assert_allclose(inverse, np.linalg.inv(np.eye(64) - a), atol=1e-5)


def test_language_model_runs():
    model = load_fixture("qwen3_5_tiny")
    ids = np.random.default_rng(0).integers(0, 128, (1, 128))
    (logits,) = session_for(model).run(["logits"], {"input_ids": ids})
    assert logits.shape == (1, 128, 128)
    assert np.all(np.isfinite(logits))
    assert np.std(logits) > 1e-3
    counts = collections.Counter(node.op_type for node in model.graph)
    assert (counts["ScatterND"], counts["ScatterElements"]) == (63, 65)


def test_language_model_holds_the_rule():
    # Its five Pad nodes take q (already scaled), k, v, beta and g, heads first; the last write
    # into the chunks' output is the rule's result.
    model = load_fixture("qwen3_5_tiny")
    pads = [node for node in model.graph if node.op_type == "Pad"]
    writes = [node for node in model.graph if node.op_type == "ScatterElements"]
    taken = [node.inputs[0] for node in pads] + [writes[-1].outputs[0]]
    model.graph.outputs.extend(taken)
    ids = np.random.default_rng(0).integers(0, 128, (1, 128))
    results = session_for(model).run([v.name for v in taken], {"input_ids": ids})
    q, k, v, beta, g = (np.swapaxes(x, 1, 2).astype(np.float64) for x in results[:5])
    expected, _ = recurrence(q, k, v, g, beta, scale=1.0)
    actual = np.swapaxes(results[5].reshape(1, 2, 128, 32), 1, 2)
    assert np.max(np.abs(actual - expected)) < 1e-5 * np.max(np.abs(expected))
    assert g[..., 0].max() < -1
    assert g[..., 1].min() > -0.1
