"""A Gated DeltaNet layer in float64 numpy, around the rule of `gdn_ir.models.reference`.

The layer is the `GatedDeltaNet` module of Qwen3-Next and Qwen3.5 in transformers. B is the batch, T
the sequence length, D the hidden size; the rest is as in `gdn_ir.models.reference`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gdn_ir.models.layer_weights import LayerWeights
from gdn_ir.models.reference import Array, l2norm, recurrence

__all__ = ["EPSILON", "layer", "residual_layers", "rms_norm"]

EPSILON = 1e-6  # of the norms, inside the root


def rms_norm(x: npt.ArrayLike, weight: npt.ArrayLike) -> Array:
    """weight * x / sqrt(mean(x^2) + 1e-6) over the last axis."""
    x = np.asarray(x, np.float64)
    normalised: Array = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON)
    return np.asarray(weight, np.float64) * normalised


def layer(
    hidden: npt.ArrayLike,
    weights: LayerWeights,
    head_dim: int,
    state: npt.ArrayLike | None = None,
) -> tuple[Array, Array]:
    """One layer, without the norm and the residual around it.

        q, k, v = silu(causal_conv(hidden W_qkv))       the convolution starts from zeros
        beta    = sigmoid(hidden W_b)
        g       = -exp(A_log) * softplus(hidden W_a + dt_bias)
        o       = rule(l2norm(q), l2norm(k), v, g, beta, state)
        output  = (rms_norm(o, norm) * silu(hidden W_z)) W_out

    Args:
        hidden: [B, T, D].
        weights: of the layer.
        head_dim: K, which the weights' shapes leave open.
        state: [B, Hv, K, V], zeros by default.

    Returns the output [B, T, D] and the final state [B, Hv, K, V].
    Raises ValueError where the shapes do not agree.
    Source: arXiv 2412.06464, section 3.4, and transformers' `modeling_qwen3_next.py`.
    """
    x = np.asarray(hidden, np.float64)
    heads, value_dim = weights.A_log.size, weights.norm.size
    keys = (weights.qkv.shape[1] - heads * value_dim) // 2
    mixed = _silu(_causal_conv(x @ weights.qkv.astype(np.float64), weights.conv))
    q, k, v = np.split(mixed, [keys, 2 * keys], axis=-1)

    def by_heads(value: Array, dim: int) -> Array:
        return value.reshape(*value.shape[:2], -1, dim)

    decay = x @ weights.a.astype(np.float64) + weights.dt_bias
    o, final_state = recurrence(
        l2norm(by_heads(q, head_dim)),
        l2norm(by_heads(k, head_dim)),
        by_heads(v, value_dim),
        g=-np.exp(weights.A_log.astype(np.float64)) * np.logaddexp(0.0, decay),
        beta=_sigmoid(x @ weights.b.astype(np.float64)),
        state=state,
    )
    gate = _silu(by_heads(x @ weights.z.astype(np.float64), value_dim))
    gated = rms_norm(o, weights.norm) * gate
    output: Array = gated.reshape(*x.shape[:2], -1) @ weights.out.astype(np.float64)
    return output, final_state


def residual_layers(
    hidden: npt.ArrayLike,
    weights: Sequence[LayerWeights],
    head_dim: int,
    states: Sequence[npt.ArrayLike | None] | None = None,
) -> tuple[Array, list[Array]]:
    """Layers in a row, each as x + layer(rms_norm(x)); returns the output and all final states."""
    x = np.asarray(hidden, np.float64)
    first_states: Sequence[npt.ArrayLike | None] = (
        [None] * len(weights) if states is None else states
    )
    final_states = []
    for w, state in zip(weights, first_states, strict=True):
        output, final_state = layer(rms_norm(x, w.input_norm), w, head_dim, state)
        x = x + output
        final_states.append(final_state)
    return x, final_states


def _causal_conv(x: Array, filters: npt.ArrayLike) -> Array:
    """y_t = sum_i filter_i x_(t - 3 + i) for each channel; x [B,T,channels]."""
    taps = np.asarray(filters, np.float64)[:, 0].T
    padded = np.pad(x, [(0, 0), (len(taps) - 1, 0), (0, 0)])
    shifted = [tap * padded[:, i : i + x.shape[1]] for i, tap in enumerate(taps)]
    total: Array = np.sum(shifted, axis=0)
    return total


def _sigmoid(x: Array) -> Array:
    half: Array = 0.5 * (1.0 + np.tanh(0.5 * x))
    return half


def _silu(x: Array) -> Array:
    return x * _sigmoid(x)
