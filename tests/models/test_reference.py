"""The float64 reference: against hand, against onnx's own operator, and against itself."""

import numpy as np
import onnx
import onnx.reference
import pytest

from gdn_ir.models.reference import (
    adversarial_inputs,
    chunked,
    l2norm,
    recurrence,
    unit_lower_inverse,
)

SHAPES = {
    "whole": {},
    "ragged": {"seq": 100},
    "short": {"seq": 7, "state": True},
    "one-token": {"seq": 1, "state": True},
    "gqa-state-wide": {"batch": 2, "seq": 70, "heads": 4, "key_heads": 2, "head_dim": 16,
                       "value_dim": 24, "state": True},
}  # fmt: skip
FAMILIES = list(adversarial_inputs(seq=1))


def relative_error(actual, expected):
    return float(np.max(np.abs(actual - expected)) / np.max(np.abs(expected)))


def test_two_tokens_by_hand():
    # K = V = 1, decay 1/2, scale 1: after token 1 the state is 2 / 2 + .5 (3 - 2 / 2) = 2, after
    # token 2 it is 2 / 2 + 1 (5 - 2 / 2) = 5.
    ones = np.ones((1, 2, 1, 1))
    output, state = recurrence(
        2 * ones,
        ones,
        np.array([3.0, 5.0]).reshape(1, 2, 1, 1),
        np.log(0.5) * ones[..., 0],
        np.array([0.5, 1.0]).reshape(1, 2, 1),
        state=np.full((1, 1, 1, 1), 2.0),
        scale=1.0,
    )
    np.testing.assert_allclose(output.ravel(), [4.0, 10.0])
    np.testing.assert_allclose(state.ravel(), [5.0])


def test_agrees_with_the_standard_operator():
    if not onnx.defs.has("LinearAttention"):
        pytest.skip("this onnx has no LinearAttention (opset 27)")
    x = adversarial_inputs(seq=20, heads=2, value_dim=8, head_dim=4, state=True)["random"]
    flat = {name: a.reshape(1, 20, -1) if name != "state" else a for name, a in x.items()}
    node = onnx.helper.make_node(
        "LinearAttention",
        ["q", "k", "v", "state", "g", "beta"],
        ["o", "final_state"],
        q_num_heads=2,
        kv_num_heads=2,
        update_rule="gated_delta",
    )
    run = onnx.reference.ReferenceEvaluator(node).run
    actual = run(None, {name: a.astype(np.float32) for name, a in flat.items()})
    output, state = recurrence(**x)
    assert relative_error(actual[0].reshape(output.shape), output) < 1e-5
    assert relative_error(actual[1], state) < 1e-5


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("chunk", [16, 64])
def test_chunks_equal_tokens(shape, family, chunk):
    x = adversarial_inputs(**SHAPES[shape])[family]
    for actual, expected in zip(chunked(**x, chunk=chunk), recurrence(**x), strict=True):
        assert actual.shape == expected.shape
        assert relative_error(actual, expected) < 1e-12


def test_constant_extreme_decay():
    x = adversarial_inputs(state=True)["random"]
    x["g"] = np.full_like(x["g"], -167.0)
    for actual, expected in zip(chunked(**x), recurrence(**x), strict=True):
        assert relative_error(actual, expected) < 1e-12


def test_a_chunk_of_one_token_is_the_recurrence():
    x = adversarial_inputs(seq=9)["random"]
    assert relative_error(chunked(**x, chunk=1)[0], recurrence(**x)[0]) < 1e-14


def test_state_carries_over():
    x = adversarial_inputs(seq=90, state=True)["cosine"]
    whole, final = recurrence(**x)
    first = {n: a[:, :37] if n != "state" else a for n, a in x.items()}
    rest = {n: a[:, 37:] for n, a in x.items() if n != "state"}
    head, middle = chunked(**first)
    tail, end = chunked(**rest, state=middle)
    assert relative_error(np.concatenate([head, tail], axis=1), whole) < 1e-12
    assert relative_error(end, final) < 1e-12


def test_key_heads_serve_consecutive_value_heads():
    x = adversarial_inputs(seq=5, heads=4, key_heads=2)["random"]
    repeated = x | {n: x[n][:, :, [0, 0, 1, 1]] for n in ("q", "k")}
    np.testing.assert_array_equal(recurrence(**x)[0], recurrence(**repeated)[0])


def test_inputs_are_what_their_names_say():
    families = adversarial_inputs(seq=64, heads=4, key_heads=2, value_dim=8, state=True, seed=3)
    for x in families.values():
        assert x["k"].shape == (1, 64, 2, 32)
        assert x["v"].shape == (1, 64, 4, 8)
        assert x["state"].shape == (1, 4, 32, 8)
        assert all(a.dtype == np.float64 for a in x.values())
        np.testing.assert_allclose(np.linalg.norm(x["k"], axis=-1), 1.0)
        assert np.all(x["g"] <= 0)
    k = families["cosine"]["k"][0, :, 0]
    assert np.mean((k @ k.T)[np.triu_indices(64, 1)]) == pytest.approx(0.8, abs=0.03)
    np.testing.assert_array_equal(
        families["repeated_tokens"]["v"][:, :4], families["repeated_tokens"]["v"][:, 60:]
    )
    assert families["strong_decay"]["g"].min() < -150
    again = adversarial_inputs(seq=64, heads=4, key_heads=2, value_dim=8, state=True, seed=3)
    for name, x in families.items():
        for operand in x:
            np.testing.assert_array_equal(x[operand], again[name][operand])


def test_inputs_of_one_family_defeat_the_neumann_product():
    # Why the families exist: in float32 the product of powers loses every digit on them.
    x = adversarial_inputs()["identical_keys"]
    k = x["k"][0, :64, 0].astype(np.float32)
    a = -np.tril(k @ k.T, -1)
    product, power = np.eye(64, dtype=np.float32) + a, a @ a
    for _ in range(5):
        product, power = product + power @ product, power @ power
    assert np.max(np.abs(product - unit_lower_inverse(a))) > 1e3


def test_unit_lower_inverse():
    a = np.tril(np.random.default_rng(0).standard_normal((3, 20, 20)), -1) / 4
    eye = np.broadcast_to(np.eye(20), a.shape)
    np.testing.assert_allclose(unit_lower_inverse(a) @ (eye - a), eye, atol=1e-12)


def test_l2norm():
    np.testing.assert_allclose(l2norm([[3.0, 4.0]], eps=0.0), [[0.6, 0.8]])
    np.testing.assert_array_equal(l2norm(np.zeros((2, 3))), np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("operand", "shape", "message"),
    [
        ("q", (1, 8, 2, 16), "q has shape"),
        ("v", (1, 9, 2, 32), "v has shape"),
        ("v", (1, 8, 2), "rank 4"),
        ("v", (1, 8, 3, 32), "multiple"),
        ("g", (1, 8), "g has shape"),
        ("beta", (1, 8, 1), "beta has shape"),
        ("state", (2, 2, 32, 32), "state has shape"),
    ],
)
def test_shapes_are_checked(operand, shape, message):
    x = adversarial_inputs(seq=8)["random"] | {operand: np.zeros(shape)}
    with pytest.raises(ValueError, match=message):
        recurrence(**x)


def test_chunk_is_checked():
    with pytest.raises(ValueError, match="chunk is 0"):
        chunked(**adversarial_inputs(seq=8)["random"], chunk=0)
