"""The gated delta rule as an exporter leaves it: the graph that the passes have to improve.

Unrolled, it has the ops, the order and the attributes of what torch.onnx (dynamo) makes of
transformers' `torch_chunk_gated_delta_rule`; with Loops, the structure of what it makes of a
scripted one; as a Scan it is the rule token by token. Neither torch nor transformers is needed. The
formulas are those of `gdn_ir.models.reference`.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gdn_ir.models.chunk_parts import Operands
from gdn_ir.models.element_types import DType, element_type
from gdn_ir.models.graph_writer import GraphWriter
from gdn_ir.models.rule_form import Inverse, Mask, RuleForm

__all__ = ["build_loop", "build_rule", "build_scan", "build_unrolled"]


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
    inverse: Inverse = "rows",
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
        inverse: `rows`, as in exports. `blocks`, the form of kernels for NPUs: C / 16 diagonal
            blocks of 16 rows, each inverted row by row on its own, and then merged in pairs; C must
            be 16 times a power of two.

    Raises:
        ValueError: names the argument and what it may be.
    """
    return build_rule(
        RuleForm("unrolled", mask=mask, inverse=inverse, chunk=chunk),
        batch=batch,
        seq=seq,
        heads=heads,
        key_heads=key_heads,
        head_dim=head_dim,
        value_dim=value_dim,
        state=state,
        l2norm=l2norm,
        dtype=dtype,
    )


def build_loop(
    *,
    batch: int = 1,
    seq: int | None = None,
    heads: int = 2,
    key_heads: int | None = None,
    head_dim: int = 32,
    value_dim: int | None = None,
    chunk: int = 64,
    state: bool = False,
    l2norm: bool = False,
    dtype: DType = "float32",
    mask: Mask = "fill-inf",
    inverse: Inverse = "rows",
) -> ir.Model:
    """The chunk form with two Loops, over the rows of the inverse and over the chunks, opset 20.

    By default T is the symbolic dimension `S` and the model takes any number of tokens >= 1: the
    fill of the last chunk and the trip count are computed from the shape of g. The row Loop carries
    the square [B, Hv, N, C, C], of which turn i slices and scatters row i + 1; the chunk Loop
    carries the state, gathers its chunk from operands outside its body and collects the outputs.

    Args:
        batch: B.
        seq: None, or T: then the Loops stay, and their trip counts are constants.
        heads: as in `build_unrolled`, and so all that follow.
        key_heads: Hk.
        head_dim: K.
        value_dim: V.
        chunk: C. The row Loop makes C - 1 turns.
        state: whether the state is carried in and out.
        l2norm: whether q and k are normalised inside the graph.
        dtype: of q, k, v, g, beta and o.
        mask: `fill-inf` or `fill-zero`.
        inverse: `rows` or `blocks`: then there is a Loop of 15 turns for each of the C / 16 blocks.

    Raises:
        ValueError: names the argument and what it may be.
    """
    return build_rule(
        RuleForm("loop", mask=mask, inverse=inverse, chunk=chunk),
        batch=batch,
        seq=seq,
        heads=heads,
        key_heads=key_heads,
        head_dim=head_dim,
        value_dim=value_dim,
        state=state,
        l2norm=l2norm,
        dtype=dtype,
    )


def build_scan(
    *,
    batch: int = 1,
    seq: int | None = None,
    heads: int = 2,
    key_heads: int | None = None,
    head_dim: int = 32,
    value_dim: int | None = None,
    state: bool = False,
    l2norm: bool = False,
    dtype: DType = "float32",
) -> ir.Model:
    """The recurrent rule as one Scan over the tokens, opset 20; it has no chunks and no masks.

    The body carries the state [B, Hv, K, V] and takes one token of each operand, tokens first. By
    default T is the symbolic dimension `S`: any number of tokens >= 1.

    Args:
        batch: B.
        seq: None, or T.
        heads: as in `build_unrolled`, and so all that follow.
        key_heads: Hk.
        head_dim: K.
        value_dim: V.
        state: whether the state is carried in and out.
        l2norm: whether q and k are normalised inside the graph, in float32.
        dtype: of q, k, v, g, beta and o.

    Raises:
        ValueError: names the argument and what it may be.
    """
    return build_rule(
        RuleForm("scan"),
        batch=batch,
        seq=seq,
        heads=heads,
        key_heads=key_heads,
        head_dim=head_dim,
        value_dim=value_dim,
        state=state,
        l2norm=l2norm,
        dtype=dtype,
    )


def build_rule(
    form: RuleForm,
    *,
    batch: int = 1,
    seq: int | None = None,
    heads: int = 2,
    key_heads: int | None = None,
    head_dim: int = 32,
    value_dim: int | None = None,
    state: bool = False,
    l2norm: bool = False,
    dtype: DType = "float32",
) -> ir.Model:
    """A model of the rule alone, in any form; the sizes are those of `build_unrolled`.

    T is the symbolic dimension `S` where `seq` is None, which form unrolled does not allow.
    """
    sizes = form.sizes(
        batch=batch,
        seq=seq,
        heads=heads,
        key_heads=key_heads,
        head_dim=head_dim,
        value_dim=value_dim,
    )
    operand_dtype = element_type(dtype)

    w = GraphWriter("gated_delta_rule")
    qk_shape = (batch, sizes.seq_dim, sizes.key_heads, head_dim)
    v_shape = (batch, sizes.seq_dim, heads, sizes.value_dim)
    q = w.input("q", operand_dtype, qk_shape)
    k = w.input("k", operand_dtype, qk_shape)
    v = w.input("v", operand_dtype, v_shape)
    g = w.input("g", operand_dtype, v_shape[:3])
    beta = w.input("beta", operand_dtype, v_shape[:3])
    if state:
        first_state = w.input("state", ir.DataType.FLOAT, sizes.state_shape)
    else:
        first_state = w.constant("zero_state", np.zeros(sizes.state_shape, np.float32))

    output, final_state = form.write(
        w,
        Operands(q=q, k=k, v=v, g=g, beta=beta),
        first_state,
        sizes,
        l2norm=l2norm,
        dtype=operand_dtype,
        final_state=state,
    )
    w.output(w.annotate(output, operand_dtype, v_shape))
    if final_state is not None:
        w.output(w.annotate(final_state, ir.DataType.FLOAT, sizes.state_shape))
    return w.model()
