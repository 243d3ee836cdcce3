"""The gated delta rule in float64 numpy: the truth that every graph here is measured against.

Shapes, with B the batch, T the sequence length, Hk and Hv the key and value heads, K and V the
key and value head dims:

    q, k    [B, T, Hk, K]    keys are expected to have unit length (see `l2norm`)
    v       [B, T, Hv, V]
    g       [B, T, Hv]       log-decay, <= 0: the state shrinks by exp(g)
    beta    [B, T, Hv]       write strength, usually in (0, 1); up to 2 in some models
    state   [B, Hv, K, V]

Where Hk < Hv, each key head serves Hv / Hk value heads in a row (grouped value attention).
The rule is that of Gated Delta Networks (Yang, Kautz, Hatamizadeh; arXiv 2412.06464).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "adversarial_inputs", "chunked", "l2norm", "recurrence", "unit_lower_inverse"]

Array = npt.NDArray[np.float64]


def l2norm(x: npt.ArrayLike, eps: float = 1e-6) -> Array:
    """x / sqrt(sum(x^2) + eps) over the last axis, in float64.

    `eps` stands inside the root, as in transformers and flash-linear-attention, and so a zero
    vector stays zero and a unit vector becomes shorter by eps / 2.
    """
    x = np.asarray(x, np.float64)
    norm: Array = np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + eps)
    return x / norm


def recurrence(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    g: npt.ArrayLike,
    beta: npt.ArrayLike,
    state: npt.ArrayLike | None = None,
    scale: float | None = None,
) -> tuple[Array, Array]:
    """The gated delta rule, token by token.

        S  = exp(g_t) S                  forget
        v' = beta_t (v_t - k_t^T S)      what the state does not yet answer to k_t
        S  = S + k_t v'^T                write it
        o_t = scale * q_t^T S            read

    Shapes are in the module's docstring; `state` defaults to zeros, `scale` to 1 / sqrt(K).
    Returns the output [B, T, Hv, V] and the final state [B, Hv, K, V].
    Raises ValueError where the shapes do not agree.
    Source: arXiv 2412.06464, section 3.1.
    """
    q, k, v, g, beta, s, scale = _operands(q, k, v, g, beta, state, scale)
    output = np.empty_like(v)
    for t in range(v.shape[1]):
        key = k[:, t, :, :, None]
        s = np.exp(g[:, t, :, None, None]) * s
        predicted = np.sum(key * s, axis=2)
        written = beta[:, t, :, None] * (v[:, t] - predicted)
        s = s + key * written[:, :, None, :]
        output[:, t] = scale * np.sum(q[:, t, :, :, None] * s, axis=2)
    return output, s


def chunked(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    g: npt.ArrayLike,
    beta: npt.ArrayLike,
    state: npt.ArrayLike | None = None,
    chunk: int = 64,
    scale: float | None = None,
) -> tuple[Array, Array]:
    """The same function in chunks of `chunk` tokens (the WY or UT form), for any T.

    Inside a chunk, with G_i the sum of g from its start to token i, D_ij = exp(G_i - G_j) for
    j <= i and 0 above the diagonal:

        A = -strictly_lower(diag(beta) K K^T * D)
        U = (I - A)^-1 diag(beta) V
        W = (I - A)^-1 diag(beta exp(G)) K
        V' = U - W S                                        S: the state before the chunk
        O = scale * (diag(exp(G)) Q S + (Q K^T * D) V')
        S = exp(G_last) S + (diag(exp(G_last - G)) K)^T V'

    The differences G_i - G_j are summed over the tokens between j and i and masked before exp:
    subtracting two long cumulative sums would lose digits for strong decay, and exp of the part
    above the diagonal would overflow. A ragged end is filled with k = v = beta = g = 0, which
    leaves the state alone.

    Arguments, results and errors are those of `recurrence`; a `chunk` below 1 is a ValueError.
    Source: arXiv 2412.06464, section 3.3.
    """
    if chunk < 1:
        raise ValueError(f"chunk is {chunk}; it must be at least 1")
    q, k, v, g, beta, s, scale = _operands(q, k, v, g, beta, state, scale)
    length = v.shape[1]
    q, k, v, g, beta = (_to_chunks(x, chunk) for x in (q, k, v, g, beta))

    log_decay = _segment_sums(g)
    decay = np.exp(log_decay)
    from_start = np.exp(np.cumsum(g, axis=-1))[..., None]
    to_end = decay[..., -1, :, None]
    k_beta = k * beta[..., None]
    k_t = np.swapaxes(k, -1, -2)

    inverse = unit_lower_inverse(-np.tril((k_beta @ k_t) * decay, -1))
    u = inverse @ (v * beta[..., None])
    w = inverse @ (k_beta * from_start)
    inside = (q @ k_t) * decay

    output = np.empty_like(v)
    for c in range(v.shape[2]):
        written = u[:, :, c] - w[:, :, c] @ s
        read = (q[:, :, c] * from_start[:, :, c]) @ s
        output[:, :, c] = scale * (read + inside[:, :, c] @ written)
        write = np.swapaxes(k[:, :, c] * to_end[:, :, c], -1, -2) @ written
        s = from_start[:, :, c, -1:] * s + write
    batch, heads, chunks, _, value_dim = output.shape
    flat = output.reshape(batch, heads, chunks * chunk, value_dim)[:, :, :length]
    return np.swapaxes(flat, 1, 2), s


def unit_lower_inverse(a: npt.ArrayLike) -> Array:
    """(I - A)^-1 of a strictly lower A [..., n, n], row by row (forward substitution).

    Row i is e_i plus the rows above it weighted by A's row i. Only this and block forms of it are
    stable: the powers of A in a Neumann product reach 1e17 for repeated keys at n = 64.
    Entries of `a` on or above the diagonal are not read.
    """
    a = np.asarray(a, np.float64)
    n = a.shape[-1]
    inverse: Array = np.broadcast_to(np.eye(n), a.shape).copy()
    for i in range(1, n):
        inverse[..., i, :] += (a[..., i : i + 1, :i] @ inverse[..., :i, :])[..., 0, :]
    return inverse


def adversarial_inputs(
    *,
    batch: int = 1,
    seq: int = 128,
    heads: int = 2,
    key_heads: int | None = None,
    head_dim: int = 32,
    value_dim: int | None = None,
    state: bool = False,
    seed: int = 0,
) -> dict[str, dict[str, Array]]:
    """Inputs of one shape on which rewrites of the rule are known to break, by name.

    `heads` are value heads; `key_heads` defaults to `heads`, `value_dim` to `head_dim`.
    Each family maps q, k, v, g, beta (and state, if asked for) to float64 arrays with the shapes
    of the module's docstring; q and k have unit length. The same arguments give the same numbers.

    | family | what is special | what it catches |
    |---|---|---|
    | `random` | nothing: independent keys, mild decay | wrong algebra |
    | `identical_keys` | one key throughout, beta 1, g 0 | powers of A, which reach 1e17 |
    | `beta_two` | one key throughout, beta 2, g 0: every write is a reflection | growth beyond 1 |
    | `cosine` | pairs of keys at cosine .8 on average, beta .9, g -.01 | a milder, common case |
    | `repeated_tokens` | four tokens repeated to the end, slow decay | a prompt that repeats |
    | `no_decay` | g = 0, independent keys | masks that relied on the decay |
    | `strong_decay` | g uniform in (-167, 0) | exp under- and overflow, 0 * inf, cancellation |
    """
    key_heads = heads if key_heads is None else key_heads
    value_dim = head_dim if value_dim is None else value_dim
    rng = np.random.default_rng(seed)
    qk_shape, gate_shape = (batch, seq, key_heads, head_dim), (batch, seq, heads)

    def unit(*shape: int) -> Array:
        x = rng.standard_normal(shape)
        normalised: Array = x / np.linalg.norm(x, axis=-1, keepdims=True)
        return normalised

    def family(**fixed: Array) -> dict[str, Array]:
        drawn = {
            "q": unit(*qk_shape),
            "k": unit(*qk_shape),
            "v": rng.standard_normal((batch, seq, heads, value_dim)),
            "g": -rng.uniform(0.0, 0.5, gate_shape),
            "beta": rng.uniform(0.0, 1.0, gate_shape),
        }
        if state:
            drawn["state"] = rng.standard_normal((batch, heads, head_dim, value_dim))
        return drawn | fixed

    zeros, ones = np.zeros(gate_shape), np.ones(gate_shape)
    one_key = np.broadcast_to(unit(batch, 1, key_heads, head_dim), qk_shape).copy()
    # A shared direction of weight sqrt(.8) gives pairs at cosine .8 plus the rest's own cosine.
    mixed = np.sqrt(0.8) * one_key + np.sqrt(0.2) * unit(*qk_shape)
    near = mixed / np.linalg.norm(mixed, axis=-1, keepdims=True)

    slow = family(g=-rng.uniform(0.0, 0.05, gate_shape), beta=rng.uniform(0.5, 1.0, gate_shape))
    token = np.arange(seq) % 4
    repeated = {n: x[:, token % seq] if n != "state" else x for n, x in slow.items()}
    return {
        "random": family(),
        "identical_keys": family(k=one_key, beta=ones, g=zeros),
        "beta_two": family(k=one_key, beta=2.0 * ones, g=zeros),
        "cosine": family(k=near, beta=0.9 * ones, g=-0.01 * ones),
        "repeated_tokens": repeated,
        "no_decay": family(g=zeros),
        "strong_decay": family(g=-rng.uniform(0.0, 167.0, gate_shape)),
    }


def _operands(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    g: npt.ArrayLike,
    beta: npt.ArrayLike,
    state: npt.ArrayLike | None,
    scale: float | None,
) -> tuple[Array, Array, Array, Array, Array, Array, float]:
    """Checks the shapes and returns everything in float64 with q and k repeated to Hv heads."""
    q, k, v, g, beta = (np.asarray(x, np.float64) for x in (q, k, v, g, beta))
    if k.ndim != 4 or v.ndim != 4:
        raise ValueError(f"k {k.shape} and v {v.shape} must both have rank 4: [B, T, heads, dim]")
    batch, length, key_heads, key_dim = k.shape
    heads, value_dim = v.shape[2:]
    if key_heads == 0 or heads % key_heads:
        raise ValueError(f"v has {heads} heads; that must be a multiple of k's {key_heads} heads")
    state_shape = (batch, heads, key_dim, value_dim)
    s = np.zeros(state_shape) if state is None else np.array(state, np.float64)
    wanted: list[tuple[str, npt.NDArray[Any], tuple[int, ...]]] = [
        ("q", q, k.shape),
        ("v", v, (batch, length, heads, value_dim)),
        ("g", g, (batch, length, heads)),
        ("beta", beta, (batch, length, heads)),
        ("state", s, state_shape),
    ]
    for name, x, shape in wanted:
        if x.shape != shape:
            raise ValueError(f"{name} has shape {x.shape}; with k {k.shape} it must be {shape}")
    q, k = (np.repeat(x, heads // key_heads, axis=2) for x in (q, k))
    return q, k, v, g, beta, s, key_dim**-0.5 if scale is None else scale


def _to_chunks(x: Array, chunk: int) -> Array:
    """[B, T, H, ...] to [B, H, chunks, chunk, ...], the ragged end filled with zeros."""
    x = np.swapaxes(x, 1, 2)
    batch, heads, length, *rest = x.shape
    fill = -length % chunk
    x = np.pad(x, [(0, 0), (0, 0), (0, fill)] + [(0, 0)] * len(rest))
    return x.reshape(batch, heads, (length + fill) // chunk, chunk, *rest)


def _segment_sums(g: Array) -> Array:
    """[..., n] to [..., n, n]: the sum of g over j < t <= i at [i, j], -inf above the diagonal."""
    n = g.shape[-1]
    summands = np.where(np.tri(n, k=-1, dtype=bool), g[..., :, None], 0.0)
    sums: Array = np.where(np.tri(n, dtype=bool), np.cumsum(summands, axis=-2), -np.inf)
    return sums
