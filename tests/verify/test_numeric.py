"""The numeric gate: what it lets pass, what it stops, and what it says."""

import dataclasses

import numpy as np
import pytest
from onnx_text import FUNCTION, model_of

from gdn_ir import runtime
from gdn_ir.rewrite import Rewrite, Sample
from gdn_ir.runtime import RunFailed
from gdn_ir.verify import VerificationFailed, numeric
from gdn_ir.verify.numeric import NumericGate, compare_models, is_small_enough

X = np.array([1.0, 2.0, 1 / 3])
CONSTANTS = "float big = {1e5}, float zero = {0}, float one = {1}, float minus = {-1}"


def text_of(nodes, dtype="float", out="float"):
    return f"g ({dtype}[3] x) => ({out}[3] y) <{CONSTANTS}> {{ {nodes} }}"


def rewrite_of(before, after, samples=None, **types):
    return Rewrite(
        pass_text="some-pass{leaf=2}",
        where="y",
        found="something",
        before=model_of(text_of(before, **types)),
        after=model_of(text_of(after, **types)),
        assumes=(),
        samples=lambda: samples or [Sample("thirds", {"x": X})],
    )


def gate(*rewrites):
    observer = NumericGate()
    for rewrite in rewrites:
        observer.rewrote(rewrite)
    return observer


def test_an_equal_rewrite_passes_and_its_errors_are_kept():
    found = gate(rewrite_of("y = Add (x, x)", "a = Exp (x) b = Log (a) y = Add (b, b)"))
    (error,) = found.errors
    assert (error.where, error.pass_text, error.sample) == ("y", "some-pass{leaf=2}", "thirds")
    assert error.before < 1e-7
    assert 0 < error.after < 1e-6
    assert found.seconds > 0


def test_a_rewrite_that_loses_accuracy_is_stopped_and_named():
    samples = [Sample("none", {"x": 0 * X}), Sample("thirds", {"x": X})]
    with pytest.raises(VerificationFailed) as caught:
        # 1/3 + 1e5 keeps two digits after the point in float32.
        gate(rewrite_of("y = Neg (x)", "a = Add (x, big) y = Sub (big, a)", samples))
    message = str(caught.value)
    assert message.startswith("numeric gate: pass 'some-pass{leaf=2}' at 'y': on thirds the error")
    assert "--verify none" in message
    before, after = message.split("grows from ")[1].split(" of scale")[0].split(" to ")
    assert float(before) < 1e-7
    assert float(after) == pytest.approx(np.abs(np.float32(X + 1e5) - 1e5 - X).max() / 2, rel=0.5)


def test_as_inaccurate_as_before_is_accurate_enough():
    lossy = "a = Add (x, big) y = Sub (a, big)"
    gate(rewrite_of(lossy, lossy.replace("a = Add (x, big)", "a = Add (big, x)")))
    gate(rewrite_of(lossy, "y = Identity (x)"))
    with pytest.raises(VerificationFailed):
        gate(rewrite_of("y = Identity (x)", lossy))


@pytest.mark.parametrize(
    ("before", "after", "passes"),
    [
        pytest.param(
            "y = Log (x)", "a = Log (x) y = Identity (a)", True, id="NaN in the same place"
        ),
        pytest.param("y = Neg (x)", "a = Sub (zero, x) y = Identity (a)", True, id="none"),
        pytest.param(
            "y = Neg (x)", "a = Log (x) b = Sub (a, a) y = Sub (b, x)", False, id="new NaN"
        ),
        pytest.param("y = Log (x)", "a = Abs (x) y = Log (a)", False, id="NaN gone"),
        pytest.param(
            "a = Div (x, zero) y = Abs (a)", "a = Abs (x) y = Div (a, zero)", True, id="inf"
        ),
        pytest.param("y = Div (x, zero)", "a = Abs (x) y = Div (a, zero)", False, id="sign of inf"),
        pytest.param("y = Abs (x)", "y = Div (x, zero)", False, id="new inf"),
    ],
)
def test_nan_and_infinity_stay_where_they_are(before, after, passes):
    rewrite = rewrite_of(before, after, [Sample("signs", {"x": np.array([1.0, -2.0, 3.0])})])
    if passes:
        gate(rewrite)
    else:
        with pytest.raises(VerificationFailed, match="at 'y': on signs"):
            gate(rewrite)


@pytest.mark.parametrize(("offset", "passes"), [(7, True), (9, False)])
@pytest.mark.parametrize("narrow", ["float", "float16"])
def test_the_floor_is_eight_eps_of_the_type(narrow, offset, passes):
    eps = np.finfo({"float": np.float32, "float16": np.float16}[narrow]).eps
    factor = f"c = Constant <value_float = {1 + offset * eps:.12f}> () d = CastLike (c, x)"
    sample = [Sample("ones", {"x": np.ones(3)})]
    rewrite = rewrite_of(
        "y = Identity (x)", f"{factor} y = Mul (x, d)", sample, dtype=narrow, out=narrow
    )
    if passes:
        assert gate(rewrite).errors[0].after == pytest.approx(offset * eps)
    else:
        with pytest.raises(VerificationFailed):
            gate(rewrite)


def test_samples_are_rounded_to_the_input_s_type_first():
    # 1/3 in float16 is off by 8e-5, which is no error of either region.
    found = gate(
        rewrite_of("y = Neg (x)", "a = Neg (x) y = Identity (a)", dtype="float16", out="float16")
    )
    assert found.errors[0].before == 0


@pytest.mark.parametrize(
    ("dtype", "x"), [("int64", np.array([1, 2, 3])), ("bool", np.array([True, False, True]))]
)
def test_outputs_that_are_no_floats_must_be_equal(dtype, x):
    types, sample = {"dtype": dtype, "out": dtype}, [Sample("few", {"x": x})]
    same = "a = Identity (x) y = Identity (a)"
    gate(rewrite_of("y = Identity (x)", same, sample, **types))
    other = {"int64": "y = Add (x, x)", "bool": "y = Not (x)"}[dtype]
    with pytest.raises(VerificationFailed):
        gate(rewrite_of("y = Identity (x)", other, sample, **types))


def test_a_replacement_of_another_shape_is_stopped():
    rewrite = rewrite_of("y = Neg (x)", "a = Neg (x) y = Identity (a)")
    text = "g (float[3] x) => (float[a] y) <int64[1] none = {0}, int64[1] two = {2}> "
    shorter = model_of(text + "{ a = Neg (x) y = Slice (a, none, two) }")
    with pytest.raises(VerificationFailed):
        gate(dataclasses.replace(rewrite, after=shorter))


def test_regions_that_are_written_alike_run_once(monkeypatch):
    opened = []
    session = runtime.session
    monkeypatch.setattr(runtime, "session", lambda model: opened.append(model) or session(model))
    first = rewrite_of("y = Neg (x)", "y = Sub (zero, x)")
    again = rewrite_of("y = Neg (x)", "y = Sub (zero, x)")
    other = rewrite_of("y = Neg (x)", "y = Mul (minus, x)")
    found = gate(first, again, other, again)
    assert opened == [first.before, first.after, other.before, other.after]
    assert (found.repeated, len(found.errors)) == (2, 2)


def test_regions_that_call_other_functions_are_not_alike():
    observer = NumericGate()
    sample = Sample("few", {"x": np.array([1.0, -2.0])})
    for text in (FUNCTION, FUNCTION.replace("Neg", "Abs")):
        before, after = model_of(text), model_of(text)
        observer.rewrote(Rewrite("p", "y", "", before, after, (), lambda: [sample]))
    assert (observer.repeated, len(observer.errors)) == (0, 2)


def test_a_region_that_failed_is_not_taken_for_one_that_passed():
    observer = NumericGate()
    for _ in range(2):
        with pytest.raises(VerificationFailed):
            observer.rewrote(rewrite_of("y = Neg (x)", "y = Abs (x)"))
    assert observer.repeated == 0


# --- Whole models ---------------------------------------------------------------------------------


def compared(before, after, x=X, **types):
    models = [model_of(text_of(nodes, **types)) for nodes in (before, after)]
    return compare_models(*models, {"x": x.astype(np.float32)})


def test_equal_models():
    (error,) = compared("y = Neg (x)", "a = Sub (zero, x) y = Identity (a)")
    assert (error.output, error.difference) == ("y", 0)


@pytest.mark.parametrize(("offset", "passes"), [(80, True), (90, False)])
def test_whole_models_may_differ_by_84_eps(offset, passes):
    after = f"c = Constant <value_float = {1 + offset * 2**-23:.12f}> () y = Mul (x, c)"
    ones = np.ones(3)
    if passes:
        assert compared("y = Identity (x)", after, ones)[0].difference == pytest.approx(
            offset * 2**-23
        )
    else:
        with pytest.raises(VerificationFailed, match="output 'y' of the whole model differs by"):
            compared("y = Identity (x)", after, ones)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("y = Neg (x)", "a = Neg (x) b = Log (a) c = Sub (b, b) y = Add (c, a)"),
        ("y = Log (x)", "a = Abs (x) y = Log (a)"),
        ("y = Div (x, zero)", "a = Abs (x) y = Div (a, zero)"),
    ],
)
def test_whole_models_have_the_same_special_values(before, after):
    with pytest.raises(VerificationFailed, match="'y'"):
        compared(before, after, np.array([-1, 2, 3]))


def test_nan_in_the_same_places_is_equal():
    (error,) = compared("y = Log (x)", "a = Log (x) y = Identity (a)", np.array([-1, 2, 3]))
    assert error.difference == 0


def test_integer_outputs_must_be_equal():
    types = {"out": "int64"}
    rounds = "a = Mul (x, {}) b = Floor (a) y = Cast <to = 7> (b)"
    (error,) = compared(rounds.format("one"), rounds.format("one"), **types)
    assert error.difference == 0
    with pytest.raises(VerificationFailed, match=r"differs by inf .* at most 0\.0e\+00"):
        compared(rounds.format("one"), rounds.format("minus"), **types)


def test_each_output_is_compared():
    text = "g (float[3] x) => (float[3] y, float[3] z) {{ y = Neg (x) z = {} (x) }}"
    feeds = {"x": X.astype(np.float32)}
    one, other = model_of(text.format("Exp")), model_of(text.format("Abs"))
    assert [error.output for error in compare_models(one, one, feeds)] == ["y", "z"]
    with pytest.raises(VerificationFailed, match="output 'z'"):
        compare_models(one, other, feeds)


def test_outputs_of_another_shape_are_not_equal():
    text = "g (float[2,3] x) => (float[a,b] y) { z = Neg (x) y = Identity (z) }"
    one, other = model_of(text), model_of(text.replace("y = Identity", "y = Transpose"))
    with pytest.raises(VerificationFailed, match="'y'"):
        compare_models(one, other, {"x": np.ones((2, 3), np.float32)})


def test_a_model_that_does_not_run_is_not_compared():
    with pytest.raises(RunFailed):
        compared("y = Reshape (x, x)", "y = Neg (x)")


def test_a_model_that_does_not_run_any_more_is_rejected():
    with pytest.raises(VerificationFailed, match="does not run any more: ONNX Runtime"):
        compared("y = Neg (x)", "y = Reshape (x, x)")


def test_a_replacement_that_does_not_run_is_rejected():
    with pytest.raises(VerificationFailed, match=r"'some-pass\{leaf=2\}': what it made does not"):
        gate(rewrite_of("y = Neg (x)", "y = Reshape (x, x)"))


def test_what_never_ran_is_reported_and_not_measured():
    found = gate(rewrite_of("y = Reshape (x, x)", "y = Neg (x)"))
    (left,) = found.not_run
    assert str(left).startswith("not run: 'y' (some-pass{leaf=2}): ONNX Runtime: ")
    assert found.errors == []


def test_models_of_much_weight_are_not_run_whole(monkeypatch):
    model = model_of(text_of("y = Neg (x)"))  # four scalars
    assert is_small_enough(model)
    monkeypatch.setattr(numeric, "_WHOLE_LIMIT", 15)
    assert not is_small_enough(model)
