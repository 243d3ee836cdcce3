"""`gdn-ir render`."""

import pytest
from small_graphs import inverse_model

from gdn_ir.visualizations import engines


@pytest.fixture
def models(write):
    write("a.onnx", inverse_model((1, 4, 4)))
    write("b.onnx", inverse_model((1, 5, 5)))


def test_two_models_side_by_side(cli, models, tmp_path):
    found = cli("render a.onnx b.onnx -o x.svg --json").json
    assert (found["output"], found["engine"]) == ("x.svg", next(engines.engines()).name)
    assert found["counts"]["a.onnx"]["copies_out"] == 3
    assert found["counts"]["b.onnx"]["copies_out"] == 4
    text = (tmp_path / "x.svg").read_text()
    assert "a.onnx" in text
    assert "b.onnx" in text


def test_one_model_and_a_table(cli, models, tmp_path):
    result = cli("render a.onnx -o x.html")
    assert result.code == 0
    assert "copies in" in result.out
    assert "wrote x.html, laid out by " in result.out
    assert (tmp_path / "x.html").read_text().startswith("<!DOCTYPE html>")


def test_dot_text_needs_no_engine(cli, models, monkeypatch):
    monkeypatch.setattr(engines, "engines", lambda: iter(()))
    assert cli("render a.onnx -o x.dot --json").json["engine"] is None


def test_without_an_engine(cli, models, monkeypatch, tmp_path):
    monkeypatch.setattr(engines, "engines", lambda: iter(()))
    cli("render a.onnx b.onnx -o x.png").fails(2, "pip install graphviz-pure", "wrote x.dot")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.onnx", "b.onnx", "x.dot"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("render a.onnx -o x.pdf", ["x.pdf", ".svg"]),
        ("render a.onnx -o missing/x.svg", ["no folder", "missing"]),
        ("render missing.onnx -o x.svg", ["missing.onnx"]),
        ("render a.onnx -o x.svg --dot /no/dot", ["/no/dot", "leave out --dot"]),
        ("render a.onnx", ["--output"]),
    ],
)
def test_errors_are_one_line(cli, models, line, words):
    cli(line).fails(2, *words)


def test_same_names_of_two_folders(cli, write, tmp_path):
    for folder in ("p", "q"):
        (tmp_path / folder).mkdir()
        write(f"{folder}/m.onnx", inverse_model((1, 4, 4)))
    counts = cli("render p/m.onnx q/m.onnx -o x.svg --json").json["counts"]
    assert list(counts) == ["m.onnx (before)", "m.onnx (after)"]
