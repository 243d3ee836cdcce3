"""Proofs of small identities, and of what is none."""

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

from gdn_ir import pipeline
from gdn_ir.facts import Fact
from gdn_ir.models.baseline import build_unrolled
from gdn_ir.modular.prime_field import SAFE_PRIMES
from gdn_ir.optimizer import optimize
from gdn_ir.verify.proof import LOG2_BOUND, prove

HEADER = '<ir_version: 10, opset_import: ["" : 20]>\n'


def model(text: str, inputs: str = "float[3,3] x, float[3,3] y") -> ir.Model:
    """A graph with inputs x and y and output z, from onnx's text form."""
    return ir.from_onnx_text(f"{HEADER}g ({inputs}) => (float[3,3] z) {{ {text} }}")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("z = Add(x, y)", "z = Add(y, x)"),
        ("a = Add(x, y) z = MatMul(a, a)", "p = MatMul(x, x) q = MatMul(x, y) r = MatMul(y, x) s = MatMul(y, y) t = Add(p, q) u = Add(t, r) z = Add(u, s)"),
        ("a = Add(x, y) z = Exp(a)", "a = Exp(x) b = Exp(y) z = Mul(a, b)"),
        ("a = Sub(x, y) z = Exp(a)", "a = Exp(x) b = Exp(y) z = Div(a, b)"),
        ("a = Sqrt(x) z = Mul(a, y)", "a = Sqrt(x) z = Mul(y, a)"),
        ("a = Max(x, y) z = Exp(a)", "a = Max(y, x) z = Exp(a)"),
        ("a = Sigmoid(x) b = Add(a, y) z = Exp(b)", "a = Sigmoid(x) b = Exp(a) c = Exp(y) z = Mul(b, c)"),
        ("a = Transpose(x) b = Transpose(y) z = MatMul(a, b)", "a = MatMul(y, x) z = Transpose(a)"),
        ("h = Constant<value_float = 0.5>() z = Pow(x, h)", "z = Sqrt(x)"),
        ("t = Constant<value_float = 2.0>() z = Pow(x, t)", "z = Mul(x, x)"),
        ("t = Constant<value_float = 2.0>() a = Mul(x, t) z = Exp(a)", "a = Exp(x) z = Mul(a, a)"),
        ("a = Reciprocal(y) z = Mul(x, a)", "z = Div(x, y)"),
        ("z = Softmax<axis = 1>(x)", "y1 = Constant<value_floats = [3.0]>() a = Add(x, y1) b = Exp(x) c = Exp(a) z = Softmax<axis = 1>(x)"),
        ("a = Exp(x) b = Exp(a) z = Mul(b, y)", "a = Exp(x) b = Exp(a) z = Mul(y, b)"),
    ],
)  # fmt: skip
def test_identities_are_proved(before, after):
    verdict = prove(model(before), model(after))
    assert verdict.status == "PROVED", verdict
    assert verdict.log2_bound <= LOG2_BOUND
    assert verdict.trials >= 3


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("z = Add(x, y)", "z = Sub(x, y)"),
        ("z = Sub(x, y)", "z = Sub(y, x)"),
        ("z = MatMul(x, y)", "z = MatMul(y, x)"),
        ("z = Exp(x)", "z = Exp(y)"),
        ("a = Add(x, y) z = Exp(a)", "a = Exp(x) b = Exp(y) z = Add(a, b)"),
        ("z = CumSum(x, a0)", "z = CumSum<exclusive = 1>(x, a0)"),
        ("z = Trilu<upper = 0>(x, a0)", "z = Trilu<upper = 0>(x, a1)"),
        ("z = Trilu<upper = 1>(x, a0)", "z = Trilu<upper = 1>(x, a1)"),
        ("z = Identity(x)", "z = Transpose(x)"),
    ],
)
def test_what_differs_is_different(before, after):
    axes = "a0 = Constant<value_int = 0>() a1 = Constant<value_int = 1>() "
    verdict = prove(model(axes + before), model(axes + after))
    assert verdict.status == "DIFFERENT", verdict
    assert "output 'z' at [" in verdict.reason


@pytest.mark.parametrize(
    ("before", "after", "op"),
    [
        ("z = Sqrt(x)", "z = Sqrt(y)", "Sqrt"),
        ("z = Relu(x)", "z = Identity(x)", "Relu"),
        ("a = Mul(x, y) b = Mul(y, y) c = Add(a, b) z = Exp(c)", "s = Add(x, y) c = Mul(s, y) z = Exp(c)", "Exp of a product"),
        ("c = Greater(x, y) z = Where(c, x, y)", "z = Max(x, y)", "Where"),
    ],
)  # fmt: skip
def test_where_a_hash_decides_it_is_undecided(before, after, op):
    verdict = prove(model(before), model(after))
    assert verdict.status == "UNDECIDED"
    assert op in verdict.reason


@pytest.mark.parametrize("op", ["Det", "Einsum", "LpNormalization"])
def test_an_unknown_op_is_named(op):
    attribute = '<equation = "ij->ij">' if op == "Einsum" else ""
    verdict = prove(model(f"q = {op}{attribute}(x) z = Add(y, q)"), model("z = Add(x, y)"))
    assert verdict.status == "UNSUPPORTED"
    assert op in verdict.reason


def test_minus_infinity_masks_and_is_never_guessed_at():
    mask = "m = Constant<value = float[3,3] {0, -inf, -inf, 0, 0, -inf, 0, 0, 0}>() "
    before = mask + "a = Add(x, m) z = Exp(a)"
    after = "e = Exp(x) k = Constant<value_int = 0>() z = Trilu<upper = 0>(e, k)"
    assert prove(model(before), model(after)).status == "PROVED"
    verdict = prove(model(mask + "z = Mul(x, m)"), model("z = Identity(x)"))
    assert verdict.status == "UNDECIDED"
    assert "-inf" in verdict.reason


def test_constants_a_rounding_apart_are_one_and_reported():
    up = float(np.nextafter(np.float32(0.1), np.float32(1)))
    texts = [
        f"c = Constant<value_float = {value!r}>() z = Mul(x, c)"
        for value in (float(np.float32(0.1)), up, 0.11)
    ]
    near = prove(model(texts[0]), model(texts[1]))
    assert near.status == "PROVED"
    assert near.unified == ((float(np.float32(0.1)), up),)
    assert "taken for" in str(near)
    assert prove(model(texts[0]), model(texts[2])).status == "DIFFERENT"


@pytest.mark.parametrize(
    "multiplied",
    [
        "c = Constant<value_float = 0.33333334>() z = Mul(x, c)",
        "c = Constant<value_float = 0.33333337>() z = Mul(c, x)",
        "c = Constant<value_float = 3.0>() a = Reciprocal(c) z = Mul(x, a)",
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_division_by_a_constant_is_a_product_with_its_rounded_reciprocal(multiplied, order):
    texts = ["c = Constant<value_float = 3.0>() z = Div(x, c)", multiplied][::order]
    verdict = prove(*map(model, texts))
    assert verdict.status == "PROVED", verdict
    assert verdict.unified, "what was rounded is told"


def test_a_mean_is_a_sum_times_a_rounded_reciprocal():
    axis = "r = Constant<value_ints = [1]>() "
    mean = model(axis + "a = ReduceMean(x, r) z = Add(a, y)")
    product = "c = Constant<value_float = {}>() a = ReduceSum(x, r) b = Mul(a, c) z = Add(b, y)"
    assert prove(mean, model(axis + product.format(1 / 3))).status == "PROVED"
    assert prove(mean, model(axis + product.format(0.3333))).status == "DIFFERENT"


def test_division_is_exact_where_nothing_is_rounded():
    three = "c = Constant<value_float = 3.0>() "
    there_and_back = model(three + "a = Div(x, c) z = Mul(a, c)")
    assert prove(there_and_back, model("z = Identity(x)")).status == "PROVED"


def test_what_rounded_constants_may_explain_is_undecided():
    one = "c = Constant<value_float = 1.0>() a = Add(x, c) z = Exp(a)"
    e = "c = Constant<value_float = {}>() a = Exp(x) z = Mul(a, c)"
    verdict = prove(model(one), model(e.format(2.7182817)))
    assert verdict.status == "UNDECIDED"
    assert "no more than constants may be rounded" in verdict.reason
    assert prove(model(one), model(e.format(2.7181))).status == "DIFFERENT"


THIRD = "c = Constant<value_float = 3.0>() k = Constant<value_float = 0.33333334>() "


@pytest.mark.parametrize("order", [1, -1])
def test_a_rounded_reciprocal_beside_the_division_is_itself(order):
    both = model(THIRD + "a = Div(x, c) b = Mul(y, k) z = Add(a, b)")
    products = model(THIRD + "a = Mul(x, k) b = Mul(y, k) z = Add(a, b)")
    verdict = prove(*[both, products][::order])
    assert verdict.status == "UNDECIDED"
    assert "no more than constants may be rounded" in verdict.reason
    # x / 3 - 0.33333334 x is not 0, small as it is.
    remainder = model(THIRD + "a = Div(x, c) b = Mul(x, k) z = Sub(a, b)")
    zero = model("z = Sub(x, x)")
    assert prove(*[remainder, zero][::order]).status == "DIFFERENT"


def test_constants_of_a_loop_that_does_not_run_at_first():
    loop = """e = Constant<value = bool {{1}}>() z = Loop (n, e, x) <body = r
      (int64 i, bool on, float[3,3] a) => (bool on2, float[3,3] b) {{ on2 = Identity(on) {} }}>"""
    bodies = (THIRD + "b = Div(a, c)", THIRD + "b = Mul(a, k)")
    verdict = prove(*(model(loop.format(body), "float[3,3] x, int64 n") for body in bodies))
    assert verdict.status == "PROVED", verdict
    assert verdict.unified == ((1 / 3, float(np.float32(1 / 3))),)


@pytest.mark.parametrize("base", [2, 3, 4, 9, 16])
@pytest.mark.parametrize("power", [1.0, -1.0, 2.0, 0.5])
def test_no_number_stands_for_e(base, power):
    before = f"c = Constant<value_float = {power}>() a = Add(x, c) z = Exp(a)"
    after = f"c = Constant<value_float = {float(base) ** power!r}>() a = Exp(x) z = Mul(a, c)"
    assert prove(model(before), model(after)).status == "DIFFERENT"


def test_constants_in_exponents():
    add = "c = Constant<value_float = {}>() a = Add(x, c) b = Exp(a) z = Mul(b, b)"
    twice = "c = Constant<value_float = {}>() a = Add(x, x) b = Add(a, c) z = Exp(b)"
    assert prove(model(add.format(1.5)), model(twice.format(3.0))).status == "PROVED"
    assert prove(model(add.format(1.5)), model(twice.format(2.0))).status == "DIFFERENT"
    # 0.1 and 1000 are powers of w of no low degree: unknowns, equal to themselves.
    for number in (0.1, -1000.0):
        assert prove(model(add.format(number)), model(add.format(number))).status == "PROVED"
        verdict = prove(model(add.format(number)), model(twice.format(3 * number)))
        assert verdict.status == "UNDECIDED"


def test_a_normalised_exp_of_shifted_numbers_is_not_one_of_scaled_ones():
    rows = "c = Constant<value = float[3] {{{}}}>() r = Constant<value_ints = [1]>() "
    rest = "s = ReduceSum(e, r) z = Div(e, s)"
    before = rows.format("0, 1, 2") + "a = Add(x, c) e = Exp(a) " + rest
    after = rows.format("1, 4, 16") + "a = Exp(x) e = Mul(a, c) " + rest
    assert prove(model(before), model(after)).status == "DIFFERENT"


def test_before_opset_13_nothing_is_proved():
    text = HEADER.replace("20", "12") + "g (float[2,3,4] x) => (float[2,3,4] z) {{ {} }}"
    flat = ir.from_onnx_text(text.format("z = Softmax<axis = 1>(x)"))
    axis = "e = Exp(x) s = ReduceSum<axes = [1], keepdims = 1>(e) z = Div(e, s)"
    verdict = prove(flat, ir.from_onnx_text(text.format(axis)))
    assert verdict.status == "UNSUPPORTED"
    assert "before opset 13" in verdict.reason


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ("z = CumSum(x, i)", "float[3,3] x, int64 i"),
        ("a = ReduceSum(x, i) z = Add(a, x)", "float[3,3] x, int64[1] i"),
    ],
)
def test_axes_that_are_inputs_end_in_a_verdict(text, inputs):
    models = [model(text, inputs)] * 2
    assert {prove(*models, seed=seed).status for seed in range(4)} <= {"UNSUPPORTED", "UNDECIDED"}


def test_strings_are_compared():
    text = HEADER + "g (string[3,3] x) => (string[3,3] z) { z = Identity(x) }"
    assert prove(*[ir.from_onnx_text(text)] * 2).status in ("PROVED", "UNSUPPORTED")


@pytest.mark.parametrize(
    ("inputs", "shape"), [("float[4] x, float[2,4,3] y", "2,3"), ("float[2,3,4] x, float[4] y", "2,3"), ("float[4] x, float[4] y", "")]
)  # fmt: skip
def test_products_with_vectors(inputs, shape):
    texts = ["z = MatMul(x, y)", "a = Neg(x) b = Neg(y) z = MatMul(a, b)"]
    header = f"{HEADER}g ({inputs}) => (float[{shape}] z)"
    models = [ir.from_onnx_text(f"{header} {{ {text} }}") for text in texts]
    assert prove(*models).status == "PROVED"


def typed(text: str, dtype: str) -> ir.Model:
    return ir.from_onnx_text(f"{HEADER}g ({dtype}[3,3] x) => ({dtype}[3,3] z) {{ {text} }}")


@pytest.mark.parametrize(
    ("dtype", "third", "status"),
    [
        ("double", 1 / 3, "PROVED"),
        ("double", 0.3333333333333, "DIFFERENT"),
        ("float16", 0.33325195, "UNDECIDED"),
        ("float16", 0.25, "DIFFERENT"),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_division_in_other_precisions(dtype, third, status, order):
    texts = [
        f"w = Constant<value = double {{3.0}}>() c = Cast<to = {ir.DataType[dtype.upper()].value}>(w) z = Div(x, c)",
        f"w = Constant<value = double {{{third}}}>() c = Cast<to = {ir.DataType[dtype.upper()].value}>(w) z = Mul(x, c)",
    ]
    assert prove(*[typed(text, dtype) for text in texts][::order]).status == status


def test_large_constants_a_rounding_apart_are_undecided():
    ones = np.full((70, 70), np.float32(0.1))
    models = []
    for up in (0, 1, 100):
        made = model("z = Mul(x, w)", "float[70,70] x, float[70,70] w")
        made.graph.outputs[0].shape = ir.Shape([70, 70])
        weights = made.graph.inputs.pop()
        array = ones.copy()
        array[3, 5] *= np.float32(1 + up * 2**-23)
        weights.const_value = ir.tensor(array)
        made.graph.register_initializer(weights)
        models.append(made)
    assert prove(models[0], models[1]).status == "UNDECIDED"
    assert prove(models[0], models[2]).status == "DIFFERENT"


def test_a_positive_multiple_of_a_mask_is_the_mask():
    filled = "s = Shape(x) i = Constant<value = float {-inf}>() f = Expand(i, s) o = Constant<value_int = 1>() m = Trilu<upper = 1>(f, o) t = Constant<value_float = 2.0>() "
    masked = model(filled + "a = Add(x, m) b = Mul(a, t) z = Exp(b)", "float[3,3] x")
    outside = model(filled + "b = Mul(x, t) a = Add(b, m) z = Exp(a)", "float[3,3] x")
    assert prove(masked, outside).status == "PROVED"
    negative = model(
        filled.replace("2.0", "-2.0") + "a = Add(x, m) b = Mul(a, t) z = Exp(b)", "float[3,3] x"
    )
    assert prove(negative, outside).status == "UNDECIDED"


@pytest.mark.parametrize("index", [0, 7, 31])
def test_a_coefficient_that_vanishes_modulo_one_prime(index):
    texts = [
        f"c = Constant<value = double {{{k}.0}}>() z = Mul(x, c)" for k in (SAFE_PRIMES[index], 0)
    ]
    models = [typed(text, "double") for text in texts]
    assert {prove(*models, seed=seed).status for seed in range(32)} == {"DIFFERENT"}


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [("0", "1", "DIFFERENT"), ("0", "0", "PROVED")],
)
def test_integers_that_depend_on_inputs_do_not_round(first, second, status):
    text = "t = Constant<value = float[4,3] {{1.5,2,3, 4,5,6, 7,8,9, 10,11,12}}>() a = Gather(t, i) k = Constant<value_int = {0}>() b = Gather(a, k) c = Unsqueeze(b, u) z = Add(c, x)"
    texts = [("u = Constant<value_ints = [0]>() " + text).format(k) for k in (first, second)]
    models = [model(t, "float[3,3] x, int64[2] i") for t in texts]
    # Two rows looked up by tokens differ, unless the tokens are equal at every point tried.
    assert prove(*models, seed=1).status == status


def test_facts_are_assumed():
    row = (
        "one = Constant<value_int = 1>() i = Constant<value = float[3,3] {1,0,0,0,1,0,0,0,1}>() "
        "s = Add(i, x) p = MatMul(x, x) "
    )
    truncated = model(row + "q = Add(s, p) z = Add(q, y)")
    full = model(row + "q = Add(s, p) r = MatMul(p, x) t = Add(q, r) z = Add(t, y)")
    assert prove(truncated, full).status == "DIFFERENT"
    fact = Fact("x", "strictly-lower", "test")
    assert prove(truncated, full, [fact]).status == "PROVED"
    assert prove(truncated, full, [dataclasses.replace(fact, value="y")]).status == "DIFFERENT"


def test_loops_scans_and_branches_run():
    body = "b (int64 i, bool c, float[3,3] s) => (bool d, float[3,3] t) { d = Identity(c) t = MatMul(s, x) }"
    loop = f"n = Constant<value_int = 3>() k = Cast<to = 9>(n) z = Loop<body = {body}>(n, k, y)"
    assert (
        prove(model(loop), model("a = MatMul(y, x) b = MatMul(a, x) z = MatMul(b, x)")).status
        == "PROVED"
    )
    assert prove(model(loop), model("a = MatMul(y, x) z = MatMul(a, x)")).status == "DIFFERENT"
    step = (
        "b (float[3] s, float[3] r) => (float[3] t, float[3] u) { t = Add(s, r) u = Identity(t) }"
    )
    scan = f"k = Constant<value_int = 0>() f = Gather(y, k) m = Mul(f, n0) last, z = Scan<num_scan_inputs = 1, body = {step}>(m, x)"
    zero = "n0 = Constant<value_float = 0.0>() "
    assert (
        prove(model(zero + scan), model("k = Constant<value_int = 0>() z = CumSum(x, k)")).status
        == "PROVED"
    )
    branch = "n = Constant<value_int = 1>() c = Cast<to = 9>(n) z = If<then_branch = t () => (float[3,3] a) { a = Add(x, y) }, else_branch = e () => (float[3,3] b) { b = Sub(x, y) }>(c)"
    assert prove(model(branch), model("z = Add(y, x)")).status == "PROVED"


def test_the_seed_reproduces_a_verdict():
    pair = model("z = Add(x, y)"), model("z = Sub(x, y)")
    first = prove(*pair)
    again = prove(*pair, seed=first.seed)
    assert dataclasses.asdict(first) == dataclasses.asdict(again)


# Shorter than a chunk, one chunk, ragged, one token, several sequences, fewer key heads, a state.
@pytest.mark.parametrize(
    "size",
    [
        {"seq": 5},
        {"seq": 8},
        {"seq": 19},
        {"seq": 1},
        {"seq": 16, "batch": 2},
        {"seq": 16, "heads": 4, "key_heads": 2},
        {"seq": 16, "state": True, "l2norm": True, "value_dim": 6},
    ],
)
@pytest.mark.parametrize("mask", ["fill-zero", "fill-inf"])
def test_the_portable_pipeline_is_proved_whole(size, mask):
    baseline = build_unrolled(**{"heads": 2, "head_dim": 4, "chunk": 8, "mask": mask, **size})
    optimized, _ = optimize(baseline, verify="structure")
    verdict = prove(baseline, optimized)
    assert verdict.status == "PROVED", verdict
    assert verdict.log2_bound <= LOG2_BOUND


@pytest.mark.parametrize("method", ["block", "substitution", "doubling", "neumann"])
@pytest.mark.parametrize("n", [2, 5, 16, 24, 33])
def test_every_method_is_exact_algebra(method, n):
    (pass_,) = pipeline.parse(f"parallel-inverse{{method={method}}}")
    (rewrite,) = pass_.run(build_unrolled(seq=n, heads=1, head_dim=2, chunk=n))
    assert prove(rewrite.before, rewrite.after, rewrite.assumes).status == "PROVED"
    assert prove(rewrite.before, rewrite.after).status == "DIFFERENT"


def test_integer_inputs_are_tried_and_named():
    """x x = x for 0 and 1 alone, so more than those are drawn."""
    inputs = "int64[3,3] x, int64[3,3] y"
    square, itself = "a = Mul(x, x) z = Cast<to = 1>(a)", "a = Identity(x) z = Cast<to = 1>(a)"
    assert prove(model(square, inputs), model(itself, inputs)).status == "DIFFERENT"
    verdict = prove(model(itself, inputs), model("z = Cast<to = 1>(x)", inputs))
    assert verdict.sampled == ("x", "y")
    assert f"for the {verdict.trials} values of 'x', 'y' tried" in str(verdict)


def test_optional_inputs_are_told_apart():
    constant = "c = Constant<value_float = 0.5>() "
    least, most = model(constant + "z = Clip(x, c)"), model(constant + "z = Clip(x, , c)")
    assert prove(least, least.clone()).status == "PROVED"
    assert prove(least, most).status == "UNDECIDED"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # 1/2 of an integer is no integer.
        ("t = Constant<value_int = 2>() a = Cast<to = 7>(x) b = Div(a, t) c = Mul(b, t) z = Cast<to = 1>(c)", "a = Cast<to = 7>(x) z = Cast<to = 1>(a)"),
        ("i = Constant<value_int = 2>() a = CastLike(x, i) z = Cast<to = 1>(a)", "z = Identity(x)"),
    ],
)  # fmt: skip
def test_integers_round(before, after):
    assert prove(model(before), model(after)).status != "PROVED"


FUNCTION = """<ir_version: 10, opset_import: ["": 20, "l": 1]>
g (float[3,3] x, int64[3,3] i) => (float[3,3] z) {{ {main} }}
<domain: "l", opset_import: ["": 20]>
f (a) => (b) {{ {body} }}"""
TWO = "t = Constant<value_int = 2>() "


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (TWO + "c = Cast<to = 7>(a) d = Div(c, t) e = Mul(d, t) b = Cast<to = 1>(e)", "c = Cast<to = 7>(a) b = Cast<to = 1>(c)"),
        ("n = Constant<value_int = 1>() c = CastLike(a, n) b = Cast<to = 1>(c)", "n = Constant<value = bool {1}>() c = CastLike(a, n) b = Cast<to = 1>(c)"),
        ("c = Equal(a, a) d = Not(c) e = Cast<to = 6>(c) f = Cast<to = 6>(d) h = Sub(e, f) j = Add(h, f) b = Cast<to = 1>(j)", "c = Equal(a, a) d = Cast<to = 6>(c) b = Cast<to = 1>(d)"),
    ],
    ids=["quotient", "cast-like", "predicates"],
)  # fmt: skip
def test_integers_of_untyped_bodies_round(first, second):
    models = [
        ir.from_onnx_text(FUNCTION.format(main="z = l.f(x)", body=body)) for body in (first, second)
    ]
    assert prove(*models).status == "UNDECIDED"


def test_what_depends_on_integer_inputs_does_not_round_in_bodies_either():
    constants = "t = Constant<value_float = 0.1>() s = Constant<value_float = 0.7>() "
    bodies = [
        constants + f"c = Mul(a, {p}) d = Mul(c, {q}) b = Identity(d)" for p, q in ("ts", "st")
    ]
    called = [
        ir.from_onnx_text(
            FUNCTION.format(main="h = Cast<to = 1>(i) w = l.f(h) z = Add(x, w)", body=body)
        )
        for body in bodies
    ]
    assert prove(*called).status == "PROVED"
    loop = """u = Constant<value_int = 2>() e = Constant<value = bool {{1}}>() h = Cast<to = 1>(i)
      w = Loop (u, e, h) <body = r (int64 n, bool on, float[3,3] a) => (bool on2, float[3,3] b) {{
        on2 = Identity(on) {} }}> z = Add(x, w)"""
    looped = [model(loop.format(body), "float[3,3] x, int64[3,3] i") for body in bodies]
    assert prove(*looped).status == "PROVED"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("z = Where(c, x, y)", "z = Identity(x)"),
        ("z = Where(c, x, y)", "z = Identity(y)"),
        ("a = Cast<to = 1>(i) z = Add(x, a)", "b = Abs(i) a = Cast<to = 1>(b) z = Add(x, a)"),
        ("a = Cast<to = 1>(i) z = Add(x, a)", "k = Constant<value_int = 200>() b = Min(i, k) a = Cast<to = 1>(b) z = Add(x, a)"),
    ],
)  # fmt: skip
def test_one_boolean_takes_both_values_and_integers_are_negative_and_large(before, after, seed):
    inputs = "float[3,3] x, float[3,3] y, bool c, int64[3,3] i"
    assert prove(model(before, inputs), model(after, inputs), seed=seed).status == "DIFFERENT"


def test_division_by_an_integer_input():
    before = "a = Cast<to = 1>(i) z = Div(x, a)"
    after = "a = Cast<to = 1>(i) b = Reciprocal(a) z = Mul(x, b)"
    inputs = "float[3,3] x, int64[1] i"
    assert prove(model(before, inputs), model(after, inputs), seed=5).status == "PROVED"


@pytest.mark.parametrize(
    "text",
    ["k = Constant<value_int = 0>() z = CumSum<exclusive = 1>(x, k)", "z = Softmax<axis = 0>(x)"],
)
def test_nothing_to_sum_up(text):
    models = [ir.from_onnx_text(f"{HEADER}g (float[0,3] x) => (float[0,3] z) {{ {text} }}")] * 2
    assert prove(*models).status == "PROVED"


def test_a_function_of_another_opset_is_unsupported():
    text = FUNCTION.format(main="z = l.f(x)", body="b = Neg(a)")
    old = ir.from_onnx_text(
        text.replace('"l", opset_import: ["": 20]', '"l", opset_import: ["": 11]')
    )
    verdict = prove(old, old)
    assert verdict.status == "UNSUPPORTED"
    assert "of opset 11, not the model's" in verdict.reason


def test_two_constants_of_one_model_stay_two():
    near = float(np.nextafter(np.float32(0.1), np.float32(1)))
    text = f"c = Constant<value_float = {float(np.float32(0.1))!r}>() d = Constant<value_float = {near!r}>() a = Mul(x, c) b = Mul(x, d) "
    assert prove(model(text + "z = Sub(a, b)"), model(text + "z = Sub(b, a)")).status == "DIFFERENT"


def test_nothing_is_left_out_by_a_power_of_higher_rank():
    inputs = "float[2] x"
    two = "t = Constant<value = float[1,1] {2.0}>() "
    header = f"{HEADER}g ({inputs}) => (float[1,2] z) {{ %s }}"
    before = ir.from_onnx_text(header % (two + "z = Pow(x, t)"))
    axes = "k = Constant<value_ints = [0]>() "
    after = ir.from_onnx_text(header % (axes + "a = Mul(x, x) z = Unsqueeze(a, k)"))
    assert prove(before, after).status == "PROVED"


def test_dropout_and_outputs_that_are_left_out():
    both = "d, m = Dropout(x) f = Cast<to = 1>(m) "
    assert prove(model(both + "z = Mul(d, f)"), model("z = Identity(x)")).status == "PROVED"


def test_products_of_integers_are_no_functions_of_each_element():
    """(i j)^T is not i^T j^T, which a hash of each element would have it be."""
    cast = "i = Cast<to = 7>(x) j = Cast<to = 7>(y) "
    before = model(cast + "s = MatMul(i, j) t = Transpose(s) z = Cast<to = 1>(t)")
    after = model(cast + "a = Transpose(i) b = Transpose(j) s = MatMul(a, b) z = Cast<to = 1>(s)")
    assert prove(before, after).status == "UNSUPPORTED"


def test_trip_counts_are_tried_around_the_usual_factors():
    loop = """g (int64 n, float[2] x) => (float[2] z) {{
      z = Loop ({n}, , x) <body = b (int64 i, bool go, float[2] v) => (bool more, float[2] u) {{
        more = Identity (go)
        u = Add (v, v)
      }}> }}"""
    most = "forty = Constant <value = int64 {{40}}> () m = Min (n, forty)"
    unlimited = ir.from_onnx_text(HEADER + loop.format(n="n"))
    limited = ir.from_onnx_text(HEADER + loop.replace("z = Loop", f"{most} z = Loop").format(n="m"))
    verdict = prove(unlimited, unlimited.clone())
    assert "for the 8 values of 'n' tried" in str(verdict)
    assert prove(unlimited, limited).status == "DIFFERENT"
