"""Scores split into norms and angles, and how few directions the keys of one position take across prompts.

A score is q.k / sqrt(D) = N c, with N the product of the norms over sqrt(D) and c the cosine. The gap between the scores of two
keys p and j for one query splits exactly, and symmetrically, into

    N_p c_p - N_j c_j  =  (c_p - c_j)(N_p + N_j) / 2  +  (N_p - N_j)(c_p + c_j) / 2
                          the part of the angle           the part of the norm
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.checkpoints.model import Model
from sinkjax.edits.site import Site
from sinkjax.errors import SinkjaxError
from sinkjax.probes.probe import Capture, Probe
from sinkjax.probes.statistics import KEYS, PairView, Statistic, norm

if TYPE_CHECKING:
    import xarray


def angle_sums(scores: jax.Array, view: PairView) -> jax.Array:
    """Sum over later queries of the angle's part of each key's gap to the other keys: [B, H, S]."""
    own, angle, norms, total = _pairs(scores, view)
    return _over_later_queries(own + angle - norms - total, view)


def norm_sums(scores: jax.Array, view: PairView) -> jax.Array:
    """Sum over later queries of the norm's part of each key's gap to the other keys: [B, H, S]."""
    own, angle, norms, total = _pairs(scores, view)
    return _over_later_queries(own - angle + norms - total, view)


def _pairs(scores: jax.Array, view: PairView) -> tuple[jax.Array, ...]:
    """Four terms [B, H, Q, S] of key p for a query with n keys j: n s_p, c_p sum_j N_j, N_p sum_j c_j and sum_j s_j.

    Half of n s_p + c_p sum N - N_p sum c - sum s is the sum over j of the angle's part; the norm's has the other signs. A key
    adds nothing to its own sum.
    """
    key = jnp.repeat(norm(view.key, view), view.query.shape[1] // view.key.shape[1], axis=1)  # [B, H, S]
    norms = norm(view.query, view)[..., None] * key[:, :, None, :] * view.query.shape[-1] ** -0.5
    cosines = scores / jnp.maximum(norms, jnp.finfo(scores.dtype).tiny)
    seen = view.rows[:, None] >= jnp.arange(scores.shape[-1])[None, :]

    def over_keys(x: jax.Array) -> jax.Array:
        return jnp.where(seen, x, 0).sum(axis=-1, keepdims=True)

    count = (view.rows + 1)[:, None]
    return count * scores, cosines * over_keys(norms), norms * over_keys(cosines), over_keys(scores)


def _over_later_queries(doubled: jax.Array, view: PairView) -> jax.Array:
    """Sum over queries after each key of half of `doubled`, as a mean over the query's other keys."""
    later = view.rows[:, None] > jnp.arange(doubled.shape[-1])[None, :]
    means = doubled / (2 * jnp.maximum(view.rows, 1)[:, None])
    return jnp.where(view.real_rows & later, means, 0).sum(axis=2)


def mean_over_queries_after(sums: jax.Array, lengths: jax.Array) -> jax.Array:
    """Sums over queries key < i < length, divided by their number; NaN for a prompt's last key: [B, H, S]."""
    after = (lengths[:, None, None] - 1 - jnp.arange(sums.shape[-1])[None, None, :]).astype(sums.dtype)
    return jnp.where(after > 0, sums / jnp.maximum(after, 1), jnp.nan)


BLOCK = 16  # prompts whose keys are computed at a time

# The gap of a key: its score less that of a query's other keys, averaged over them and then over all later queries.
ANGLE_PART = Statistic("angle_part", Site.LOGITS, angle_sums, KEYS, mean_over_queries_after)
NORM_PART = Statistic("norm_part", Site.LOGITS, norm_sums, KEYS, mean_over_queries_after)


def singular_values(vectors: NDArray) -> NDArray:
    """Singular values of float[..., prompt, dim], not centred, descending: float64[..., component]."""
    return np.linalg.svd(np.asarray(vectors, np.float64), compute_uv=False)


def effective_rank(values: NDArray) -> NDArray:
    """exp of the entropy of the squared singular values' shares, from 1 to their number (Roy and Vetterli 2007): float[...]."""
    shares = np.square(values) / np.square(values).sum(axis=-1, keepdims=True)
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    return np.exp(-(shares * logs).sum(axis=-1))


def shared_energy(vectors: NDArray, rank: int) -> NDArray:
    """Share of each prompt's squared norm in the first `rank` singular directions of the other half of the prompts.

    vectors: float[..., prompt, dim]; even prompts are judged by the directions of odd ones, and odd by even. Returns float64[...,
    prompt] from 0 to 1: by chance about rank / dim.
    """
    vectors = np.asarray(vectors, np.float64)
    shares = np.empty(vectors.shape[:-1])
    for half, other in ((slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2))):
        directions = np.linalg.svd(vectors[..., other, :], full_matrices=False)[2][..., :rank, :]
        own = vectors[..., half, :]
        inside = np.square(own @ directions.swapaxes(-1, -2)).sum(axis=-1)
        shares[..., half] = inside / np.square(own).sum(axis=-1)
    return shares


def distinct(tokens: NDArray, positions: Sequence[int]) -> list[int]:
    """How many different tokens the prompts have at each of some positions. tokens: int[prompt, position]."""
    return [len(np.unique(tokens[:, position])) for position in positions]


def keys_across_prompts(model: Model, tokens: NDArray, lengths: NDArray, positions: tuple[int, ...], rank: int) -> xarray.Dataset:
    """Singular values and shared energy of the keys of some positions, ascending, across prompts.

    Errors: a prompt too short to have the positions.
    """
    import xarray

    if positions[-1] >= lengths.min():
        raise SinkjaxError(f"a prompt has {lengths.min()} tokens, and position {positions[-1]} is asked for")
    captured = Probe(capture=(Capture(Site.KEY, positions=positions),))
    run = partial(sinkjax.forward, model.params, config=model.config, probe=captured, logits=False)
    blocks = [slice(start, start + BLOCK) for start in range(0, len(lengths), BLOCK)]
    parts = [np.asarray(run(tokens=tokens[block], lengths=lengths[block]).record["keys"]) for block in blocks]
    vectors = np.concatenate(parts).transpose(1, 3, 2, 0, 4)  # layer, kv_head, position, prompt, dim
    places = ("layer", "kv_head", "position")
    return xarray.Dataset(
        {
            "singular": ((*places, "component"), singular_values(vectors)),
            "shared": ((*places, "prompt"), shared_energy(vectors, rank)),
            "distinct": ("position", distinct(tokens, positions)),
        },
        coords={"position": list(positions)},
    )
