"""Mutation harness: not one wrong graph may be called equal to the right one.

Each mutant is a graph with a single wrong edit. The proof must refute it, or it must be a true
no-op: equal to the original in float64 on inputs of several kinds. `pytest --junitxml FILE` lists
those, each with what absorbs the edit.
"""

from collections.abc import Callable, Iterator

import numpy as np
import onnx_ir as ir
import pytest
from fixture_files import load_fixture
from mutations import mutations
from survivors import why

from gdn_ir.evaluate import evaluate
from gdn_ir.models.baseline import build_unrolled
from gdn_ir.models.reference import adversarial_inputs
from gdn_ir.optimizer import optimize
from gdn_ir.verify.equivalence import Comparison, compare
from gdn_ir.verify.proof import Verdict, prove
from gdn_ir.verify.shapes import bind

_SMALL = {"heads": 1, "head_dim": 4, "chunk": 8}
_INVERSE = (
    "no-ops,exp-mask,parallel-inverse{{{}}},scatter-to-concat,flatten-matmul,identity,"
    "fold-constants,cse,dce"
)
OPTIMIZED = {
    "fill-inf": ({"seq": 16}, None),
    "fill-zero": ({"seq": 16, "mask": "fill-zero"}, None),
    "ragged, grouped, state, l2norm": (
        {"seq": 13, "heads": 2, "key_heads": 1, "state": True, "l2norm": True}, None,
    ),
    "leaves of 4": ({"seq": 16}, _INVERSE.format("leaf=4")),
    "substitution": ({"seq": 8, "batch": 2}, _INVERSE.format("method=substitution leaf=4")),
    "doubling": ({"seq": 16}, _INVERSE.format("method=doubling")),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZED)
def test_no_wrong_edit_of_an_optimized_graph_is_accepted(name, record_property):
    size, passes = OPTIMIZED[name]
    original = build_unrolled(**{**_SMALL, **size})
    optimized, _ = optimize(original, passes=passes, verify="structure")
    harmless = check_mutants(original, optimized, _rule_inputs, 50, prove)
    record_property("harmless", harmless)
    # No-ops are few: an index that is already 0, a constant that meets a zero state.
    assert len(harmless) <= 12, harmless


def _scan() -> ir.Model:
    return bind(load_fixture("scan_tokens"), {"T": 5})


def _float16() -> ir.Model:
    return build_unrolled(**_SMALL, seq=16, dtype="float16")


def _triangles(model: ir.Model) -> Iterator[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    for scale in (0.125, 0.5):
        yield {"A": np.tril(rng.standard_normal((1, 2, 2, 64, 64)) * scale, -1)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "inputs", "count"),
    [
        (_scan, lambda model: _rule_inputs(model), 20),
        (lambda: load_fixture("ts_loop_inverse"), _triangles, 6),
        (_float16, lambda model: _rule_inputs(model), 10),
    ],
    ids=["scan", "loop", "float16"],
)
def test_no_wrong_edit_of_an_export_is_accepted(load, inputs, count, record_property):
    original = load()
    tidy, _ = optimize(original, passes="infer-shapes,fold-constants,cse,dce", verify="structure")
    harmless = check_mutants(original, tidy, inputs, count, compare)
    record_property("harmless", harmless)
    # Index arithmetic of TorchScript adds and multiplies by nothing.
    assert len(harmless) < count, harmless


def check_mutants(
    original: ir.Model,
    right: ir.Model,
    inputs: Callable[[ir.Model], Iterator[dict[str, np.ndarray]]],
    count: int,
    gate: Callable[..., Verdict | Comparison],
) -> list[str]:
    """Tries `count` valid mutants of `right` against `original`; returns the no-ops, and why."""
    assert gate(original, right).status == "PROVED"
    feeds = list(inputs(original))
    truths = _results(original, feeds)
    refuted, harmless, invalid = 0, [], 0
    for where, edit in mutations(right, np.random.default_rng(0)):
        mutant = right.clone()
        edit(mutant)
        try:
            results = _results(mutant, feeds)
        except Exception:
            invalid += 1  # no runtime accepts it either
            continue
        # A wrong seed of the algebra must not make a mutant live or die.
        if gate(original, mutant, seed=refuted).status != "PROVED":
            refuted += 1
        else:
            assert _equal(truths, results), f"accepted though wrong: {where}"
            harmless.append(f"{where}: {why(right, mutant, feeds[0])}")
        if refuted + len(harmless) == count:
            return harmless
    raise AssertionError(f"only {refuted + len(harmless)} mutants, {invalid} invalid")


def _rule_inputs(model: ir.Model) -> Iterator[dict[str, np.ndarray]]:
    """Inputs of the rule on which wrong graphs show."""
    sizes = {value.name: value.shape.numpy() for value in model.graph.inputs}
    batch, seq, heads, value_dim = sizes["v"]
    families = adversarial_inputs(
        batch=batch, seq=seq, heads=heads, key_heads=sizes["k"][2], head_dim=sizes["k"][3],
        value_dim=value_dim, state="state" in sizes, seed=1,
    )  # fmt: skip
    for name in ("random", "cosine"):
        yield {value: families[name][value] for value in sizes}


def _results(model, feeds):
    return [array for one in feeds for array in evaluate(model, one)]


def _equal(truths, results):
    return all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=1e-11, equal_nan=True)
        for a, b in zip(truths, results, strict=True)
    )
