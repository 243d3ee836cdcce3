"""The gated delta rule as an exporter leaves it: the graph that the passes have to improve.

It has the ops, the order and the attributes of what torch.onnx (dynamo) makes of transformers'
`torch_chunk_gated_delta_rule`, and needs neither torch nor transformers. The formulas are those of
`gdn_ir.models.reference.chunked`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import onnx_ir as ir

from gdn_ir.models.chunk_parts import Operands
from gdn_ir.models.fill_inf import fill_inf_rule
from gdn_ir.models.fill_zero import fill_zero_rule
from gdn_ir.models.gdn_sizes import GdnSizes
from gdn_ir.models.graph_writer import GraphWriter

__all__ = ["DType", "Mask", "build_unrolled"]

DType = Literal["float32", "float16"]
Mask = Literal["fill-zero", "fill-inf"]

_DTYPES = {"float32": ir.DataType.FLOAT, "float16": ir.DataType.FLOAT16}
_RULES = {"fill-zero": fill_zero_rule, "fill-inf": fill_inf_rule}


def build_unrolled(
    *,
    batch: int = 1,
    seq: int = 128,
    heads: int = 2,
    key_heads: int | None = None,
    head_dim: int = 32,
    value_dim: int | None = None,
    chunk: int = 64,
    state: bool = False,
    l2norm: bool = False,
    dtype: DType = "float32",
    mask: Mask = "fill-inf",
) -> ir.Model:
    """The chunk form with all its loops unrolled, opset 20, static shapes.

    Inputs: q, k [B, T, Hk, K], v [B, T, Hv, V], g (log-decay, <= 0), beta [B, T, Hv], and `state`
    [B, Hv, K, V] if asked for. Outputs: o [B, T, Hv, V], and `final_state` [B, Hv, K, V] exactly
    when there is a `state` input; without one the rule starts from a zeros initializer.

    Args:
        batch: B.
        seq: T, any number of tokens. A ragged end is really padded and cut off again; whole
            chunks still carry five Pad nodes that add nothing, as exports do.
        heads: Hv, the value heads.
        key_heads: Hk, the query and key heads; `heads` by default, else one of its divisors.
        head_dim: K.
        value_dim: V, `head_dim` by default.
        chunk: C, tokens in a chunk, at least 2. C - 1 copies of the row step are written.
        state: whether the state is carried in and out.
        l2norm: whether q and k are normalised inside the graph, else the caller did it.
        dtype: of q, k, v, g, beta and o. The state is float32 whatever `dtype` says: as in
            transformers, float16 is cast on entry, everything between is float32, and only o is
            cast back.
        mask: `fill-inf`, today's form (transformers 5.17 and later), fills with -inf and then takes
            exp, once. `fill-zero`, the older one, takes exp between two Trilu, fills A with
            zeros, and the attention inside a chunk again in every step of the chunk loop. It
            normalises before the cast, so with `l2norm` and float16 that part runs in float16.

    Raises:
        ValueError: names the argument and what it may be.
    """
    sizes = GdnSizes(
        batch=batch,
        seq=seq,
        heads=heads,
        key_heads=heads if key_heads is None else key_heads,
        head_dim=head_dim,
        value_dim=head_dim if value_dim is None else value_dim,
        chunk=chunk,
    )
    if dtype not in _DTYPES:
        raise ValueError(f"dtype is {dtype!r}; it must be one of {', '.join(_DTYPES)}")
    if mask not in _RULES:
        raise ValueError(f"mask is {mask!r}; it must be one of {', '.join(_RULES)}")

    w = GraphWriter("gated_delta_rule")
    operand_dtype = _DTYPES[dtype]
    qk_shape, gate_shape = (batch, seq, sizes.key_heads, head_dim), (batch, seq, heads)
    q = w.input("q", operand_dtype, qk_shape)
    k = w.input("k", operand_dtype, qk_shape)
    v = w.input("v", operand_dtype, (batch, seq, heads, sizes.value_dim))
    g = w.input("g", operand_dtype, gate_shape)
    beta = w.input("beta", operand_dtype, gate_shape)
    if state:
        first_state = w.input("state", ir.DataType.FLOAT, sizes.state_shape)
    else:
        first_state = w.constant("zero_state", np.zeros(sizes.state_shape, np.float32))

    output, final_state = _RULES[mask](
        w,
        Operands(q=q, k=k, v=v, g=g, beta=beta),
        first_state,
        sizes,
        l2norm=l2norm,
        dtype=operand_dtype,
        final_state=state,
    )
    w.output(output)
    if final_state is not None:
        w.output(final_state)
    return w.model()
