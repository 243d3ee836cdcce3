"""`gdn-ir bench` and `gdn_ir.bench`."""

import json

import numpy as np
import pytest

import gdn_ir
from gdn_ir import runtime

ONE = "g (float[N,3] x) => (float[N,3] y) { y = Add (x, x) }"
SAME = "g (float[N,3] x) => (float[N,3] y) <float two = {2}> { y = Mul (x, two) }"
OTHER = "g (float[N,3] x) => (float[N,3] y) { y = Mul (x, x) }"
FAST = "--rounds 2 --runs 1"


@pytest.fixture
def models(write):
    for name, text in (("a.onnx", ONE), ("b.onnx", SAME), ("c.onnx", OTHER)):
        write(name, text)


def test_figures_as_table_json_markdown_and_plot(cli, models, tmp_path):
    line = f"bench a.onnx b.onnx --dim N=5 {FAST} -o x.md -o x.svg -o x.json"
    result = cli(line)
    assert (result.code, result.err) == (0, "")
    assert "times faster" in result.out
    assert "wrote x.svg" in result.out
    found = json.loads((tmp_path / "x.json").read_text())
    assert [model["name"] for model in found["models"]] == ["a.onnx", "b.onnx"]
    first, second = found["models"]
    assert len(first["all_ms"]) == len(second["all_ms"]) == 2
    assert first["times_faster"] == 1
    assert second["times_faster"] == pytest.approx(first["median_ms"] / second["median_ms"])
    assert second["apart"] == 0
    assert found["dims"] == {"N": 5}
    assert "| b.onnx | 1 |" in (tmp_path / "x.md").read_text()
    assert (tmp_path / "x.svg").read_text().count("<rect") == 3


def test_json_alone(cli, models):
    found = cli(f"bench a.onnx --dim N=2 {FAST} --json").json
    assert found["models"][0]["times_faster"] == 1


def test_another_function_is_told(cli, models):
    result = cli(f"bench a.onnx c.onnx --dim N=2 {FAST}")
    assert result.code == 0
    assert "c.onnx computes something else" in result.err


def test_inputs_of_the_caller(cli, models, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.full((4, 3), 2, np.float32))
    found = cli(f"bench a.onnx c.onnx --inputs x.npz {FAST} --json").json
    assert found["models"][1]["apart"] == 0, "2 + 2 = 2 * 2"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("bench a.onnx b.onnx", ["'x' has shape [N,3]", "--dim"]),
        ("bench a.onnx --dim M=3", ["no input has a dimension 'M'"]),
        ("bench a.onnx --dim N=3 -o x.pdf", ["x.pdf", ".svg"]),
        ("bench a.onnx --dim N=3 -o a.onnx/x.svg", ["no folder"]),
        ("bench missing.onnx", ["missing.onnx"]),
        ("bench a.onnx --dim N=3 --ep tpu", ["tpu"]),
        ("bench d.onnx a.onnx --dim N=3", ["inputs differ"]),
    ],
)
def test_errors_are_one_line(cli, models, write, line, words):
    write("d.onnx", "g (float[N,3] w) => (float[N,3] y) { y = Neg (w) }")
    cli(line).fails(2, *words)


def test_a_provider_that_is_not_there(cli, models, monkeypatch):
    monkeypatch.setattr(runtime.ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    cli("bench a.onnx --dim N=3 --ep cuda").fails(2, "CUDAExecutionProvider", "onnxruntime-gpu")


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_provider_that_does_not_start(models, monkeypatch, tmp_path):
    monkeypatch.setattr(
        runtime.ort, "get_available_providers", lambda: list(runtime._PROVIDERS.values())
    )
    monkeypatch.setattr(
        runtime.ort.InferenceSession, "get_providers", lambda self: ["CPUExecutionProvider"]
    )
    with (
        pytest.raises(runtime.RunFailed, match="CUDAExecutionProvider does not start"),
        runtime.session(tmp_path / "a.onnx", provider="cuda"),
    ):
        raise AssertionError("no session on another provider")


def test_no_model_at_all():
    with pytest.raises(ValueError, match="at least one model"):
        gdn_ir.bench([])
