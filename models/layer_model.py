"""Models of whole Gated DeltaNet layers, with random weights inside."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gdn_ir.models.element_types import DType, element_type
from gdn_ir.models.gdn_sizes import GdnSizes
from gdn_ir.models.graph_writer import GraphWriter
from gdn_ir.models.layer import GatedDeltaNet
from gdn_ir.models.layer_weights import random_weights
from gdn_ir.models.rule_form import RuleForm

__all__ = ["build_layer"]


def build_layer(
    form: RuleForm,
    *,
    layers: int | None = None,
    hidden_size: int | None = None,
    batch: int = 1,
    seq: int | None = None,
    heads: int = 2,
    key_heads: int | None = None,
    head_dim: int = 32,
    value_dim: int | None = None,
    state: bool = False,
    dtype: DType = "float32",
    seed: int = 0,
) -> ir.Model:
    """One bare layer, or several in a row with norms and residuals; opset 20.

    Inputs: hidden [B, T, D] and, if asked for, `layer0_state` and so on [B, Hv, K, V]. Outputs:
    `output` [B, T, D] and a `layer0_final_state` for each state. All names of a layer begin with
    its own; its formulas are those of `gdn_ir.models.layer_reference`. q and k are normalised
    inside. A state is that of the rule: the convolution always starts from zeros.

    Args:
        form: how the rule in each layer is written.
        layers: None for one bare layer, the module of transformers; else how many there are, each
            as x + layer(rms_norm(x)).
        hidden_size: D, Hv * V by default.
        batch: B.
        seq: T, or None for the symbolic dimension `S`, which form unrolled does not allow.
        heads: Hv, the value heads.
        key_heads: Hk, the query and key heads; `heads` by default, else one of its divisors.
        head_dim: K.
        value_dim: V, `head_dim` by default.
        state: whether the states are carried in and out.
        dtype: of hidden, the weights and the output. g, the norms, the gate and everything in the
            rule are float32 whatever `dtype` says, as in transformers.
        seed: layer i has the weights of `random_weights` with seed + i.

    Raises:
        ValueError: names the argument and what it may be.
    """
    sizes = form.sizes(
        batch=batch,
        seq=seq,
        heads=heads,
        key_heads=key_heads,
        head_dim=head_dim,
        value_dim=value_dim,
    )
    if hidden_size is None:
        hidden_size = heads * sizes.value_dim
    for name, value in (("hidden_size", hidden_size), ("layers", 1 if layers is None else layers)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} is {value!r}; it must be an integer >= 1")
    element = element_type(dtype)

    w = GraphWriter("gated_deltanet")
    shape = (batch, sizes.seq_dim, hidden_size)
    x = w.input("hidden", element, shape)
    tokens = _token_count(w, x, sizes)
    written = GatedDeltaNet(form, sizes, element)
    last_states = []
    for index in range(layers or 1):
        weights = random_weights(sizes, hidden_size, seed + index)
        with w.prefixed(f"layer{index}_"):
            first = _first_state(w, sizes, given=state)
            taken = x if layers is None else written.input_norm(w, x, weights)
            out, last = written.layer(w, taken, tokens, weights, first, final_state=state)
            x = out if layers is None else w.op("Add", x, out, name="residual")
        if last is not None:
            last_states.append(w.annotate(last, ir.DataType.FLOAT, sizes.state_shape))
    w.output(w.annotate(x, element, shape), name="output")
    for last in last_states:
        w.output(last)
    return w.model()


def _token_count(w: GraphWriter, hidden: ir.Value, sizes: GdnSizes) -> ir.Value:
    """[T], measured where it is not known."""
    if sizes.seq is not None:
        return w.ints([sizes.seq])
    return w.op("Shape", hidden, name="tokens", start=1, end=2)


def _first_state(w: GraphWriter, sizes: GdnSizes, *, given: bool) -> ir.Value:
    if given:
        return w.input("state", ir.DataType.FLOAT, sizes.state_shape)
    return w.constant("zero_state", np.zeros(sizes.state_shape, np.float32))
