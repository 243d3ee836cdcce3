"""Which values are known to be strictly lower, and which must not be believed to be."""

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common
import pytest
from onnx_text import model_of, value_of

from gdn_ir.facts import Fact, finite, state, strictly_lower
from gdn_ir.models.baseline import build_unrolled
from gdn_ir.pipeline import parse

CONSTANTS = """float[2,2] lower = {0, 0, 1, 0}, float[2,2] tri = {1, 0, 1, 1},
  float[2,2] thousand = {-1000, -1000, 0, -1000}, bool[2,2] above = {1, 1, 0, 1},
  float zero = {0}, float ten = {10}, int64 minus_one = {-1}, int64 one = {1},
  int64[1,2] at = {1, 1}, int64[2] start = {0, 0}, int64[2] end = {1, 1},
  int64[4] pads = {1, 0, 0, 1}, float three = {3}, float third = {0.33333334}"""


def model_with(nodes, inputs="float[2,2] x"):
    model = model_of(f"g ({inputs}) => (float[2,2] y) <{CONSTANTS}> {{ {nodes} }}")
    ir.passes.common.ShapeInferencePass()(model)
    return model


def fact_of(nodes, **options):
    model = model_with(nodes, **options)
    return strictly_lower(model, value_of(model, "y"))


@pytest.mark.parametrize(
    ("nodes", "origin"),
    [
        pytest.param("y = Trilu <upper = 0> (x, minus_one)", "'x'", id="trilu"),
        pytest.param("y = Mul (x, lower)", "'x'", id="mul"),
        pytest.param("y = Where (above, zero, x)", "'x'", id="where"),
        pytest.param("a = Relu (x) y = Where (above, zero, a)", "'a'", id="after a relu"),
        pytest.param("a = Mul (x, lower) b = Neg (a) y = Cast <to = 1> (b)", "'x'", id="before"),
        pytest.param("a = Mul (x, lower) b = Exp (w) y = Mul (a, b)", "'w', 'x'", id="product"),
        pytest.param("a = Slice (x, start, end) y = Pad (a, pads)", "'a'", id="pad"),
        pytest.param("a = Sub (x, x) y = Mul (a, w)", "'w', 'x'", id="zero altogether"),
        pytest.param("y = Mul (lower, lower)", "constants", id="constants alone"),
        pytest.param("a = MatMul (w, x) b = Mul (a, x) y = Mul (b, lower)", "'b'", id="matmul"),
    ],
)  # fmt: skip
def test_established_whatever_the_inputs_are(nodes, origin):
    fact = fact_of(nodes, inputs="float[2,2] x, float[2,2] w")
    assert fact == Fact("y", "strictly-lower", f"whatever {origin} are")


def test_established_through_the_exp_of_minus_infinity():
    model = model_with("d = Where (above, fill, x) e = Exp (d) y = Mul (e, w)",
                       inputs="float[2,2] x, float[2,2] w, float fill")  # fmt: skip
    fill = model.graph.inputs.pop()
    fill.const_value = ir.tensor(np.array(-np.inf, np.float32))
    model.graph.register_initializer(fill)
    assert strictly_lower(model, value_of(model, "y")).basis == "whatever 'w', 'x' are"


@pytest.mark.parametrize("mask", ["fill-inf", "fill-zero"])
@pytest.mark.parametrize("pipeline", ["", "exp-mask", "exp-mask{decay=difference}"])
def test_established_in_the_baseline_and_after_exp_mask(mask, pipeline):
    model = build_unrolled(seq=12, chunk=6, heads=1, head_dim=4, mask=mask)
    for pass_ in parse(pipeline) if pipeline else ():
        assert pass_(model).modified
    fact = strictly_lower(model, value_of(model, "A"))
    assert fact.property == "strictly-lower"
    assert fact.basis.startswith("whatever '")


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param("y = Neg (x)", id="general"),
        pytest.param("y = Identity (x)", id="input"),
        pytest.param("y = Trilu <upper = 0> (x)", id="with the diagonal"),
        pytest.param("y = Trilu <upper = 0> (x, one)", id="above the diagonal"),
        pytest.param("y = Trilu (x, one)", id="strictly upper"),
        pytest.param("y = Mul (x, tri)", id="inclusive mask"),
        pytest.param("y = Where (above, x, zero)", id="mask the wrong way"),
        pytest.param("a = Exp (x) y = Add (a, lower)", id="added mask"),
        pytest.param("a = Sub (x, ten) y = Relu (a)", id="relu"),
        pytest.param("a = Max (x, ten) y = Sub (a, ten)", id="max"),
        pytest.param("a = Clip (x, ten) y = Sub (a, ten)", id="clip"),
        pytest.param("a = Greater (x, ten) y = Where (a, x, zero)", id="where on data"),
        pytest.param(
            "a = Greater (x, ten) b = Cast <to = 1> (a) y = Mul (x, b)", id="mask of data"
        ),
        pytest.param("a = Cast <to = 7> (x) y = Cast <to = 1> (a)", id="truncated"),
        pytest.param("y = Floor (x)", id="floor"),
        pytest.param(
            "a = Div (x, three) b = Mul (x, third) y = Sub (a, b)", id="rounded reciprocal"
        ),
        pytest.param("a = Cast <to = 7> (z) y = Trilu <upper = 0> (x, a)", id="trilu by data"),
    ],
)
def test_not_established(nodes):
    assert fact_of(nodes, inputs="float[2,2] x, float z") is None


def test_a_finite_mask_is_no_mask_for_all_inputs():
    assert fact_of("a = Add (x, thousand) y = Exp (a)") is None


@pytest.mark.parametrize("inputs", ["float[3,2] x", "float[2] x", "int64[2,2] x", "float[2,2,n] x"])
def test_not_established_of_other_shapes_and_types(inputs):
    assert fact_of("a = Neg (x) y = Sub (a, a)", inputs=inputs) is None


@pytest.mark.parametrize(
    "nodes",
    [
        'y = ScatterElements <axis = 0, reduction = "add"> (x, at, z)',
        'y = ScatterElements <axis = 0, reduction = "mul"> (x, at, z)',
    ],
)
def test_an_op_that_cannot_be_evaluated_establishes_nothing(nodes):
    assert fact_of(nodes, inputs="float[2,2] x, float[1,2] z") is None


@pytest.mark.parametrize(("length", "is_known"), [(2, False), (3, False), (7, False), (None, True)])
def test_what_holds_at_one_length_alone_is_not_established(length, is_known):
    # A mask for every length, or one that is right for a number of matrices only.
    mask = "l = Trilu <upper = 0> (x, minus_one)"
    if length is not None:
        mask = f"""n = Shape <end = 1> (x) want = Constant <value_ints = [{length}]> ()
          same = Equal (n, want) away = Not (same) d = Cast <to = 1> (away) f = Reshape (d, scalar)
          low = Trilu <upper = 0> (x, minus_one) rest = Mul (x, f) l = Add (low, rest)"""
    model = model_of(
        f"g (float[N,2,2] x) => (float[N,2,2] y) "
        f"<{CONSTANTS}, int64[0] scalar = {{}}> {{ {mask} y = Neg (l) }}"
    )
    ir.passes.common.ShapeInferencePass()(model)
    fact = strictly_lower(model, value_of(model, "y"))
    assert (fact is not None) == is_known
    assert fact is None or fact.basis == "whatever 'x' are; ? tried at 2, 3, 7"


def test_the_search_ends():
    steps = [f"v{i + 1} = Neg (v{i})" for i in range(20)]
    assert fact_of(f"v0 = Mul (x, lower) {' '.join(steps)} y = Neg (v20)") is None


# --- What a user states ---------------------------------------------------------------------------


def test_a_user_may_state_a_fact():
    model = model_with("a = Neg (x) y = Neg (a)")
    assert strictly_lower(model, value_of(model, "a")) is None
    state(model, "a:strictly-lower")
    fact = strictly_lower(model, value_of(model, "a"))
    assert fact.basis == "stated by the user"
    assert str(fact) == "'a' is strictly lower (stated by the user)"
    assert strictly_lower(model, value_of(model, "x")) is None


def test_names_may_hold_colons():
    model = model_with("y = Neg (x)")
    value_of(model, "x").name = "x:0"
    state(model, "x:0:strictly-lower")
    assert strictly_lower(model, model.graph.inputs[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "--assume a: 'a' is no fact that can be stated; write NAME:FACT, where FACT is stri"),
        ("a:", "'' is no fact that can be stated"),
        ("a:lower", "'lower' is no fact that can be stated"),
        ("a:strictly_lower", "'strictly_lower' is no fact that can be stated"),
        ("b:strictly-lower", "--assume b:strictly-lower: the model has no value 'b'"),
        (":strictly-lower", "the model has no value ''"),
        ("v:strictly-lower", "'v' has shape [2]; name a value that is square on its last two axes"),
        ("w:strictly-lower", "'w' has shape [2,3]; name a value that is square"),
    ],
)
def test_what_a_user_may_not_state(text, message):
    inputs = "float[2,2] x, float[2] v, float[2,3] w"
    model = model_with("a = Neg (x) y = Neg (a)", inputs=inputs)
    with pytest.raises(ValueError, match="--assume") as caught:
        state(model, text)
    assert message in str(caught.value)


def test_facts_are_described_in_groups():
    facts = [
        Fact("a", "strictly-lower", "stated by the user"),
        Fact("b", "finite", "real arithmetic"),
    ]
    model = model_with("y = Neg (x)")
    facts += [finite(value_of(model, "x")), facts[0]]
    assert Fact.describe(facts) == [
        "'a' strictly lower (stated by the user)",
        "'b', 'x' finite (real arithmetic)",
    ]
    assert Fact.describe([]) == []
