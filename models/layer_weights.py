"""Weights of a Gated DeltaNet layer, random but such that a broken inverse shows."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from gdn_ir.models.gdn_sizes import GdnSizes

__all__ = ["CONV_KERNEL", "LayerWeights", "random_weights"]

CONV_KERNEL = 4  # taps of the causal convolution, as in all published models

Weight = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class LayerWeights:
    """The weights of one layer in float32, matrices as x @ W takes them.

    D is the hidden size, Hk and Hv the key and value heads, K and V their dims.

    Attributes:
        input_norm: [D], of the norm before the layer (transformers keep it less 1).
        qkv: [D, 2 Hk K + Hv V], the projections to q, k and v side by side.
        z: [D, Hv V], to the gate of the output.
        b, a: [D, Hv], to beta and to the decay.
        conv: [2 Hk K + Hv V, 1, 4], a filter a channel of q, k and v.
        dt_bias: [Hv].
        A_log: [Hv], log of the fastest decay of a head.
        norm: [V], of the gated norm.
        out: [Hv V, D].
    """

    input_norm: Weight
    qkv: Weight
    z: Weight
    b: Weight
    a: Weight
    conv: Weight
    dt_bias: Weight
    A_log: Weight
    norm: Weight
    out: Weight


def random_weights(sizes: GdnSizes, hidden_size: int, seed: int) -> LayerWeights:
    """The same weights for the same arguments; projections keep the scale of what they project.

    Decays are not random: softplus(a + dt_bias) is about 1.3, and the heads' factors run from .01
    to 1. The usual random start decays so fast that a broken inverse goes unseen.
    """
    rng = np.random.default_rng(seed)
    keys, values = sizes.key_heads * sizes.head_dim, sizes.heads * sizes.value_dim
    channels = 2 * keys + values

    def matrix(rows: int, columns: int) -> Weight:
        scaled: Weight = (rng.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)
        return scaled

    def around_one(size: int) -> Weight:
        near: Weight = (1 + 0.1 * rng.standard_normal(size)).astype(np.float32)
        return near

    return LayerWeights(
        input_norm=around_one(hidden_size),
        qkv=matrix(hidden_size, channels),
        z=matrix(hidden_size, values),
        b=matrix(hidden_size, sizes.heads),
        a=matrix(hidden_size, sizes.heads),
        conv=rng.uniform(-0.5, 0.5, (channels, 1, CONV_KERNEL)).astype(np.float32),
        dt_bias=np.ones(sizes.heads, np.float32),
        A_log=np.log(np.geomspace(0.01, 1.0, sizes.heads)).astype(np.float32),
        norm=around_one(sizes.value_dim),
        out=matrix(values, hidden_size),
    )
