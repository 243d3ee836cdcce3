"""parallel-inverse: which chains of scatters it takes, and how exact each method is."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from fixture_files import load_fixture
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_text import ops_of
from pass_checks import before_and_after, checked, declines, error, optimized
from rule_error import assert_is_the_rule
from small_graphs import (
    SCOPES,
    annotated,
    build,
    inverse_model,
    main_and_loop,
    parse,
    row_loop,
    strictly_lower,
)

import gdn_ir
from gdn_ir import facts, pipeline, runtime
from gdn_ir.emitter import Emitter
from gdn_ir.graph_view import scopes
from gdn_ir.models.baseline import build_loop
from gdn_ir.models.reference import unit_lower_inverse
from gdn_ir.passes import _inverse_methods as methods
from gdn_ir.passes._worst_inverses import worst_inverses
from gdn_ir.verify.numeric import NumericGate

SIZES = (2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 31, 32, 33, 48, 64, 96, 100, 128, 200, 256)
METHODS = {
    "block": lambda emit, A, n, dtype: methods.block(emit, A, n, 16, dtype),
    "block-leaf-5": lambda emit, A, n, dtype: methods.block(emit, A, n, 5, dtype),
    "block-leaf-64": lambda emit, A, n, dtype: methods.block(emit, A, n, 64, dtype),
    "substitution": lambda emit, A, n, dtype: methods.substitution(emit, A, n, 16, dtype),
    "doubling": methods.doubling,
    "neumann": methods.neumann,
    "neumann-tol": lambda emit, A, n, dtype: methods.neumann_until(
        emit, A, n, 1e-4, dtype, A.dtype
    ),
}
# Of the largest number: what the small, well-behaved matrices below leave to rounding.
TOLERANCE = {np.float32: 1e-5, np.float16: 4e-3}


def small_matrices(shape, dtype):
    """Strictly lower, and so small that even a plain power series keeps its digits."""
    noise = np.random.default_rng(0).standard_normal(shape)
    return np.tril(noise / (2 * np.sqrt(shape[-1])), -1).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", SIZES)
def test_every_method_inverts(n, method, dtype):
    element = ir.DataType.from_numpy(np.dtype(dtype))
    A = ir.val("A", element, (2, n, n))
    T = ir.val("T", element, (2, n, n))
    graph = ir.Graph([A], [T], nodes=[], opset_imports={"": 20}, name="inverse")
    emit = Emitter("T", "test", opset=20)
    result = METHODS[method](emit, A, n, dtype)
    emit.insert_into(graph, [result])
    result.name, result.type, result.shape = "T", T.type, T.shape
    graph.outputs[0] = result
    matrices = small_matrices((2, n, n), dtype)
    (actual,) = runtime.run(ir.Model(graph, ir_version=10), {"A": matrices})
    assert actual.dtype == dtype
    tolerance = 1e-3 if method == "neumann-tol" and dtype == np.float32 else TOLERANCE[dtype]
    assert error(actual, unit_lower_inverse(matrices)) < tolerance


OPTIONS = ("", "{leaf=2}", "{method=substitution}", "{method=doubling}", "{method=neumann}",
           "{method=neumann tol=1e-07}")  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("scope", SCOPES)
def test_fires_in_every_scope(scope, options):
    outcome = checked(f"parallel-inverse{options}", inverse_model((2, 6, 6), scope=scope))
    (rewrite,) = outcome.rewrites
    assert rewrite.pass_text == f"parallel-inverse{options}"
    assert rewrite.found == "row-by-row inverse of [2, 6, 6], 5 serial steps"
    assert "ScatterElements" not in outcome.ops
    assert bool(rewrite.warning) == ("doubling" in options or "neumann" in options)


def test_two_by_two():
    assert checked("parallel-inverse", inverse_model((3, 2, 2))).rewrites


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("leading", [(), (1,), (3,), (2, 3), (1, 2, 2), (1, 1, 2, 2)])
def test_leading_axes_and_types(leading, dtype):
    model = inverse_model((*leading, 5, 5), dtype=dtype)
    X = np.random.default_rng(1).standard_normal((*leading, 5, 5)).astype(dtype)
    outcome = checked("parallel-inverse", model, {"X": X}, tolerance=TOLERANCE[dtype])
    (actual,) = runtime.run(outcome.model, {"X": X})
    assert error(actual, unit_lower_inverse(np.tril(X, -1))) < TOLERANCE[dtype]


@pytest.mark.parametrize("scatter", ["ScatterElements", "ScatterND"])
@pytest.mark.parametrize("eye", [True, False])
@pytest.mark.parametrize("negated", [True, False])
def test_forms_of_the_loop(negated, eye, scatter):
    model = inverse_model((2, 5, 5), negated=negated, eye=eye, scatter=scatter)
    outcome = checked("parallel-inverse", model)
    assert scatter not in outcome.ops
    X = np.random.default_rng(1).standard_normal((2, 5, 5)).astype(np.float32)
    expected = unit_lower_inverse(np.tril(-X if negated else X, -1)) - (0 if eye else np.eye(5))
    assert error(runtime.run(outcome.model, {"X": X})[0], expected) < 1e-5


@pytest.mark.parametrize("opset", [13, 14, 17, 18, 20, 21, 24])
def test_opsets(opset):
    def below(w, X):  # Trilu is of opset 14
        return w.op("Where", np.tri(5, k=-1, dtype=bool), X, np.float32(0))

    model = inverse_model((5, 5), lower=below, opset=opset)
    for options in ("{leaf=2}", "{method=neumann tol=1e-07}"):
        assert checked(f"parallel-inverse{options}", model).rewrites


@settings(deadline=None, max_examples=30)
@given(
    n=st.integers(3, 24),
    leaf=st.integers(2, 64),
    leading=st.lists(st.integers(1, 3), max_size=3).map(tuple),
    method=st.sampled_from(["block", "substitution"]),
    seed=st.integers(0, 9),
)
def test_any_size_leaf_and_leading_axes(n, leaf, leading, method, seed):
    model = inverse_model((*leading, n, n))
    outcome = optimized(f"parallel-inverse{{method={method} leaf={leaf}}}", model)
    assert len(outcome.rewrites) == 1
    X = np.random.default_rng(seed).uniform(-1, 1, (*leading, n, n)).astype(np.float32) / 2
    (actual,) = runtime.run(outcome.model, {"X": X})
    assert error(actual, unit_lower_inverse(np.tril(X, -1))) < 1e-5


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("n", [64, 128])
def test_safe_methods_are_as_exact_as_the_rows(n, dtype):
    model = inverse_model((2, n, n), dtype=dtype)
    results = {}
    with runtime.session(model) as session:
        for family, A in worst_inverses((2, n, n)):
            A = A.astype(dtype)
            exact = unit_lower_inverse(A)
            results[family] = A, exact, error(session.run(None, {"X": A})[0], exact)
    assert len(results) >= 7
    for options in ("", "{leaf=8}", "{leaf=64}", "{method=substitution}"):
        after = optimized(f"parallel-inverse{options}", model).model
        with runtime.session(after) as session:
            for family, (A, exact, rows) in results.items():
                found = error(session.run(None, {"X": A})[0], exact)
                assert found <= 4 * rows + 8 * np.finfo(dtype).eps, (options, family)


def test_gate_accepts_the_samples_of_safe_methods():
    for options in ("", "{method=substitution}"):
        gate = NumericGate()
        for rewrite in optimized(f"parallel-inverse{options}", inverse_model((2, 64, 64))).rewrites:
            gate.rewrote(rewrite)
        assert len({error.sample for error in gate.errors}) == 7


@pytest.mark.parametrize(
    "options", ["method=doubling", "method=neumann", "method=neumann tol=1e-06"]
)
def test_gate_rejects_unsafe_methods(options):
    text = f"parallel-inverse{{{options}}}"
    with pytest.raises(gdn_ir.VerificationFailed) as failure:
        gdn_ir.optimize(load_fixture("hf_fill_inf"), passes=text)
    assert f"pass '{text}'" in str(failure.value)
    assert "error grows from" in str(failure.value)


def test_unsafe_methods_come_with_a_warning():
    _, report = gdn_ir.optimize(
        inverse_model((4, 4)), passes="parallel-inverse{method=doubling}", verify="none"
    )
    assert "method=doubling loses all digits on correlated keys" in report.warnings


def test_is_a_few_nodes_at_64():
    (rewrite,) = optimized("parallel-inverse", inverse_model((1, 2, 2, 64, 64))).rewrites
    assert len(rewrite.before.graph) > 400
    assert len(rewrite.after.graph) <= 45
    assert not {"ScatterElements", "ScatterND", "Loop"} & {n.op_type for n in rewrite.after.graph}


def test_new_nodes_say_who_made_them():
    model = optimized("parallel-inverse{leaf=4}", inverse_model((5, 5))).model
    made = [n for n in model.graph if "gdn_ir.pass" in n.metadata_props]
    assert {n.metadata_props["gdn_ir.pass"] for n in made} == {"parallel-inverse{leaf=4}"}
    assert {n.op_type for n in model.graph} - {n.op_type for n in made} == {"Identity", "Trilu"}


# --- what it leaves alone, and why ---


def test_a_bare_input_is_declined():
    assert declines("parallel-inverse", inverse_model((4, 4), lower=None)) == [
        "X is not known to be strictly lower; if it is, say --assume X:strictly-lower"
    ]


@pytest.mark.parametrize("scope", ["main", "loop", "if"])
def test_a_bare_input_is_accepted_on_the_users_word(scope):
    model = inverse_model((4, 4), lower=None, scope=scope)
    facts.state(model, "X:strictly-lower")
    outcome = optimized("parallel-inverse", model)
    (rewrite,) = outcome.rewrites
    assert list(map(str, rewrite.assumes)) == ["'X' is strictly lower (stated by the user)"]
    feeds = {"X": small_matrices((4, 4), np.float32)}
    if scope == "if":
        feeds["choose"] = np.array(True)
    expected = unit_lower_inverse(feeds["X"]) * (2 if scope == "loop" else 1)
    assert error(runtime.run(outcome.model, feeds)[0], expected) < 1e-6


def test_a_stated_fact_passes_verification():
    _, report = gdn_ir.optimize(
        inverse_model((4, 4), lower=None), passes="parallel-inverse", assume=["X:strictly-lower"]
    )
    assert report.assumes == ["'X' strictly lower (stated by the user)"]


NOT_LOWER = {
    "general": lambda w, X: w.op("Neg", X),
    "with a diagonal": lambda w, X: w.op("Trilu", X, np.array(0), upper=0),
    "upper": lambda w, X: w.op("Trilu", X, np.array(1), upper=1),
    "one element too many": lambda w, X: w.op(
        "Mul", X, np.float32([[0, 0, 0, 1], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]])
    ),
    "lower by its values only": lambda w, X: w.op("Relu", strictly_lower(w, w.op("Relu", X))),
}


@pytest.mark.parametrize("lower", NOT_LOWER)
def test_not_known_to_be_lower(lower):
    (reason,) = declines("parallel-inverse", inverse_model((4, 4), lower=NOT_LOWER[lower]))
    assert "is not known to be strictly lower" in reason


LOWER = {
    "trilu": strictly_lower,
    "where": lambda w, X: w.op("Where", np.tri(4, k=-1, dtype=bool), X, np.float32(0)),
    "mask": lambda w, X: w.op("Mul", X, np.tri(4, k=-1, dtype=np.float32)),
    "negated product": lambda w, X: w.op("Neg", w.op("Mul", w.op("Exp", X), strictly_lower(w, X))),
    "seen through views": lambda w, X: w.op(
        "Reshape", w.op("Identity", w.op("Reshape", strictly_lower(w, X), [16])), [4, 4]
    ),
    "transposed upper": lambda w, X: w.op(
        "Transpose", w.op("Trilu", X, np.array(1), upper=1), perm=[1, 0]
    ),
}


@pytest.mark.parametrize("lower", LOWER)
def test_known_to_be_lower(lower):
    outcome = checked("parallel-inverse", inverse_model((4, 4), lower=LOWER[lower]))
    (fact,) = outcome.rewrites[0].assumes
    assert fact.property == "strictly-lower" and fact.basis.startswith("whatever")


@pytest.mark.parametrize("wrong_row", [2, 3, 5])
def test_one_wrong_row(wrong_row):
    # Row 1 has nothing above it but zeros; every later one matters.
    reasons = declines("parallel-inverse", inverse_model((2, 6, 6), wrong_row=wrong_row))
    assert reasons == ["the scatters do not compute (I - A)^-1"]


def test_another_input():
    def write(w, X, B):
        A = strictly_lower(w, X)
        T = w.op("ScatterND", A, [[1]], w.op("Slice", B, [1], [2], [0]))
        return row_loop(w, T, (4, 4))

    (reason,) = declines("parallel-inverse", build(write, {"X": (4, 4), "B": (4, 4)}))
    assert reason == "the scatters do not form an inverse: it also depends on 'B'"


@pytest.mark.parametrize(
    "text",
    [
        """g (float[2,2] A) => (float[2,2] y) <int64[1,2] i = {0, 0}, float[1,2] u = {1, 2}> {
          a = ScatterElements <reduction = "add"> (A, i, u)
          y = ScatterElements <reduction = "add"> (a, i, u)
        }""",
        """<ir_version: 10, opset_import: ["": 20, "other": 1]>
        g (float[2,2] A) => (float[2,2] y) <int64[1] i = {0}> {
          u = other.Row (A)
          a = ScatterND (A, i, u)
          y = ScatterND (a, i, u)
        }""",
    ],
    ids=["reduction", "foreign op"],
)
def test_ops_that_cannot_be_evaluated(text):
    assert len(declines("parallel-inverse", parse(text))) == 1


def test_a_lower_factor_that_cannot_be_evaluated():
    def lower(w, X):
        index, update = np.zeros((1, 4), np.int64), w.op("Slice", X, [0], [1], [0])
        added = w.op("ScatterElements", strictly_lower(w, X), index, update, reduction="add")
        return w.op("Neg", added)

    (reason,) = declines("parallel-inverse", inverse_model((4, 4), lower=lower))
    assert "is not known to be strictly lower" in reason


def test_too_large():
    text = """g (float[257,257] A, float[257] u) => (float[257,257] y) <int64[1] i = {0}> {
      a = ScatterND (A, i, u)
      y = ScatterND (a, i, u)
    }"""
    (reason,) = declines("parallel-inverse", parse(text))
    assert reason == "A is 257 by 257; at most 256 is supported"


def test_open_size():
    text = """g (float[B,C,C] A, float[4] u) => (float[B,C,C] y) <int64[2] i = {0, 1}> {
      a = ScatterND (A, i, u)
      y = ScatterND (a, i, u)
    }"""
    (reason,) = declines("parallel-inverse", parse(text))
    assert reason == (
        "scatters into 'A': the shape [B,C,C] of 'A' is not static; "
        "bind it with --dim, or export the model at fixed sizes"
    )


# --- Loops ---

GROWING = """g (float[B,3,3] X) => (float[B,3,3] y)
  <int64 below = {-1}, int64 two = {2}, int64[2] tail = {1, 3}, float[1,3] e = {1, 0, 0},
   float[3,3] eye = {1,0,0, 0,1,0, 0,0,1}> {
  A = Trilu <upper = 0> (X, below)
  s = Shape <start = 0, end = 1> (A)
  whole = Concat <axis = 0> (s, tail)
  first = Expand (e, whole)
  y = Loop (two, , first) <body = b (int64 i, bool go, float[B,N,3] T) => (bool on, float[B,M,3] U)
    <int64[1] one = {1}, int64[1] zero = {0}, int64[1] two_ = {2}> {
    on = Identity (go)
    next = Add (i, one)
    end = Add (next, one)
    row = Slice (A, next, end, one)
    known = Slice (row, zero, next, two_)
    product = MatMul (known, T)
    own = Gather <axis = 0> (eye, next)
    sum = Add (product, own)
    U = Concat <axis = 1> (T, sum)
  }>
}"""


def test_rows_of_a_loop():
    model = load_fixture("ts_loop_inverse")
    assumed, report = gdn_ir.optimize(model, assume=["A:strictly-lower"])
    assert ops_of(assumed.graph).count("Loop") == 0
    (proof,) = [p for p in report.proofs if p.pass_text == "parallel-inverse"]
    assert proof.verdict.status == "PROVED"
    left, report = gdn_ir.optimize(model)
    assert ops_of(left.graph).count("Loop") == 1
    reasons = [declined.reason for record in report.passes for declined in record.declined]
    assert reasons == [
        "A is not known to be strictly lower; if it is, say --assume A:strictly-lower"
    ]


@pytest.mark.parametrize("seq", [None, 40])
@pytest.mark.parametrize("inverse", ["rows", "blocks"])
def test_rows_of_a_loop_in_a_rule(seq, inverse):
    model = build_loop(seq=seq, chunk=16, heads=1, head_dim=4, inverse=inverse)
    optimized, report = gdn_ir.optimize(model)
    assert ops_of(optimized.graph).count("Loop") == 1, "that over the chunks"
    found = [r.found for record in report.passes for r in record.rewrites]
    assert any(text.startswith("row-by-row inverse of [1, 1, ") for text in found)
    assert {proof.verdict.status for proof in report.proofs} == {"PROVED"}
    assert_is_the_rule(optimized, {"heads": 1, "head_dim": 4}, 40)


def test_rows_that_grow_from_a_captured_matrix():
    X = np.random.default_rng(0).standard_normal((2, 3, 3)).astype(np.float32)
    outcome = checked("parallel-inverse", parse(GROWING), {"X": X})
    (rewrite,) = outcome.rewrites
    assert rewrite.found == "row-by-row inverse of [?, 3, 3], 2 serial steps"
    (actual,) = runtime.run(outcome.model, {"X": X})
    assert error(actual, unit_lower_inverse(np.tril(X, -1))) < 1e-6


def test_a_loop_of_something_else():
    text = GROWING.replace("sum = Add (product, own)", "sum = Mul (own, product)")
    assert declines("parallel-inverse", parse(text)) == ["the Loop does not compute (I - A)^-1"]


@pytest.mark.parametrize(
    "text",
    [
        # Not square; one scatter only; into a constant; no scatter at all.
        """g (float[3,4] A, float[4] u) => (float[3,4] y) <int64[1] i = {0}> {
          a = ScatterND (A, i, u) y = ScatterND (a, i, u) }""",
        """g (float[3,3] A, float[3] u) => (float[3,3] y) <int64[1] i = {0}> {
          y = ScatterND (A, i, u) }""",
        """g (float[2] u) => (float[2,2] y) <float[2,2] A = {0, 0, 0, 0}, int64[1] i = {0}> {
          a = ScatterND (A, i, u) y = ScatterND (a, i, u) }""",
        "g (float[3,3] A) => (float[3,3] y) { y = Trilu <upper = 0> (A) }",
    ],
)
def test_other_graphs_are_passed_over_in_silence(text):
    assert declines("parallel-inverse", parse(text)) == []


# --- other uses of what it replaces ---


def test_an_intermediate_that_is_an_output():
    def write(w, X):
        T = row_loop(w, strictly_lower(w, X), (2, 5, 5), eye=False)
        halfway = next(n.output[0] for n in w.nodes if n.op_type == "ScatterElements")
        return {"y": T, "halfway": halfway, "plus": w.op("Exp", halfway)}

    outcome = checked("parallel-inverse", build(write, {"X": (2, 5, 5)}))
    assert len(outcome.rewrites) == 1
    assert outcome.ops["ScatterElements"] == 1


def test_the_inverse_used_with_and_without_identity():
    def write(w, X):
        T = row_loop(w, strictly_lower(w, X), (5, 5), eye=False)
        return {"y": T, "z": w.op("Add", T, np.eye(5, dtype=np.float32))}

    outcome = checked("parallel-inverse", build(write, {"X": (5, 5)}))
    assert "ScatterElements" not in outcome.ops


def test_two_inverses_of_one_matrix_and_one_of_the_other():
    def write(w, X):
        A = strictly_lower(w, X)
        first = row_loop(w, A, (4, 4))
        return {"y": first, "z": row_loop(w, A, (4, 4), negated=True),
                "last": row_loop(w, strictly_lower(w, first), (4, 4))}  # fmt: skip

    assert len(checked("parallel-inverse", build(write, {"X": (4, 4)})).rewrites) == 3


def test_main_graph_and_body_at_once():
    model = main_and_loop(
        lambda w, X: [row_loop(w, strictly_lower(w, X), (4, 4))],
        lambda w, total, T: row_loop(w, strictly_lower(w, w.op("Mul", total, T)), (4, 4)),
        {"X": (4, 4)},
        (4, 4),
    )
    outcome = checked("parallel-inverse", model)
    assert len(outcome.rewrites) == 2
    assert "ScatterElements" not in outcome.ops
    # onnx_ir numbers new values from 0 in each scope; ours are named after what they replace.
    names = [v.name for graph in scopes(outcome.model) for n in graph for v in n.outputs]
    assert len(names) == len(set(names))


def test_a_body_whose_constants_are_nodes_outside():
    proto = ir.to_proto(inverse_model((4, 4), scope="loop"))
    body = proto.graph.node[0].attribute[0].g
    nodes = [onnx.helper.make_node("Constant", [], [t.name], value=t) for t in body.initializer]
    del body.initializer[:]
    for node in reversed(nodes):
        proto.graph.node.insert(0, node)
    assert checked("parallel-inverse", annotated(proto)).rewrites


def test_identity_added_in_a_body():
    model = main_and_loop(
        lambda w, X: [row_loop(w, strictly_lower(w, X), (4, 4), eye=False)],
        lambda w, total, T: w.op("Add", T, np.eye(4, dtype=np.float32)),
        {"X": (4, 4)},
        (4, 4),
    )
    assert "ScatterElements" not in checked("parallel-inverse", model).ops


# --- options ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("leaf=1", "option 'leaf' is between 2 and 256, not 1"),
        ("leaf=257", "option 'leaf' is between 2 and 256, not 257"),
        ("tol=1e-3", "option 'tol' is positive and goes with method=neumann"),
        ("method=neumann tol=-1", "option 'tol' is positive and goes with method=neumann"),
        ("method=nuemann", "did you mean 'neumann'?"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(gdn_ir.BadPipeline) as failure:
        pipeline.parse(f"parallel-inverse{{{options}}}")
    assert message in str(failure.value)


def test_golden(golden):
    golden("parallel-inverse.txt").check(
        before_and_after("parallel-inverse{leaf=2}", inverse_model((4, 4)))
    )
