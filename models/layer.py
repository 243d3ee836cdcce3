"""A whole Gated DeltaNet layer as torch.onnx leaves it, or several in a row.

The layer is the `GatedDeltaNet` module of Qwen3-Next and Qwen3.5; its formulas are those of
`gdn_ir.models.layer_reference.layer`. In float16, what transformers computes in float32 is computed
in float32 here: g, the norms and the gate.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gdn_ir.models.chunk_parts import Operands
from gdn_ir.models.gdn_sizes import GdnSizes
from gdn_ir.models.graph_writer import GraphWriter
from gdn_ir.models.layer_reference import EPSILON
from gdn_ir.models.layer_weights import CONV_KERNEL, LayerWeights
from gdn_ir.models.rule_form import RuleForm

__all__ = ["GatedDeltaNet"]

_FLOAT = ir.DataType.FLOAT


class GatedDeltaNet:
    """Writes layers of one size and form into one graph."""

    def __init__(self, form: RuleForm, sizes: GdnSizes, dtype: ir.DataType) -> None:
        self._form = form
        self._sizes = sizes
        self._dtype = dtype

    def layer(
        self,
        w: GraphWriter,
        hidden: ir.Value,
        tokens: ir.Value,
        weights: LayerWeights,
        state: ir.Value,
        *,
        final_state: bool,
    ) -> tuple[ir.Value, ir.Value | None]:
        """From hidden [B,T,D] to the layer's output [B,T,D] and, if asked for, its last state.

        `tokens` is [T], `state` [B,Hv,K,V].
        """
        mixed = self._project(w, hidden, weights.qkv, "qkv")
        channels_first = w.op("Transpose", mixed, name="qkv_channels_first", perm=[0, 2, 1])
        z, b, a = (
            self._project(w, hidden, weight, name)
            for name, weight in (("z", weights.z), ("b", weights.b), ("a", weights.a))
        )
        q, k, v = self._convolve(w, channels_first, tokens, weights)
        beta = w.op("Sigmoid", b, name="beta")
        g = self._log_decay(w, a, weights)
        o, last = self._form.write(
            w,
            Operands(q=q, k=k, v=v, beta=beta, g=g),
            state,
            self._sizes,
            l2norm=True,
            dtype=self._dtype,
            final_state=final_state,
        )
        gated = self._gated_norm(w, o, z, weights)
        return self._project(w, gated, weights.out, "out"), last

    def input_norm(self, w: GraphWriter, x: ir.Value, weights: LayerWeights) -> ir.Value:
        """The norm before a layer of a residual stack."""
        normalised = _normalise(w, self._cast(w, x, _FLOAT, "input_f32"), "input")
        scale = w.constant("input_norm_weight", weights.input_norm)
        scaled = w.op("Mul", normalised, scale, name="input_scaled")
        return self._cast(w, scaled, self._dtype, "input_scaled_half")

    def _project(self, w: GraphWriter, x: ir.Value, weight: np.ndarray, name: str) -> ir.Value:
        matrix = w.constant(f"{name}_weight", weight.astype(self._dtype.numpy()))
        return w.op("MatMul", x, matrix, name=name)

    def _convolve(
        self, w: GraphWriter, x: ir.Value, tokens: ir.Value, weights: LayerWeights
    ) -> list[ir.Value]:
        """Causal convolution and SiLU of [B,channels,T]; then q, k and v [B,T,heads,dim]."""
        sizes = self._sizes
        keys, values = sizes.key_heads * sizes.head_dim, sizes.heads * sizes.value_dim
        # Padded on both sides and cut: torch's Conv1d cannot pad the start alone.
        convolved = w.op(
            "Conv",
            x,
            w.constant("conv_weight", weights.conv.astype(self._dtype.numpy())),
            name="conv",
            group=2 * keys + values,
            pads=[CONV_KERNEL - 1] * 2,
            auto_pad="NOTSET",
            strides=[1],
            dilations=[1],
            kernel_shape=[CONV_KERNEL],
        )
        bounds = [w.ints([0]), tokens, w.ints([2]), w.ints([1])]
        causal = w.op("Slice", convolved, *bounds, name="conv_causal")
        mixed = w.op("Transpose", _silu(w, causal, "conv"), name="conv_mixed", perm=[0, 2, 1])
        names = ["q_flat", "k_flat", "v_flat"]
        flat = w.ops("Split", mixed, w.ints([keys, keys, values]), names=names, axis=2)
        heads = [(sizes.key_heads, sizes.head_dim)] * 2 + [(sizes.heads, sizes.value_dim)]
        return [
            w.op("Reshape", x, w.ints([sizes.batch, -1, *dims]), name=name, allowzero=1)
            for x, dims, name in zip(flat, heads, "qkv", strict=True)
        ]

    def _log_decay(self, w: GraphWriter, a: ir.Value, weights: LayerWeights) -> ir.Value:
        """g = -exp(A_log) * softplus(a + dt_bias) [B,T,Hv] in float32; exporters fold the first."""
        a = self._cast(w, a, _FLOAT, "a_f32")
        steps = w.op("Add", a, w.constant("dt_bias", weights.dt_bias), name="dt")
        # torch's softplus is the identity from 20 on, and the exporter writes that out.
        soft = w.op("Softplus", steps, name="dt_soft")
        large = w.op("Greater", steps, w.scalar(20.0, _FLOAT), name="dt_is_large")
        soft = w.op("Where", large, steps, soft, name="dt_positive")
        rates = w.constant("minus_A", -np.exp(weights.A_log))
        g = w.op("Mul", rates, soft, name="g")
        return w.annotate(g, _FLOAT, (self._sizes.batch, self._sizes.seq_dim, self._sizes.heads))

    def _gated_norm(
        self, w: GraphWriter, o: ir.Value, z: ir.Value, weights: LayerWeights
    ) -> ir.Value:
        """(rms_norm(o) * silu(z)) [B,T,Hv V]: the norm sees one head at a time."""
        rows = w.ints([-1, self._sizes.value_dim])
        o = w.op("Reshape", o, rows, name="o_rows", allowzero=1)
        z = w.op("Reshape", z, rows, name="z_rows")
        normalised = _normalise(w, self._cast(w, o, _FLOAT, "o_rows_f32"), "o")
        normalised = self._cast(w, normalised, self._dtype, "o_normalised_half")
        scale = w.constant("norm_weight", weights.norm.astype(self._dtype.numpy()))
        scaled = w.op("Mul", scale, normalised, name="o_scaled")
        gate = _silu(w, self._cast(w, z, _FLOAT, "z_f32"), "z")
        scaled = self._cast(w, scaled, _FLOAT, "o_scaled_f32")
        gated = w.op("Mul", scaled, gate, name="o_gated")
        gated = self._cast(w, gated, self._dtype, "o_gated_half")
        shape = w.ints([self._sizes.batch, -1, self._sizes.heads * self._sizes.value_dim])
        return w.op("Reshape", gated, shape, name="o_flat", allowzero=1)

    def _cast(self, w: GraphWriter, x: ir.Value, to: ir.DataType, name: str) -> ir.Value:
        """A Cast where the layer is not in float32 anyway."""
        if self._dtype == _FLOAT:
            return x
        return w.op("Cast", x, name=name, to=to.value)


def _normalise(w: GraphWriter, x: ir.Value, name: str) -> ir.Value:
    """x / sqrt(mean(x^2) + eps) over the last axis of a float32 value."""
    squares = w.op("Pow", x, w.scalar(2.0, _FLOAT), name=f"{name}_squares")
    mean = w.op(
        "ReduceMean",
        squares,
        w.ints([-1]),
        name=f"{name}_mean",
        noop_with_empty_axes=0,
        keepdims=1,
    )
    mean = w.op("Add", mean, w.scalar(EPSILON, _FLOAT), name=f"{name}_mean_eps")
    root = w.op("Sqrt", mean, name=f"{name}_rms")
    return w.op("Mul", x, w.op("Reciprocal", root, name=f"{name}_inverse_rms"), name=f"{name}_unit")


def _silu(w: GraphWriter, x: ir.Value, name: str) -> ir.Value:
    return w.op("Mul", x, w.op("Sigmoid", x, name=f"{name}_sigmoid"), name=f"{name}_silu")
