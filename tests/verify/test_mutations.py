"""Mutation harness: not one wrong graph may be called equal to the right one.

Each mutant is an optimized graph with a single wrong edit. The proof must refute it, or it must be
a true no-op: equal to the original in float64 on inputs of several kinds.
"""

import numpy as np
import pytest
from mutations import mutations

from gdn_ir.evaluate import evaluate
from gdn_ir.models.baseline import build_unrolled
from gdn_ir.models.reference import adversarial_inputs
from gdn_ir.optimizer import optimize
from gdn_ir.verify.proof import prove

_SMALL = {"heads": 1, "head_dim": 4, "chunk": 8}
_INVERSE = (
    "no-ops,exp-mask,parallel-inverse{{{}}},scatter-to-concat,flatten-matmul,identity,"
    "fold-constants,cse,dce"
)
GRAPHS = {
    "fill-inf": ({"seq": 16}, None),
    "fill-zero": ({"seq": 16, "mask": "fill-zero"}, None),
    "ragged, grouped, state, l2norm": (
        {"seq": 13, "heads": 2, "key_heads": 1, "state": True, "l2norm": True}, None,
    ),
    "leaves of 4": ({"seq": 16}, _INVERSE.format("leaf=4")),
    "substitution": ({"seq": 8, "batch": 2}, _INVERSE.format("method=substitution leaf=4")),
    "doubling": ({"seq": 16}, _INVERSE.format("method=doubling")),
}  # fmt: skip
MUTANTS = 60


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_no_wrong_graph_is_accepted(name, record_property):
    size, passes = GRAPHS[name]
    original = build_unrolled(**{**_SMALL, **size})
    optimized, _ = optimize(original, passes=passes, verify="structure")
    assert prove(original, optimized).status == "PROVED"
    truths = _results(original, original)
    refuted, harmless, invalid = 0, [], 0
    for where, edit in mutations(optimized, np.random.default_rng(0)):
        mutant = optimized.clone()
        edit(mutant)
        try:
            results = _results(original, mutant)
        except Exception:
            invalid += 1  # no runtime accepts it either
            continue
        # A wrong seed of the algebra must not make a mutant live or die.
        verdict = prove(original, mutant, seed=refuted)
        if verdict.status != "PROVED":
            refuted += 1
        else:
            assert _equal(truths, results), f"accepted though wrong: {where}"
            harmless.append(where)
        if refuted + len(harmless) == MUTANTS:
            break
    record_property("harmless", harmless)
    assert refuted + len(harmless) == MUTANTS, f"only {refuted + len(harmless)} valid mutants"
    # No-ops are few: an index that is already 0, a constant that meets a zero state.
    assert len(harmless) <= MUTANTS // 4, harmless


def _results(original, model):
    """float64 outputs on inputs where wrong graphs show."""
    sizes = {value.name: value.shape.numpy() for value in original.graph.inputs}
    batch, seq, heads, value_dim = sizes["v"]
    families = adversarial_inputs(
        batch=batch, seq=seq, heads=heads, key_heads=sizes["k"][2], head_dim=sizes["k"][3],
        value_dim=value_dim, state="state" in sizes, seed=1,
    )  # fmt: skip
    chosen = [families[name] for name in ("random", "cosine")]
    return [
        array
        for inputs in chosen
        for array in evaluate(model, {name: inputs[name] for name in sizes})
    ]


def _equal(truths, results):
    return all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=1e-11, equal_nan=True)
        for a, b in zip(truths, results, strict=True)
    )
