"""Which Graphviz lays out, and what is said where none does."""

import shutil
import sys

import pytest
from small_graphs import inverse_model

import gdn_ir
from gdn_ir.visualizations import engines
from gdn_ir.visualizations.engines import NoPicture

ENGINES = {engine.name: engine for engine in engines.engines()}


def small_baseline():
    return inverse_model((1, 3, 3))


def test_without_an_engine_the_text_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(engines, "engines", lambda: iter(()))
    with pytest.raises(NoPicture, match=r"pip install graphviz-pure; wrote x\.dot in its place"):
        gdn_ir.render(small_baseline(), output=tmp_path / "x.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["x.dot"]
    assert (tmp_path / "x.dot").read_text().startswith("digraph")


def test_an_engine_that_fails_is_passed_over(tmp_path, monkeypatch):
    broken = engines._program("broken", tmp_path / "missing")
    monkeypatch.setattr(engines, "engines", lambda: [broken, next(iter(ENGINES.values()))])
    assert gdn_ir.render(small_baseline(), output=tmp_path / "x.svg").engine in ENGINES
    monkeypatch.setattr(engines, "engines", lambda: [broken])
    with pytest.raises(NoPicture, match=r"broken .* does not run"):
        gdn_ir.render(small_baseline(), output=tmp_path / "x.svg")


@pytest.mark.skipif(shutil.which("dot") is None, reason="no system dot")
def test_the_systems_dot(tmp_path):
    picture = gdn_ir.render(small_baseline(), output=tmp_path / "x.png", dot=shutil.which("dot"))
    assert picture.engine == "--dot"
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_a_named_program_is_used_and_no_other(tmp_path):
    picture = gdn_ir.render(small_baseline(), output=tmp_path / "x.svg", dot=engines._pure())
    assert picture.engine == "--dot"
    with pytest.raises(NoPicture, match=r"--dot .* failed: no output"):
        gdn_ir.render(small_baseline(), output=tmp_path / "x.svg", dot=shutil.which("true"))


def test_an_engine_that_takes_too_long(tmp_path, monkeypatch):
    slow = tmp_path / "slow"
    slow.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(60)\n")
    slow.chmod(0o755)
    monkeypatch.setattr(engines, "_TIMEOUT_SECONDS", 0.5)
    with pytest.raises(NoPicture, match=r"took more than 0\.5 s; wrote x\.dot"):
        gdn_ir.render(small_baseline(), output=tmp_path / "x.svg", dot=slow)


def test_a_named_program_must_be_there(tmp_path):
    with pytest.raises(NoPicture, match="there is no program /no/dot"):
        gdn_ir.render(small_baseline(), output=tmp_path / "x.svg", dot="/no/dot")
