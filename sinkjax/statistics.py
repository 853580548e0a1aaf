"""The built-in statistics: one small function each, and the table that gives its site, axes and meaning."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from sinkjax.edits.site import Site
from sinkjax.probe import PairView, Statistic, View

KEYS = ("prompt", "layer", "head", "key")
DEPTHS = ("prompt", "depth", "position")


def column_sums(weights: jax.Array, view: PairView) -> jax.Array:
    """Sum over queries of the weight on each key: [B, H, S]."""
    return jnp.where(view.real_rows, weights, 0).sum(axis=2)


def share_sums(weights: jax.Array, view: PairView) -> jax.Array:
    """Sum over queries of each key's share of the row's absolute weight, for any normaliser (Gu et al. 2025): [B, H, S]."""
    size = jnp.abs(weights)
    return column_sums(size / (size.sum(axis=-1, keepdims=True) + 1e-8), view)


def mean_over_later_queries(sums: jax.Array, lengths: jax.Array) -> jax.Array:
    """Sums over queries key <= i < length, divided by their number (Gu et al. 2025, alpha_k): [B, H, S]."""
    seen_by = lengths[:, None, None] - jnp.arange(sums.shape[-1])[None, None, :]
    return sums / jnp.maximum(seen_by, 1)


def cosine_sums(scores: jax.Array, view: PairView) -> jax.Array:
    """Sum over queries of the cosine of the rotated query with the rotated key, over visible pairs: [B, H, S]."""

    def unit(x: jax.Array) -> jax.Array:
        x = x.astype(scores.dtype)
        return x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), jnp.finfo(x.dtype).tiny)

    cosine = jnp.einsum("BQHD,BSHD->BHQS", unit(view.query), unit(view.key), precision="highest")
    causal = view.rows[:, None] >= jnp.arange(scores.shape[-1])[None, :]
    return jnp.where(view.real_rows & causal, cosine, 0).sum(axis=2)


def row_entropy(weights: jax.Array, view: View) -> jax.Array:
    """Entropy of each row in nats, 0 log 0 = 0: [B, H, Q]."""
    positive = weights > 0
    return jnp.where(positive, -weights * jnp.log(jnp.where(positive, weights, 1)), 0).sum(axis=-1)


def norm(x: jax.Array, view: View) -> jax.Array:
    """L2 norm over the last axis."""
    return jnp.sqrt(jnp.square(x).sum(axis=-1))


def head_norm(x: jax.Array, view: View) -> jax.Array:
    """L2 norm of each head's vector: [B, H, T] from [B, T, H, D]."""
    return norm(x, view).swapaxes(1, 2)


def abs_max(x: jax.Array, view: View) -> jax.Array:
    """Largest absolute value over dims."""
    return jnp.abs(x).max(axis=-1)


def abs_argmax(x: jax.Array, view: View) -> jax.Array:
    """The dim of the largest absolute value; ties take the lowest dim."""
    return jnp.argmax(jnp.abs(x), axis=-1).astype(jnp.int32)


def abs_median(x: jax.Array, view: View) -> jax.Array:
    """Median of the absolute values over dims, equal to `jnp.median`, by bisection on the bits instead of a sort.

    Non-negative floats are ordered like their bit patterns, so the k-th smallest is found bit by bit, by counting.
    """
    size = x.shape[-1]
    width = x.dtype.itemsize * 8
    whole = {32: jnp.int32, 64: jnp.int64}[width]
    bits = jax.lax.bitcast_convert_type(jnp.abs(x), whole)
    rank = (size - 1) // 2

    def settle(step: jax.Array, found: jax.Array) -> jax.Array:
        trial = found | (jnp.ones((), whole) << (width - 2 - step).astype(whole))
        below = (bits < trial[..., None]).sum(axis=-1)
        return jnp.where(below <= rank, trial, found)

    lower = jax.lax.fori_loop(0, width - 1, settle, jnp.zeros(x.shape[:-1], whole))
    if size % 2:
        return jax.lax.bitcast_convert_type(lower, x.dtype)
    at_most = (bits <= lower[..., None]).sum(axis=-1)
    next_up = jnp.where(bits > lower[..., None], bits, jnp.iinfo(whole).max).min(axis=-1)
    upper = jnp.where(at_most > rank + 1, lower, next_up)
    low, high = (jax.lax.bitcast_convert_type(found, x.dtype) for found in (lower, upper))
    return low + (high - low) / 2


BUILT_IN: dict[str, Statistic] = {
    entry.name: entry
    for entry in (
        Statistic("attention_received", Site.WEIGHTS, column_sums, KEYS, mean_over_later_queries),
        Statistic("attention_share", Site.WEIGHTS, share_sums, KEYS, mean_over_later_queries),
        Statistic("row_entropy", Site.WEIGHTS, row_entropy, ("prompt", "layer", "head", "query")),
        Statistic("query_key_cosine", Site.LOGITS, cosine_sums, KEYS, mean_over_later_queries),
        Statistic("resid_max", Site.RESID, abs_max, DEPTHS),
        Statistic("resid_norm", Site.RESID, norm, DEPTHS),
        Statistic("resid_median", Site.RESID, abs_median, DEPTHS),
        Statistic("resid_argmax", Site.RESID, abs_argmax, DEPTHS),
        Statistic("query_norm", Site.QUERY, head_norm, ("prompt", "layer", "head", "position")),
        Statistic("key_norm", Site.KEY, head_norm, ("prompt", "layer", "kv_head", "position")),
        Statistic("value_norm", Site.VALUE, head_norm, ("prompt", "layer", "kv_head", "position")),
    )
}
