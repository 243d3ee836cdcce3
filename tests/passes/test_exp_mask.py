"""exp-mask: which decays it takes, what becomes of their uses, and how exact it is."""

import networkx as nx
import numpy as np
import pytest
from fixture_files import load_fixture
from pass_checks import before_and_after, checked, declines, error, optimized
from rule_error import rule_errors
from small_graphs import SCOPES, build, decay, main_and_loop, parse

import gdn_ir
from gdn_ir import runtime
from gdn_ir.graph_view import node_graph, scopes
from gdn_ir.models.baseline import build_unrolled
from gdn_ir.models.reference import adversarial_inputs, recurrence
from gdn_ir.verify.numeric import NumericGate
from gdn_ir.wording import counted

DECAYS = ("segment", "difference")
BEFORE_EXP = ("where", "trilu", "add", "nothing")
AFTER_EXP = {
    "trilu": lambda w, x, k: w.op("Trilu", x, np.array(k), upper=0),
    "where": lambda w, x, k: w.op("Where", np.tri(4, k=k, dtype=bool), x, np.float32(0)),
    "where-not": lambda w, x, k: w.op("Where", ~np.tri(4, k=k, dtype=bool), np.float32(0), x),
    "product": lambda w, x, k: w.op("Mul", np.tri(4, k=k, dtype=np.float32), x),
}


def trilu(w, x, k=0):
    return AFTER_EXP["trilu"](w, x, k)


def exact_decay(g):
    """exp(G_i - G_j) on and below the diagonal, summed over the segment, in float64."""
    C = g.shape[-1]
    terms = np.where(np.tri(C, k=-1, dtype=bool), g[..., :, None].astype(np.float64), 0)
    return np.tril(np.exp(np.cumsum(terms, axis=-2)))


def two_uses(shape, before_exp="where", after_exp="trilu", **options):
    """y = strict part of x * decay + causal part of decay * x, the two uses that GDN has."""

    def write(w, g, x):
        E, mask = decay(w, g, shape, before_exp), AFTER_EXP[after_exp]
        strict = mask(w, w.op("Mul", x, E), -1)
        return w.op("Add", strict, mask(w, w.op("Mul", E, x), 0))

    return build(write, {"g": shape, "x": (*shape, shape[-1])}, **options)


def masks_after_exp(model):
    """Ops that cut a triangle after an exp."""
    found = []
    for graph in scopes(model):
        view = node_graph(graph)
        exps = [node for node in graph if node.op_type == "Exp"]
        later = set().union(*(nx.descendants(view, node) for node in exps))
        found += [node.op_type for node in later if node.op_type in ("Trilu", "Where")]
    return found


@pytest.mark.parametrize("option", DECAYS)
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("after_exp", AFTER_EXP)
@pytest.mark.parametrize("before_exp", BEFORE_EXP)
def test_masks_of_every_kind_in_every_scope(before_exp, after_exp, scope, option):
    model = two_uses((2, 4), before_exp, after_exp, scope=scope)
    outcome = checked(f"exp-mask{{decay={option}}},dce", model)
    (rewrite,) = outcome.rewrites
    assert rewrite.found == "causal decay [2, 4, 4], 2 uses, 2 masks after the exp"
    assert masks_after_exp(outcome.model) == []
    ops = outcome.ops
    assert (ops["Exp"], ops["Trilu"]) == (1, 0)
    # x * E twice; the 0/1 masks and the fill of -inf went.
    assert (ops["Mul"], ops["Where"]) == (2, 1 if option == "segment" else 0)


@pytest.mark.parametrize("leading", [(), (1,), (3,), (2, 3), (1, 2, 3)])
def test_leading_axes(leading):
    assert len(checked("exp-mask", two_uses((*leading, 4))).rewrites) == 1


@pytest.mark.parametrize("opset", [13, 14, 18, 21, 24])
def test_opsets(opset):
    model = two_uses((2, 4), "add", "where", opset=opset)
    assert checked("exp-mask", model).rewrites


def test_float64():
    def write(w, g):
        return trilu(w, decay(w, g, (2, 4), "where", np.float64))

    assert checked(
        "exp-mask", build(write, {"g": (2, 4)}, dtype=np.float64), tolerance=1e-14
    ).rewrites


@pytest.mark.parametrize("lowest", [0.0, -0.1, -5.0, -167.0])
def test_the_segment_sum_is_exact_at_every_decay(lowest):
    def write(w, g):
        return decay(w, g, (2, 64), "where")

    model = build(write, {"g": (2, 64)})
    g = np.random.default_rng(0).uniform(lowest, 0, (2, 64)).astype(np.float32)
    errors = {}
    for option in DECAYS:
        after = optimized(f"exp-mask{{decay={option}}}", model).model
        errors[option] = error(runtime.run(after, {"g": g})[0], exact_decay(g))
    assert errors["segment"] < 1e-6
    if lowest == -167.0:
        assert errors["difference"] > 5 * errors["segment"]


def test_gate_accepts_the_samples():
    gate = NumericGate()
    for option in DECAYS:
        for rewrite in optimized(f"exp-mask{{decay={option}}}", two_uses((2, 4))).rewrites:
            gate.rewrote(rewrite)
    assert {e.sample for e in gate.errors} >= {"no decay", "log-decay to -167"}


# --- the whole rule ---

CASES = {
    "state": {"state": True},
    "ragged-state": {"seq": 40, "state": True, "chunk": 16},
    "gqa": {"heads": 4, "key_heads": 2, "chunk": 16, "seq": 32},
    "l2norm-wide-values": {"l2norm": True, "value_dim": 48, "chunk": 16, "seq": 32, "state": True},
    "narrow-values-batch": {"batch": 2, "seq": 20, "value_dim": 8, "chunk": 8},
    "float16": {"dtype": "float16", "seq": 40, "state": True, "chunk": 16},
}
SHAPE_ARGUMENTS = ("batch", "seq", "heads", "key_heads", "head_dim", "value_dim", "state")


def families_of(case):
    return adversarial_inputs(**{n: case[n] for n in SHAPE_ARGUMENTS if n in case})


@pytest.mark.parametrize("option", DECAYS)
@pytest.mark.parametrize("mask", ["fill-inf", "fill-zero"])
@pytest.mark.parametrize("name", CASES)
def test_rule_is_as_exact_as_before(name, mask, option):
    case = CASES[name]
    model = build_unrolled(mask=mask, **case)
    outcome = checked(f"exp-mask{{decay={option}}},dce", model, tolerance=1e-5)
    assert masks_after_exp(outcome.model) == []
    assert outcome.reasons == []
    l2norm = case.get("l2norm", False)
    before = rule_errors(model, families_of(case), l2norm=l2norm)
    for family, after in rule_errors(outcome.model, families_of(case), l2norm=l2norm).items():
        assert after <= 4 * before[family] + 1e-6, family


@pytest.mark.parametrize("mask", ["fill-inf", "fill-zero"])
def test_segment_mends_strong_decay(mask):
    model = build_unrolled(mask=mask, state=True)
    families = {"strong_decay": adversarial_inputs(state=True)["strong_decay"]}
    errors = {
        option: rule_errors(optimized(f"exp-mask{{decay={option}}}", model).model, families)
        for option in DECAYS
    }
    assert errors["segment"]["strong_decay"] < errors["difference"]["strong_decay"] / 5


@pytest.mark.parametrize("option", DECAYS)
@pytest.mark.parametrize(
    ("name", "case", "masks"),
    [
        ("hf_fill_inf", {}, 1),
        ("hf_fill_inf_gqa_ragged_state", {"seq": 100, "key_heads": 1, "state": True}, 1),
        ("hf_fill_zero", {}, 4),
    ],
)
def test_exports(name, case, masks, option):
    model = load_fixture(name)
    outcome = checked(f"exp-mask{{decay={option}}},dce", model, tolerance=1e-5)
    assert f"{counted(masks, 'mask')} after the exp" in outcome.rewrites[0].found
    assert masks_after_exp(outcome.model) == []
    l2norm = name == "hf_fill_inf_gqa_ragged_state"
    before = rule_errors(model, families_of(case), l2norm=l2norm)
    for family, after in rule_errors(outcome.model, families_of(case), l2norm=l2norm).items():
        assert after <= 4 * before[family] + 1e-6, family


@pytest.mark.parametrize("mask", ["fill-inf", "fill-zero"])
def test_a_log_decay_of_minus_infinity(mask):
    # It empties the state. The difference of two prefix sums is then -inf - -inf, NaN.
    model = build_unrolled(mask=mask, seq=40, chunk=16, state=True)
    x = adversarial_inputs(seq=40, state=True)["random"]
    x["g"][:, ::7] = -np.inf
    feeds = {name: array.astype(np.float32) for name, array in x.items()}
    expected = recurrence(**x)

    def outputs(text):
        return runtime.run(optimized(text, model).model, feeds)

    for actual, exact in zip(outputs("exp-mask"), expected, strict=True):
        assert error(actual, exact) < 1e-6
    for text in ("exp-mask{decay=difference}", "dce"):
        assert all(np.isnan(actual).any() for actual in outputs(text))


# --- uses ---


def test_an_unmasked_use_is_declined_and_kept():
    def write(w, g, x):
        E = decay(w, g, (2, 4), "trilu")
        return {"y": trilu(w, w.op("Mul", E, x)), "z": w.op("MatMul", E, x, name="product")}

    outcome = checked("exp-mask", build(write, {"g": (2, 4), "x": (2, 4, 4)}))
    assert [rewrite.found for rewrite in outcome.rewrites] == [
        "causal decay [2, 4, 4], 1 use, 1 mask after the exp"
    ]
    assert outcome.reasons == ["'exp_5' uses it above the diagonal; mask it there"]
    assert outcome.ops["Exp"] == 2


def test_nothing_but_an_unmasked_use():
    model = build(lambda w, g: decay(w, g, (2, 4), "nothing"), {"g": (2, 4)})
    assert declines("exp-mask", model) == ["'exp_4' uses it above the diagonal; mask it there"]


def test_a_decay_that_is_an_output():
    # E itself is an output, without an Identity after it, and goes on to be cut.
    text = """g (float[4] g, float[4,4] x) => (float[4,4] E, float[4,4] y)
      <int64 axis = {0}, int64[1] row = {0}, int64[1] column = {1}, int64 strict = {-1},
       float[4,4] mask = {0, -inf, -inf, -inf, 0, 0, -inf, -inf, 0, 0, 0, -inf, 0, 0, 0, 0}> {
      G = CumSum (g, axis)
      to = Unsqueeze (G, column)
      from = Unsqueeze (G, row)
      D = Sub (to, from)
      causal = Add (D, mask)
      E = Exp (causal)
      p = Mul (E, x)
      y = Trilu <upper = 0> (p, strict)
    }"""
    (rewrite,) = checked("exp-mask", parse(text)).rewrites
    assert [value.name for value in rewrite.after.graph.outputs] == ["E", "y"]


PICKS = {
    "gather": lambda w, E: w.op("Gather", E, np.array(1), axis=0),
    "slice": lambda w, E: w.op("Slice", E, [1], [3], [0]),
    "reshape": lambda w, E: w.op("Reshape", E, [1, 3, 4, 4]),
    "slice-squeeze": lambda w, E: w.op("Squeeze", w.op("Slice", E, [1], [2], [0]), [0]),
    "leading-block": lambda w, E: w.op("Slice", E, [0, 0], [3, 3], [1, 2]),
}


@pytest.mark.parametrize("option", DECAYS)
@pytest.mark.parametrize("pick", PICKS)
def test_picks_before_the_mask(pick, option):
    def write(w, g):
        return trilu(w, PICKS[pick](w, decay(w, g, (3, 4), "trilu")))

    outcome = checked(f"exp-mask{{decay={option}}},dce", build(write, {"g": (3, 4)}))
    assert outcome.ops["Trilu"] == 0


@pytest.mark.parametrize(
    "pick",
    [
        lambda w, E: w.op("Slice", E, [1, 0], [4, 3], [1, 2]),
        lambda w, E: w.op("Gather", E, [3, 2, 1, 0], axis=1),
    ],
    ids=["one row down", "rows reversed"],
)
def test_picks_that_move_the_diagonal(pick):
    # The cut is triangular where it stands, but not in the decay that it was picked from.
    def write(w, g):
        return trilu(w, pick(w, decay(w, g, (3, 4), "nothing")))

    checked("exp-mask", build(write, {"g": (3, 4)}))


FACTORS = {
    "twice the same": lambda w, E, x: w.op(
        "Add", trilu(w, w.op("Mul", E, x)), trilu(w, w.op("Mul", E, x), -1)
    ),
    "the decay itself": lambda w, E, x: trilu(w, w.op("Mul", E, E)),
    "made from the decay": lambda w, E, x: trilu(w, w.op("Mul", E, w.op("Relu", E))),
    "made from the use before": lambda w, E, x: trilu(
        w, w.op("Mul", E, w.op("Relu", trilu(w, w.op("Mul", E, x))))
    ),
    "two in a row": lambda w, E, x: trilu(w, w.op("Mul", w.op("Mul", E, x), w.op("Relu", x))),
    "broadcast": lambda w, E, x: trilu(w, w.op("Mul", E, w.op("Unsqueeze", x, [0]))),
    "mask on both sides": lambda w, E, x: trilu(w, w.op("Mul", trilu(w, E, -1), x)),
}


@pytest.mark.parametrize("before_exp", BEFORE_EXP)
@pytest.mark.parametrize("factor", FACTORS)
def test_factors(factor, before_exp):
    def write(w, g, x):
        return FACTORS[factor](w, decay(w, g, (2, 4), before_exp), x)

    checked("exp-mask", build(write, {"g": (2, 4), "x": (2, 4, 4)}))


def test_captured_log_decays_and_a_second_decay_in_the_body():
    model = main_and_loop(
        lambda w, g: [g, trilu(w, decay(w, g, (4,), "where"), -1)],
        lambda w, total, g, E: trilu(
            w, w.op("Mul", w.op("Add", total, E), decay(w, g, (4,), "trilu"))
        ),
        {"g": (4,)},
        (4, 4),
    )
    outcome = checked("exp-mask", model)
    assert len(outcome.rewrites) == 2


@pytest.mark.parametrize("masked_outside_too", [False, True])
def test_a_decay_masked_in_a_body(masked_outside_too):
    def outside(w, g):
        E = decay(w, g, (4,), "trilu")
        return [E, trilu(w, E, -1) if masked_outside_too else E]

    def inside(w, total, E, other):
        masked = trilu(w, w.op("Mul", total, E))
        return w.op("Add", masked, other) if masked_outside_too else masked

    checked("exp-mask", main_and_loop(outside, inside, {"g": (4,)}, (4, 4)))


# --- what it leaves alone, and why ---


def from_difference(w, g, change=lambda w, D: D, axis=1, **options):
    G = w.op("CumSum", g, np.array(axis), **options)
    D = w.op("Sub", w.op("Unsqueeze", G, [2]), w.op("Unsqueeze", G, [1]))
    return trilu(w, w.op("Exp", change(w, D)))


NOT_A_DECAY = {
    "scaled": lambda w, g: from_difference(w, g, lambda w, D: w.op("Mul", D, np.float32(2))),
    "shifted": lambda w, g: from_difference(w, g, lambda w, D: w.op("Add", D, np.float32(1))),
    "the other sign": lambda w, g: from_difference(
        w, g, lambda w, D: w.op("Mul", D, np.float32(-1))
    ),
    "clamped": lambda w, g: from_difference(w, g, lambda w, D: w.op("Min", D, np.float32(0))),
    "reverse": lambda w, g: from_difference(w, g, reverse=1),
    "exclusive": lambda w, g: from_difference(w, g, exclusive=1),
    "another axis": lambda w, g: from_difference(w, g, axis=0),
}


@pytest.mark.parametrize("name", NOT_A_DECAY)
def test_not_a_decay(name):
    (reason,) = declines("exp-mask", build(NOT_A_DECAY[name], {"g": (4, 4)}))
    assert reason == "it is not exp(G_i - G_j) of the prefix sums G of 'g'"


def test_another_input_before_the_exp():
    def write(w, g, t):
        return from_difference(w, g, lambda w, D: w.op("Mul", D, t))

    (reason,) = declines("exp-mask", build(write, {"g": (4, 4), "t": (1,)}))
    assert reason.startswith("it is not a function of the log-decays 'g' alone: ")
    assert "'t'" in reason


PASSED_OVER = {
    "no prefix sum": "g (float[4,4] x) => (float[4,4] y) { e = Exp (x) y = Trilu <upper = 0> (e) }",
    "square by chance": """g (float[2,4,4] g) => (float[2,4,4] y) <int64 axis = {2}> {
      G = CumSum (g, axis) e = Exp (G) y = Trilu <upper = 0> (e) }""",
    "not square": """g (float[2,4] g) => (float[2,4] y) <int64 axis = {1}> {
      G = CumSum (g, axis) y = Exp (G) }""",
}


@pytest.mark.parametrize("name", PASSED_OVER)
def test_other_graphs_are_passed_over_in_silence(name):
    assert declines("exp-mask", parse(PASSED_OVER[name])) == []


def test_an_open_number_of_chunks():
    text = """g (float[B,4] g) => (float[B,4,4] y)
      <int64 axis = {1}, int64[1] row = {1}, int64[1] column = {2}> {
      G = CumSum (g, axis) to = Unsqueeze (G, column) from = Unsqueeze (G, row)
      D = Sub (to, from) e = Exp (D) y = Trilu <upper = 0> (e) }"""
    feeds = {"g": -np.arange(12, dtype=np.float32).reshape(3, 4)}
    (rewrite,) = checked("exp-mask", parse(text), feeds).rewrites
    assert rewrite.found.startswith("causal decay [?, 4, 4], 1 use")
    _, report = gdn_ir.optimize(parse(text), passes="exp-mask", verify="proof")
    assert [proof.verdict.status for proof in report.proofs] == ["PROVED"]


# --- differences to the last prefix sum ---


def to_the_end(w, g, *, last="slice", exp=True, axis=1):
    G = w.op("CumSum", g, np.array(1))
    if last == "slice":
        end = w.op("Slice", G, [-1], [2**62], [1])
    else:
        end = w.op("Unsqueeze", w.op("Gather", G, np.array(-1), axis=1), [1])
    rest = w.op("Sub", end, G)
    return w.op("Exp", rest) if exp else rest


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("exp", [True, False])
@pytest.mark.parametrize("last", ["slice", "gather"])
def test_suffix_sums(last, exp, scope):
    def write(w, g):
        return to_the_end(w, g, last=last, exp=exp)

    outcome = checked("exp-mask,dce", build(write, {"g": (2, 5)}, scope=scope))
    assert [rewrite.found for rewrite in outcome.rewrites] == [
        "1 difference of prefix sums, G_last - G_i"
    ]
    assert outcome.ops["Sub"] == 0


def test_suffix_sums_of_one_chunk_and_of_several_uses():
    def write(w, g):
        G = w.op("CumSum", g, np.array(1))
        chunk = w.op("Gather", G, np.array(1), axis=0)
        rest = w.op("Sub", w.op("Slice", chunk, [4], [5], [0]), chunk)
        everywhere = w.op("Sub", w.op("Slice", G, [4], [5], [1]), G)
        return {"y": w.op("Exp", rest), "rest": rest, "all": w.op("Exp", everywhere), "G": G}

    outcome = checked("exp-mask,dce", build(write, {"g": (3, 5)}))
    assert [rewrite.found for rewrite in outcome.rewrites] == [
        "2 differences of prefix sums, G_last - G_i"
    ]


def test_suffix_sums_mend_strong_decay():
    # Near the end the decay is mild, but the prefix sums there are those of all before.
    model = build(to_the_end, {"g": (2, 64)})
    g = np.random.default_rng(0).uniform(-167, 0, (2, 64)).astype(np.float32)
    g[:, -8:] /= 1000
    exact = np.exp(np.cumsum(g[:, ::-1].astype(np.float64), axis=1)[:, ::-1] - g)
    after = optimized("exp-mask", model).model
    errors = [error(runtime.run(m, {"g": g})[0], exact) for m in (model, after)]
    assert errors[1] < 1e-6 < errors[0] / 5


@pytest.mark.parametrize(
    "write",
    [
        lambda w, g: w.op("Exp", w.op("Sub", w.op("Slice", g, [4], [5], [1]), g)),
        lambda w, g: (lambda G: w.op("Sub", w.op("Slice", G, [0], [1], [1]), G))(
            w.op("CumSum", g, np.array(1))
        ),
        lambda w, g: (lambda G: w.op("Sub", w.op("Slice", G, [4], [5], [1]), G))(
            w.op("CumSum", g, np.array(1), exclusive=1)
        ),
        lambda w, g: (lambda G: w.op("Sub", G, w.op("Slice", G, [4], [5], [1])))(
            w.op("CumSum", g, np.array(1))
        ),
    ],
    ids=["no prefix sum", "to the first", "exclusive", "the other sign"],
)
def test_other_differences_are_left_alone(write):
    assert declines("exp-mask", build(write, {"g": (2, 5)})) == []


def test_differences_stay_with_the_option():
    assert declines("exp-mask{decay=difference}", build(to_the_end, {"g": (2, 5)})) == []


def test_a_suffix_sum_in_a_body():
    def outside(w, g):
        G = w.op("CumSum", g, np.array(0))
        return [G, w.op("Slice", G, [3], [4], [0])]

    model = main_and_loop(
        outside, lambda w, total, G, last: w.op("Exp", w.op("Sub", last, G)), {"g": (4,)}, (4,)
    )
    checked("exp-mask", model)


def test_an_axis_of_one_element():
    def write(w, g):
        G = w.op("CumSum", g, [1])
        D = w.op("Sub", w.op("Unsqueeze", G, [2]), w.op("Unsqueeze", G, [1]))
        return trilu(w, w.op("Exp", D))

    checked("exp-mask", build(write, {"g": (2, 4)}))


@pytest.mark.parametrize("option", DECAYS)
def test_golden(golden, option):
    golden(f"exp-mask-{option}.txt").check(
        before_and_after(f"exp-mask{{decay={option}}}", two_uses((2, 4), "trilu"))
    )
