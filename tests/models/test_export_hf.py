"""The exporter of the fixtures."""

import collections
import sys

import onnx_ir as ir
import pytest
from fixture_files import load_fixture

from gdn_ir.models import export_hf
from gdn_ir.models.baseline import build_unrolled


def test_missing_torch_is_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert export_hf.main(["--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "pip install 'gdn-ir[hf]'" in error
    assert not list(tmp_path.iterdir())


def test_strip_keeps_the_layer_only():
    model = build_unrolled(seq=2, chunk=2)
    node = model.graph[0]
    node.doc_string = model.doc_string = "File /home/somebody"
    node.metadata_props["namespace"] = "layers.0"
    node.metadata_props["pkg.torch.onnx.stack_trace"] = "/home/x.py"
    node.outputs[0].metadata_props["anything"] = "/usr/lib"
    model.graph.inputs[0].metadata_props["anything"] = "/usr/lib"
    export_hf.strip(model)
    assert dict(node.metadata_props) == {"namespace": "layers.0"}
    assert export_hf.compressed(model)


def test_a_path_that_stays_is_an_error():
    model = build_unrolled(seq=2, chunk=2)
    model.graph[0].metadata_props["pkg.torch.onnx.stack_trace"] = "/home/somebody/model.py"
    with pytest.raises(RuntimeError, match="home"):
        export_hf.compressed(model)


def test_a_large_model_is_an_error(monkeypatch):
    monkeypatch.setattr(export_hf, "MAX_BYTES", 10)
    with pytest.raises(RuntimeError, match="at most 10"):
        export_hf.compressed(build_unrolled(seq=2, chunk=2))


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch and transformers, about themselves
def test_exporting_again_gives_the_committed_operators():
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    pytest.importorskip("onnxscript")
    again = export_hf.export(export_hf.FIXTURES["hf_fill_inf"])
    assert operators(again) == operators(load_fixture("hf_fill_inf"))
    assert export_hf.compressed(again)


def operators(model: ir.Model) -> collections.Counter[str]:
    return collections.Counter(node.op_type for node in model.graph)
