"""Split scores into norms and angles, and measure how few directions the keys of a position have across prompts.

A score is q.k / sqrt(D) = N c, with N the product of the norms over sqrt(D) and c the cosine. The gap between the scores of two
keys p and j for one query splits exactly, and symmetrically, into

    N_p c_p - N_j c_j  =  (c_p - c_j)(N_p + N_j) / 2  +  (N_p - N_j)(c_p + c_j) / 2
                          the part of the angle           the part of the norm
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sinkjax.model.site import Site
from sinkjax.probes.statistics import KEYS, PairView, Statistic, norm


def _gap_sums(scores: jax.Array, view: PairView, sign: int) -> jax.Array:
    """Sum over later queries of the angle's part (sign 1) or the norm's (-1) of each key's gap to the other keys: [B, H, S].

    For key p and a query with n keys j, half of n s_p + c_p sum_j N_j - N_p sum_j c_j - sum_j s_j is the sum over j of the
    angle's part; in the norm's the middle terms have the other sign. A key adds nothing to its own sum.
    """
    key = jnp.repeat(norm(view.key, view), view.query.shape[1] // view.key.shape[1], axis=1)  # [B, H, S]
    norms = norm(view.query, view)[..., None] * key[:, :, None, :] * view.query.shape[-1] ** -0.5
    cosines = scores / jnp.maximum(norms, jnp.finfo(scores.dtype).tiny)
    row, column = view.rows[:, None], jnp.arange(scores.shape[-1])[None, :]

    def over_keys(x: jax.Array) -> jax.Array:
        return jnp.where(row >= column, x, 0).sum(axis=-1, keepdims=True)

    angle, size = sign * cosines * over_keys(norms), sign * norms * over_keys(cosines)
    means = ((row + 1) * scores + angle - size - over_keys(scores)) / (2 * jnp.maximum(row, 1))
    return jnp.where(view.real_rows & (row > column), means, 0).sum(axis=2)


def mean_over_queries_after(sums: jax.Array, lengths: jax.Array) -> jax.Array:
    """Sums over queries key < i < length, divided by their number; NaN for a prompt's last key: [B, H, S]."""
    after = (lengths[:, None, None] - 1 - jnp.arange(sums.shape[-1])[None, None, :]).astype(sums.dtype)
    return jnp.where(after > 0, sums / jnp.maximum(after, 1), jnp.nan)


# The gap of a key: its score minus the mean score of a query's other keys, averaged over all later queries.
ANGLE_PART = Statistic("angle_part", Site.LOGITS, partial(_gap_sums, sign=1), KEYS, mean_over_queries_after)
NORM_PART = Statistic("norm_part", Site.LOGITS, partial(_gap_sums, sign=-1), KEYS, mean_over_queries_after)


def singular_values(vectors: NDArray[Any]) -> NDArray[Any]:
    """Singular values of float[..., prompt, dim], not centred, descending: float64[..., component]."""
    return np.linalg.svd(np.asarray(vectors, np.float64), compute_uv=False)


def effective_rank(values: NDArray[Any]) -> NDArray[Any]:
    """exp of the entropy of the squared singular values' shares, from 1 to their number (Roy and Vetterli 2007): float[...]."""
    shares = np.square(values) / np.square(values).sum(axis=-1, keepdims=True)
    return np.asarray(np.exp(-(shares * np.log(shares, out=np.zeros_like(shares), where=shares > 0)).sum(axis=-1)))


def shared_energy(vectors: NDArray[Any], rank: int) -> NDArray[Any]:
    """Share of each prompt's squared norm in the first `rank` singular directions of the other half of the prompts.

    vectors: float[..., prompt, dim]; the halves are the even and the odd prompts. Returns float64[..., prompt] from 0 to 1: by
    chance about rank / dim.
    """
    vectors = np.asarray(vectors, np.float64)
    shares = np.empty(vectors.shape[:-1])
    for half in (0, 1):
        own, other = vectors[..., half::2, :], vectors[..., 1 - half :: 2, :]
        inside = np.square(own @ np.linalg.svd(other, full_matrices=False)[2][..., :rank, :].swapaxes(-1, -2)).sum(axis=-1)
        shares[..., half::2] = inside / np.square(own).sum(axis=-1)
    return shares
