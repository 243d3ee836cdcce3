"""Strictly lower A = -beta_i k_i.k_j e^(G_i - G_j) on which ways to invert I - A part.

Independent random keys hide a broken inverse: their A is small and its powers vanish. Correlated
keys are what a real prompt gives, and there the powers of A grow like binomial coefficients.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gdn_ir.evaluate import Array

_KEY_DIM = 64


def worst_inverses(shape: tuple[int, ...]) -> Iterator[tuple[str, Array]]:
    """Named families of A, float64 [..., n, n], as `shape` says."""
    *leading, n, _ = shape
    rng = np.random.default_rng(0)
    count = int(np.prod(leading, dtype=int))
    noise = rng.standard_normal((count, n, _KEY_DIM))
    common = rng.standard_normal((count, 1, _KEY_DIM))
    random = _unit(noise)
    identical = np.broadcast_to(_unit(common), noise.shape)
    # Each key is sqrt(.8) of one direction and sqrt(.2) of its own: mutual cosine .8.
    close = _unit(np.sqrt(0.8) * _unit(common) + np.sqrt(0.2) * random)
    repeated = np.tile(random[:, :4], (1, -(-n // 4), 1))[:, :n]
    gentle = np.zeros((count, n))
    beta = 1 / (1 + np.exp(-rng.standard_normal((count, n))))
    one, two = np.ones((count, n)), np.full((count, n), 2.0)
    for name, key, strength, decay in (
        ("random keys", random, beta, gentle),
        ("identical keys, beta 1", identical, one, gentle),
        ("identical keys, beta 2", identical, two, gentle),
        ("identical keys, beta .99, slow decay", identical, 0.99 * one, gentle - 1e-2),
        ("cosine .8, beta near 1", close, 0.8 + 0.2 * beta, gentle),
        ("four repeated tokens, beta 1", repeated, one, gentle),
        ("log-decay to -167", close, beta, rng.uniform(-167, 0, (count, n))),
    ):
        yield name, _strictly_lower(key, strength, decay).reshape(shape)


def _unit(x: Array) -> Array:
    unit: Array = x / np.linalg.norm(x, axis=-1, keepdims=True)
    return unit


def _strictly_lower(key: Array, beta: Array, decay: Array) -> Array:
    total = np.cumsum(decay, axis=-1)
    with np.errstate(over="ignore"):
        fade = np.exp(np.minimum(total[:, :, None] - total[:, None, :], 0))
    return np.tril(-beta[:, :, None] * (key @ key.swapaxes(1, 2)) * fade, -1)
