"""Loops that exporters keep: the rule token by token as a Scan or a Loop, the inverse as a Loop.

Importing this module imports torch (the extra `hf`).
"""

from typing import Any

import torch
from torch._higher_order_ops.scan import scan

__all__ = ["scan_tokens", "scripted_inverse", "scripted_tokens"]


def scan_tokens(q: Any, k: Any, v: Any, g: Any, beta: Any) -> Any:
    """The token recurrence through torch's scan, which dynamo exports as one ONNX Scan.

    Shapes are those of `gdn_ir.models.reference`; the first state is zero. Returns the output and
    the final state.
    """
    tokens_first = [x.movedim(1, 0) for x in (q * q.shape[-1] ** -0.5, k, v, g, beta)]

    def step(state: Any, token: Any) -> Any:
        q_t, k_t, v_t, g_t, beta_t = token
        decayed = state * g_t.exp()[..., None, None]
        delta = (v_t - (decayed * k_t[..., None]).sum(-2)) * beta_t[..., None]
        new = decayed + k_t[..., None] * delta[..., None, :]
        return new.clone(), (new * q_t[..., None]).sum(-2)

    first = torch.zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    state, output = scan(step, first, tokens_first, dim=0)
    return output.movedim(0, 1), state


def _inverse(a: torch.Tensor) -> torch.Tensor:
    """(I - A)^-1 of a strictly lower A [B,H,N,C,C], row by row: one ONNX Loop."""
    inverse = a.clone()
    for i in range(1, a.size(-1)):
        row = inverse[..., i, :i].clone()
        above = inverse[..., :i, :i].clone()
        inverse[..., i, :i] = row + (row.unsqueeze(-1) * above).sum(-2)
    return inverse + torch.eye(a.size(-1))


def _tokens(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The token recurrence as a Python loop over T: one ONNX Loop with a carried output."""
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    g, beta = g.transpose(1, 2).exp(), beta.transpose(1, 2)
    q = q * (q.size(-1) ** -0.5)
    state = torch.zeros(k.size(0), k.size(1), k.size(3), v.size(3))
    output = torch.zeros_like(v)
    for t in range(k.size(2)):
        state = state * g[:, :, t].unsqueeze(-1).unsqueeze(-1)
        k_t = k[:, :, t].unsqueeze(-1)
        delta = (v[:, :, t] - (state * k_t).sum(-2)) * beta[:, :, t].unsqueeze(-1)
        state = state + k_t * delta.unsqueeze(-2)
        output[:, :, t] = (state * q[:, :, t].unsqueeze(-1)).sum(-2)
    return output.transpose(1, 2), state


# torch.jit.script keeps Python's loops, where a trace unrolls them.
scripted_inverse: Any = torch.jit.script(_inverse)
scripted_tokens: Any = torch.jit.script(_tokens)
