"""The rule token by token, as an ONNX Scan: the form of hand-written exporters.

The formulas are those of `gdn_ir.models.reference.recurrence`. Each product with the state is taken
element by element and summed, as in transformers' `torch_recurrent_gated_delta_rule`.
"""

from __future__ import annotations

import onnx_ir as ir

from gdn_ir.models import chunk_parts as parts
from gdn_ir.models.gdn_sizes import GdnSizes
from gdn_ir.models.graph_writer import GraphWriter

__all__ = ["scan_tokens"]


def scan_tokens(
    w: GraphWriter,
    x: parts.Operands,
    state: ir.Value,
    sizes: GdnSizes,
    *,
    l2norm: bool,
    dtype: ir.DataType,
    final_state: bool,
) -> tuple[ir.Value, ir.Value | None]:
    """Appends the rule; arguments and results as in `RuleForm.write`."""
    x = parts.tokens_first(w, parts.repeat_key_heads(w, x, sizes), dtype)
    if l2norm:
        q = parts.l2_normalise(w, x.q, "q", ir.DataType.FLOAT)
        x = x._replace(q=q, k=parts.l2_normalise(w, x.k, "k", ir.DataType.FLOAT))
    x = x._replace(q=parts.scale_query(w, x.q, sizes))

    body = w.body("tokens_body")
    before = body.input("token_state_before", ir.DataType.FLOAT, sizes.state_shape)
    token = _token_inputs(body, sizes)
    after, output = _step(body, token, before)
    body.output(after)
    body.output(output)
    names = ["final_state" if final_state else "unused_state", "outputs"]
    last, outputs = w.ops("Scan", state, *x, names=names, body=body.graph(), num_scan_inputs=len(x))
    w.annotate(last, ir.DataType.FLOAT, sizes.state_shape)

    half = dtype != ir.DataType.FLOAT
    o = w.op("Transpose", outputs, name="o_f32" if half else "o", perm=[1, 0, 2, 3])
    if half:
        o = w.op("Cast", o, name="o", to=dtype.value)
    return o, last if final_state else None


def _token_inputs(body: GraphWriter, sizes: GdnSizes) -> parts.Operands:
    """The body's inputs: q, k [B,H,K], v [B,H,V], beta, g [B,H] of one token."""
    heads = (sizes.batch, sizes.heads)

    def one(name: str, *dims: int) -> ir.Value:
        return body.input(f"token_{name}", ir.DataType.FLOAT, (*heads, *dims))

    return parts.Operands(
        q=one("q", sizes.head_dim),
        k=one("k", sizes.head_dim),
        v=one("v", sizes.value_dim),
        beta=one("beta"),
        g=one("g"),
    )


def _step(w: GraphWriter, x: parts.Operands, state: ir.Value) -> tuple[ir.Value, ir.Value]:
    """One token: the next state [B,H,K,V] and the output [B,H,V]."""

    def column(value: ir.Value, name: str) -> ir.Value:
        return w.op("Unsqueeze", value, w.ints([3]), name=f"token_{name}_column")

    def sum_over_keys(value: ir.Value, name: str) -> ir.Value:
        axes = w.ints([-2])
        return w.op("ReduceSum", value, axes, name=name, keepdims=0, noop_with_empty_axes=0)

    decay = w.op("Exp", x.g, name="token_decay")
    decay = w.op("Unsqueeze", decay, w.ints([2, 3]), name="token_decay_square")
    kept = w.op("Mul", state, decay, name="token_kept")
    k = column(x.k, "k")
    predicted = sum_over_keys(w.op("Mul", kept, k, name="token_products"), "token_predicted")
    missing = w.op("Sub", x.v, predicted, name="token_missing")
    beta = w.op("Unsqueeze", x.beta, w.ints([2]), name="token_beta_column")
    v_new = w.op("Mul", missing, beta, name="token_v_new")
    v_new = w.op("Unsqueeze", v_new, w.ints([2]), name="token_v_new_row")
    after = w.op("Add", kept, w.op("Mul", k, v_new, name="token_written"), name="token_state")
    read = w.op("Mul", after, column(x.q, "q"), name="token_read")
    return after, sum_over_keys(read, "token_o")
