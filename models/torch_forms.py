"""What the exporter is run on: the gated delta rule in torch, and a tiny language model.

Importing this module imports torch and transformers (the extra `hf`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig
from transformers.models.qwen3_next import modeling_qwen3_next

__all__ = ["as_module", "fill_zero", "installed_rule", "tiny_qwen3_5"]


def as_module(function: Callable[..., Any]) -> Any:
    """A module without parameters whose forward is `function`; torch.export takes only modules."""
    module = torch.nn.Module()
    module.forward = function
    return module


def installed_rule(*, l2norm: bool, state: bool) -> Callable[..., Any]:
    """`torch_chunk_gated_delta_rule` of the installed transformers, with its options bound.

    The function takes q, k, v, g, beta and, with `state`, the first state; it returns the output
    and the final state.
    """

    def without_state(q: Any, k: Any, v: Any, g: Any, beta: Any) -> Any:
        return with_state(q, k, v, g, beta, None)

    def with_state(q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any) -> Any:
        return modeling_qwen3_next.torch_chunk_gated_delta_rule(
            q,
            k,
            v,
            g=g,
            beta=beta,
            chunk_size=64,
            initial_state=state,
            output_final_state=True,
            use_qk_l2norm_in_kernel=l2norm,
        )

    return with_state if state else without_state


def fill_zero(q: Any, k: Any, v: Any, g: Any, beta: Any) -> Any:
    """The older chunk form, with masked_fill(0) and in-place writes, chunk 64, zero first state.

    The decays inside a chunk are cut to the lower triangle before and after exp; what may not be
    seen is filled with zeros, once for A and again for the attention of each chunk.
    Shapes are those of `gdn_ir.models.reference`; returns the output and the final state.
    """
    chunk = 64
    dtype, length = q.dtype, q.shape[1]
    q, k, v, beta, g = (x.transpose(1, 2).contiguous().float() for x in (q, k, v, beta, g))
    fill = -length % chunk
    q, k, v = (functional.pad(x, (0, 0, 0, fill)) for x in (q, k, v))
    beta, g = (functional.pad(x, (0, fill)) for x in (beta, g))
    q = q * (1 / math.sqrt(q.shape[-1]))
    v_beta, k_beta = v * beta[..., None], k * beta[..., None]
    q, k, k_beta, v_beta = (
        x.reshape(*x.shape[:2], -1, chunk, x.shape[-1]) for x in (q, k, k_beta, v_beta)
    )
    g = g.reshape(*g.shape[:2], -1, chunk).cumsum(dim=-1)

    decay = (g[..., :, None] - g[..., None, :]).tril().exp().tril()
    not_behind = torch.ones(chunk, chunk, dtype=torch.bool).triu(0)
    inverse = -((k_beta @ k.transpose(-1, -2)) * decay).masked_fill(not_behind, 0)
    for i in range(1, chunk):
        row, above = inverse[..., i, :i].clone(), inverse[..., :i, :i].clone()
        inverse[..., i, :i] = row + (row[..., None] * above).sum(-2)
    inverse = inverse + torch.eye(chunk)
    u = inverse @ v_beta
    k_cumdecay = inverse @ (k_beta * g.exp()[..., None])

    state = torch.zeros(*k.shape[:2], k.shape[-1], v.shape[-1])
    output = torch.zeros_like(u)
    ahead = torch.ones(chunk, chunk, dtype=torch.bool).triu(1)
    for c in range(u.shape[2]):
        q_c, k_c, u_c = q[:, :, c], k[:, :, c], u[:, :, c]
        inside = (q_c @ k_c.transpose(-1, -2) * decay[:, :, c]).masked_fill(ahead, 0)
        v_new = u_c - k_cumdecay[:, :, c] @ state
        g_c = g[:, :, c]
        output[:, :, c] = (q_c * g_c[..., None].exp()) @ state + inside @ v_new
        kept = state * g_c[..., -1, None, None].exp()
        to_end = (g_c[..., -1, None] - g_c).exp()[..., None]
        state = kept + (k_c * to_end).transpose(-1, -2) @ v_new
    output = output.reshape(*output.shape[:2], -1, output.shape[-1])[:, :, :length]
    return output.transpose(1, 2).contiguous().to(dtype), state


def tiny_qwen3_5() -> Any:
    """A random Qwen3.5 language model: one Gated DeltaNet layer, then one attention layer.

    Maps input_ids to logits. Two things are not random. The two value heads decay fast (g near
    -1.3) and slowly (near -.013): the usual random start decays so fast that a broken inverse goes
    unseen. And weights are rounded to bfloat16, so that the file compresses.
    """
    config = Qwen3_5TextConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        layer_types=["linear_attention", "full_attention"],
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        linear_num_key_heads=1,
        linear_num_value_heads=2,
        linear_key_head_dim=32,
        linear_value_head_dim=32,
        max_position_embeddings=256,
        use_cache=False,
    )
    torch.manual_seed(0)
    model: Any = Qwen3_5ForCausalLM(config)
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16())
        model.model.layers[0].linear_attn.A_log.copy_(torch.tensor([0.0, math.log(0.01)]))

    module = as_module(lambda input_ids: model(input_ids=input_ids, use_cache=False).logits)
    module.model = model  # so that torch.export finds the weights
    return module
