"""What a failed run leaves behind, and that it fails again from there; bisection."""

import dataclasses
import json
from typing import ClassVar

import numpy as np
import onnx_ir as ir
import pytest
from onnx_text import model_of, ops_of, value_of

import gdn_ir
from gdn_ir import facts, optimizer, pipeline
from gdn_ir.models.baseline import build_unrolled
from gdn_ir.pass_base import CleanUp
from gdn_ir.region import Region
from gdn_ir.rewrite import Rewrite, random_samples
from gdn_ir.verify import Evidence, VerificationFailed, reproducer
from gdn_ir.verify.bisect import first_breaking_pass
from gdn_ir.verify.numeric import NumericGate

UNSAFE = {"seq": 64, "chunk": 64, "heads": 1, "head_dim": 8}
DOUBLING = "exp-mask,parallel-inverse{method=doubling}"


@dataclasses.dataclass(frozen=True)
class Negate(CleanUp):
    """Breaks the model: takes every Abs for a Neg, or leaves a node out of order."""

    name: ClassVar[str] = "negate"

    invalid: bool = False

    def clean(self, model):
        for node in model.graph:
            if node.op_type == "Abs":
                node.op_type = "Neg"
                if self.invalid:
                    invert(model)
        return True


def invert(model):
    """Moves the first node to the end, after those that need it."""
    first = model.graph[0]
    model.graph.remove(first)
    model.graph.append(first)
    return True


@pytest.fixture
def negate(monkeypatch):
    known = {**pipeline.registry(), "negate": Negate}
    monkeypatch.setattr(pipeline, "registry", lambda: known)


ABS = "g (float[2] x) => (float[2] y) { w = Identity (x) a = Abs (w) y = Exp (a) }"


def failure_of(*arguments, **options):
    with pytest.raises(VerificationFailed) as caught:
        optimizer.optimize(*arguments, **options)
    return caught.value


def test_a_rejected_region_fails_again_on_the_inputs_that_showed_it(tmp_path):
    failure = failure_of(build_unrolled(**UNSAFE), passes=DOUBLING)
    reproducer.write(tmp_path / "r", failure.evidence, str(failure), DOUBLING)
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == [
        "about.json", "after.onnx", "before.onnx", "inputs.npz", "pipeline.txt",
    ]  # fmt: skip
    assert (tmp_path / "r/pipeline.txt").read_text() == f"{DOUBLING}\n"
    again = reproducer.replay(tmp_path / "r")
    assert again.fails
    assert again.message == str(failure)
    assert again.verdict.status == "PROVED"
    assert [error.is_accepted for error in again.errors] == [False]


def test_a_refuted_rewrite_is_refuted_again_at_the_same_point(tmp_path):
    text = "g (float[3] x) => (float[3] y) { %s }"
    models = model_of(text % "y = Add (x, x)"), model_of(text % "y = Mul (x, x)")
    reproducer.write(tmp_path, Evidence("p", *models, seed=77), "it said so", "dce")
    again = reproducer.replay(tmp_path)
    assert (again.fails, again.verdict.status, again.verdict.seed) == (True, "DIFFERENT", 77)
    assert again.errors == ()


def test_what_was_mended_passes(tmp_path):
    text = "g (float[3] file) => (float[3] y) { y = Add (file, file) }"
    evidence = Evidence("p", model_of(text), model_of(text), feeds={"file": np.ones(3)})
    reproducer.write(tmp_path, evidence, "it said so", "dce")
    assert not reproducer.replay(tmp_path).fails


@pytest.mark.parametrize(
    ("invalid", "words"),
    [(False, "changed what output 'y' computes"), (True, "left an invalid graph")],
)
def test_a_pass_that_breaks_the_graph_breaks_it_again(negate, tmp_path, invalid, words):
    passes = "identity,negate{invalid=true}" if invalid else "identity,negate"
    failure = failure_of(model_of(ABS), passes=passes)
    assert words in str(failure)
    reproducer.write(tmp_path, failure.evidence, str(failure), passes)
    assert json.loads((tmp_path / "about.json").read_text())["pass"] == passes.split(",")[-1]
    assert ops_of(gdn_ir.load(tmp_path / "before.onnx").graph) == ["Abs", "Exp"]
    assert (tmp_path / "after.onnx").exists() is not invalid
    again = reproducer.replay(tmp_path)
    assert again.fails
    assert words in again.failure


def test_a_clean_up_pass_that_was_mended_passes(negate, tmp_path):
    failure = failure_of(model_of(ABS), passes="identity,negate")
    evidence = dataclasses.replace(failure.evidence, after=failure.evidence.before)
    reproducer.write(tmp_path, evidence, str(failure), "identity,negate")
    assert not reproducer.replay(tmp_path).fails


def test_an_invalid_graph_comes_again_on_the_user_s_word(negate, tmp_path, monkeypatch):
    """What was stated is part of what the pass was given."""
    monkeypatch.setattr(Negate, "clean", lambda self, model: facts.stated(model) and invert(model))
    text = "g (float[2,2] x) => (float[2,2] y) { a = Abs (x) y = Exp (a) }"
    failure = failure_of(model_of(text), passes="negate", assume=["x:strictly-lower"])
    reproducer.write(tmp_path, failure.evidence, str(failure), "negate")
    assert "left an invalid graph" in reproducer.replay(tmp_path).failure


def test_a_replacement_that_does_not_run_does_not_run_again(tmp_path):
    text = "g (float[2,3] x) => (float[2,3] y) { %s }"
    before, after = model_of(text % "y = Neg (x)"), model_of(text % "y = Reshape (x, x)")
    rewrite = Rewrite(
        "p", "y", "a Neg", before, after, (), lambda: random_samples(before.graph.inputs)
    )
    with pytest.raises(VerificationFailed) as caught:
        NumericGate().rewrote(rewrite)
    reproducer.write(tmp_path, caught.value.evidence, str(caught.value), "p")
    assert "what it made does not run" in reproducer.replay(tmp_path).failure


def test_a_folder_that_is_no_reproducer(tmp_path):
    text = "g (float[3] x) => (float[3] y) { y = Neg (x) }"
    reproducer.write(tmp_path, Evidence("p", model_of(text), model_of(text)), "m", "dce")
    (tmp_path / "about.json").unlink()
    with pytest.raises(ValueError, match="is no reproducer folder"):
        reproducer.replay(tmp_path)


# --- bisect ---


def test_the_first_pass_that_breaks_the_whole_model_is_named(negate, monkeypatch):
    """Where no check of a single pass sees it, the passes run again one by one."""
    monkeypatch.setattr(optimizer, "CanonicalCheck", optimizer.Observer)
    failure = failure_of(model_of(ABS), passes="identity,negate,dce")
    assert str(failure).startswith("numeric gate: output 'y' of the whole model differs by ")
    assert str(failure).endswith("; pass 'negate' is the first to break it")
    evidence = failure.evidence
    assert evidence.pass_text == "negate"
    assert ops_of(evidence.before.graph) == ["Abs", "Exp"]
    assert ops_of(evidence.after.graph) == ["Neg", "Exp"]
    assert set(evidence.feeds) == {"x"}


def test_nothing_to_blame():
    model = model_of(ABS)
    assert first_breaking_pass(model, pipeline.parse("identity,dce"), lambda m: False) is None
    assert ops_of(model.graph) == ["Identity", "Abs", "Exp"]


def test_a_stated_fact_goes_along_into_the_search():
    """The pass that needs it fires again, and so can be found guilty."""
    model = build_unrolled(**UNSAFE)
    region = Region.between([value_of(model, "A")], [value_of(model, "inverse")])
    bare = region.to_model(model)
    failure = failure_of(bare, passes=DOUBLING, assume=["A:strictly-lower"])
    assert "numeric gate: pass 'parallel-inverse{method=doubling}'" in str(failure)
    passes = pipeline.parse(DOUBLING)
    facts.state(bare, "A:strictly-lower")
    count = len(bare.graph)
    guilty = first_breaking_pass(bare, passes, lambda m: len(m.graph) != count)
    assert guilty.pass_text == "parallel-inverse{method=doubling}"
    assert isinstance(guilty.after, ir.Model)
