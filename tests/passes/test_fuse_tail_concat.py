"""fuse-tail-concat: what is done alike to several tiles is done once, side by side."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from pass_checks import before_and_after, checked, declines, optimized
from rule_error import assert_is_the_rule
from small_graphs import annotated, inverse_model, parse

import gdn_ir
from gdn_ir.models.baseline import build_rule
from gdn_ir.models.rule_form import RuleForm
from gdn_ir.verify.shapes import prove_at_shapes
from gdn_ir.visualizations.counts import count

PASS = "fuse-tail-concat"
FORM = RuleForm("unrolled", inverse="blocks", chunk=128)
CASE = {"heads": 1, "key_heads": 1, "head_dim": 8, "state": True}


def rewrites(text, model):
    """What each rewrite found, and its nodes before and after."""
    _, report = gdn_ir.optimize(model, passes=text)
    assert {proof.verdict.status for proof in report.proofs} <= {"PROVED"}
    return [
        (rewrite.found, len(rewrite.before.graph), len(rewrite.after.graph))
        for record in report.passes
        for rewrite in record.rewrites
    ]


def one_chain(tiles):
    """Nodes of the joined row loop of `tiles` tiles of 16 by 16, counted by hand.

    14 steps of Gather, Slice, Mul, ReduceSum, Slice, Add, Concat; the coefficients, of each tile an
    Unsqueeze and an Expand, put together; X put together and its first rows; the identity; a Split.
    """
    return 14 * 7 + (2 * tiles + 1) + 2 + 1 + 1


# Of one 16 by 16 tile in the baseline: 15 rows of 14 ops, and the identity.
ROWS = 15 * 14 + 1


def test_eight_inverses_become_two_and_then_one():
    model = build_rule(FORM, seq=128, **CASE)
    found = rewrites(f"{PASS}{{width=64}},{PASS}{{width=128}}", model)
    shape = "[1, 1, 1, 16, 16]"
    four = (f"4 row-by-row inverses of {shape}, one chain of 16 by 64", 4 * ROWS, one_chain(4))
    assert found[:2] == [four, four]
    # 14 steps of 7 ops, less the views and constants of one chain; the two are written alike.
    whole, before, after = found[-1]
    assert whole == "2 chains of 100 ops, one of 128 columns"
    assert (before, after) == (206, 103)
    eight = (f"8 row-by-row inverses of {shape}, one chain of 16 by 128", 8 * ROWS, one_chain(8))
    assert rewrites(PASS, model)[0] == eight


def test_copies_in_and_out_are_what_a_hand_counts():
    model = build_rule(FORM, seq=128, **CASE)
    _, report = gdn_ir.optimize(model, passes=PASS, verify="none")
    rewrite = report.passes[0].rewrites[0]
    before, after = count(rewrite.before), count(rewrite.after)
    # Each of 15 rows of 8 tiles is gathered and sliced three times, and scattered twice.
    assert (before.copies_in, before.copies_out) == (8 * 15 * 4, 8 * 15 * 2)
    # 14 steps gather coefficients, slice those and X, and append a row; then there are the first
    # rows, the Split at the end, and two Concats of all tiles.
    assert (after.copies_in, after.copies_out) == (14 * 3 + 2, 14 + 2)


@pytest.mark.parametrize("width", [32, 64, 128])
def test_the_rule(width):
    model = build_rule(FORM, seq=160, **CASE)
    optimized_, report = gdn_ir.optimize(model, passes=f"{PASS}{{width={width}}},dce")
    assert {proof.verdict.status for proof in report.proofs} == {"PROVED"}
    assert_is_the_rule(optimized_, CASE, 160)


PRODUCTS = "g (float[2,4,4] t, float[2,4,3] v, float[2,4,5] k) => (float[2,4,3] y, float[2,4,5] z)"


def test_products_with_one_left_operand():
    outcome = checked(PASS, parse(f"{PRODUCTS} {{ y = MatMul (t, v) z = MatMul (t, k) }}"))
    assert outcome.ops == {"Concat": 1, "MatMul": 1, "Split": 1}
    proved(outcome)


def test_products_with_one_right_operand_and_other_batches():
    text = """g (float[1,4,4] a, float[2,3,4] b, float[4,5] w) => (float[1,4,5] y, float[2,3,5] z)
      { y = MatMul (a, w) z = MatMul (b, w) }"""
    reasons = declines(PASS, parse(text))
    assert "not known to be equal but for one axis" in reasons[0]
    same = text.replace("float[1,4,4] a", "float[2,4,4] a").replace("[1,4,5]", "[2,4,5]")
    outcome = checked(PASS, parse(same))
    assert outcome.ops["MatMul"] == 1
    proved(outcome)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("y = MatMul (t, v) c = MatMul (y, w) z = MatMul (t, c)", "needs what another"),
        ("y = MatMul (t, v) z = MatMul (t, k)", "have 8 columns; width=7"),
    ],
)  # fmt: skip
def test_products_that_stay(text, reason):
    graph = PRODUCTS.replace("float[2,4,5] k)", "float[2,4,5] k, float[3,5] w)")
    reasons = declines(f"{PASS}{{width=7}}", parse(f"{graph} {{ {text} }}"))
    assert any(reason in found for found in reasons), reasons


@pytest.mark.parametrize("rows", ["4", "2,4"])
def test_products_with_a_vector_stay(rows):
    """Their results lack the axis along which they would be cut apart."""
    text = f"""g (float[{rows},3] a, float[{rows},3] b, float[3] w)
      => (float[{rows}] y, float[{rows}] z) {{ y = MatMul (a, w) z = MatMul (b, w) }}"""
    (reason,) = declines(PASS, parse(text))
    assert "rank of an operand is below 2" in reason


CHAINS = "g (float[3,4] a, float[3,4] b) => (float[3,4] y, float[3,4] z)"


def chain(x, result, mix=""):
    return f"""
      {x}1 = Exp ({x}) {x}2 = Mul ({x}1, {x}) {mix} {x}3 = CumSum ({x}2, rows)
      {x}4 = Sigmoid ({x}3) {x}5 = Tanh ({x}4) {result} = Mul ({x}5, {x}1)
    """


def chains(mix="", graph=CHAINS, second="b"):
    one = chain("a", "y", mix.format(x="a")) + chain(second, "z", mix.format(x=second))
    return parse(f"{graph} <int64 rows = {{0}}> {{ {one} }}")


def test_chains_that_are_written_alike():
    outcome = checked(PASS, chains())
    assert outcome.ops == {
        "Concat": 1, "CumSum": 1, "Exp": 1, "Mul": 2, "Sigmoid": 1, "Split": 1, "Tanh": 1,
    }  # fmt: skip
    (rewrite,) = outcome.rewrites
    assert rewrite.found == "2 chains of 6 ops, one of 8 columns"
    proved(outcome)


def test_values_that_are_used_elsewhere_are_cut_out_too():
    graph = CHAINS.replace("z)", "z, float[3,4] w)")
    model = parse(
        f"{graph} <int64 rows = {{0}}> {{ {chain('a', 'y')} {chain('b', 'z')} w = Neg (b1) }}"
    )
    outcome = checked(PASS, model)
    assert outcome.ops["Exp"] == 1
    assert outcome.ops["Split"] == 2


MIXED = "a1 = Exp (a) b1 = Exp (b) y = Softmax <axis = -1> (a1) z = Softmax <axis = -1> (b1)"
UNEQUAL = CHAINS.replace("[3,4] b", "[3,5] b").replace("[3,4] z", "[3,5] z")


@pytest.mark.parametrize(
    ("width", "model"),
    [
        pytest.param(7, chains(), id="too wide"),
        pytest.param(128, chains(graph=UNEQUAL), id="unequal tiles"),
        pytest.param(128, parse(f"{CHAINS} {{ y = Exp (a) z = Exp (b) }}"), id="copies cost more"),
        pytest.param(128, parse(f"{CHAINS} {{ {MIXED} }}"), id="an op that mixes the tail"),
    ],
)
def test_chains_that_stay(width, model):
    assert optimized(f"{PASS}{{width={width}}}", model).rewrites == []


def test_a_chain_that_needs_the_other():
    text = f"{chain('a', 'y')} c = Softmax <axis = -1> (y) {chain('c', 'z')}"
    model = parse(f"{CHAINS} <int64 rows = {{0}}> {{ {text} }}")
    outcome = checked(PASS, model)
    assert outcome.ops["Tanh"] == 2
    assert any("needs what one of them makes" in reason for reason in outcome.reasons)


def test_in_the_body_of_a_loop_with_captures():
    model = parse(f"""g (int64 n, bool on, float[3,4] a, float[3,4] w) => (float[3,4] s)
      <int64 rows = {{0}}> {{
      b = Neg (w)
      s = Loop (n, on, a) <body = r (int64 i, bool go, float[3,4] v)
          => (bool go_on, float[3,4] v_next) {{
        go_on = Identity (go) {chain("v", "y")} {chain("b", "z")} v_next = Sub (y, z)
      }}>
    }}""")
    feeds = {"n": np.array(3), "on": np.array(True)}
    feeds |= {x: np.linspace(-0.5, 0.5, 12, dtype=np.float32).reshape(3, 4) for x in "aw"}
    outcome = checked(PASS, model, feeds)
    assert outcome.ops["Tanh"] == 1


def test_a_chain_cut_at_places_that_are_computed():
    graph = CHAINS.replace("b)", "b, int64[2] sizes)").replace("[3,4] y", "[3,K] p, float[3,M] q")
    cut_up = "p, q = Split <axis = -1> (y, sizes)"
    model = parse(
        f"{graph} <int64 rows = {{0}}> {{ {chain('a', 'y')} {chain('b', 'z')} {cut_up} }}"
    )
    feeds = {"sizes": np.array([1, 3])}
    feeds |= {x: np.linspace(-0.5, 0.5, 12, dtype=np.float32).reshape(3, 4) for x in "ab"}
    outcome = checked(PASS, model, feeds)
    assert (outcome.ops["Tanh"], outcome.ops["Split"]) == (1, 2)


def test_what_a_local_function_is_told_in_each_call_stays():
    def chain(x, result):
        return f"""{x}1 = LeakyRelu <alpha: float = @slope> ({x}) {x}2 = Exp ({x}1)
          {x}3 = Tanh ({x}2) {x}4 = Sigmoid ({x}3) {result} = Neg ({x}4)"""

    model = annotated(
        onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 20, "own": 1]>
          {CHAINS} {{ y, z = own.f <slope = 0.3> (a, b) }}
          <domain: "own", opset_import: ["": 20]> f <slope> (a, b) => (y, z) {{
            {chain("a", "y")} {chain("b", "z")} }}""")
    )
    (function,) = model.functions.values()
    for value in (*function.inputs, *(v for node in function for v in node.outputs)):
        value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([3, 4])
    outcome = checked(PASS, model)
    assert (outcome.ops["LeakyRelu"], outcome.ops["Tanh"]) == (2, 1)


def test_squares_that_are_not_known_to_be_lower_are_no_inverses():
    (reason,) = declines(PASS, inverse_model((2, 4, 4), lower=None))
    assert "is not known to be strictly lower" in reason


def test_one_inverse_stays():
    assert optimized(PASS, inverse_model((2, 4, 4))).rewrites == []


def test_a_width_that_is_none():
    with pytest.raises(ValueError, match="width is a number of columns"):
        gdn_ir.optimize(chains(), passes=f"{PASS}{{width=1}}")


def proved(outcome):
    for rewrite in outcome.rewrites:
        verdict = prove_at_shapes(rewrite.before, rewrite.after, rewrite.assumes)
        assert verdict.status == "PROVED", verdict
    assert outcome.rewrites


def test_golden(golden):
    golden(f"{PASS}.txt").check(before_and_after(PASS, chains()))
