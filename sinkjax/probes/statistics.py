"""Statistics: their interface (`Statistic`), their input (`View`), and one small function per built-in statistic."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import struct

from sinkjax.config_files.checks import refuse
from sinkjax.errors import SinkjaxError, short
from sinkjax.model.site import BEFORE_BLOCKS, Site, as_site

KEYS = ("prompt", "layer", "head", "key")
DEPTHS = ("prompt", "depth", "position")


@struct.dataclass
class View:
    """The context of a statistic's array. lengths: int [B]."""

    lengths: jax.Array


@struct.dataclass
class PairView(View):
    """The context at LOGITS and WEIGHTS, where the array belongs to a block of queries.

    rows: int [Q], the positions of the queries. visible: bool [B or 1, H or 1, Q, S]. query [B, H, Q, D] and key [B, K, T, D],
    rotated, and mapped if the normaliser has a kernel. In a long prompt, a built-in statistic receives only the first S of T
    keys, which include all that these queries can see; any other receives all T. bias: float [B, H, Q], at WEIGHTS, the part of
    each row that goes to no token's key, through the normaliser or a learned key; None if the model has neither. past: float
    [B, H, Q], at WEIGHTS, the part that goes to a past in front of the tokens, or None. ahead: whether a query may see later
    keys, as in a prefix. divisor: float [B, H, Q, 1], at WEIGHTS, a divisor that is still to be applied to
    the array; None for any statistic without `sums`.
    """

    rows: jax.Array
    visible: jax.Array
    query: jax.Array
    key: jax.Array
    bias: jax.Array | None = None
    past: jax.Array | None = None
    ahead: bool = struct.field(pytree_node=False, default=False)
    divisor: jax.Array | None = None

    @property
    def real_rows(self) -> jax.Array:
        """Queries within their prompt: bool [B, 1, Q, 1]."""
        return (self.rows[None, :] < self.lengths[:, None])[:, None, :, None]


@dataclass(frozen=True)
class Statistic:
    """A reduction of the array at a site, computed in the layer loop.

    Along "position", "query" and "key", entries beyond a prompt's length become NaN (-1 for integers).

    Attributes:
        name: Name in the record.
        site: Any site except EMBED and POSITION.
        fn: (array at the site, at least float32; a `View`, at LOGITS and WEIGHTS a `PairView`) -> array with the axes `dims`
            except layer or depth. At LOGITS and WEIGHTS it receives one block of queries at a time: outputs over "query" are
            joined, all others summed.
        dims: Names of the axes; they start with "prompt" and "layer", or, at RESID, "prompt" and "depth" (depth 0 is the
            embedding).
        finish: (array, lengths int [B]) -> array, applied to the combined result of the blocks, or None.
        sums: At WEIGHTS, the kind of sum over rows that `fn` returns: the weight on each key ("received"), the weight on it from
            later queries ("later"), the weight on no key ("no key"), or the weight on a past ("past"). Such an `fn` applies
            `view.divisor` itself, and a kernel may compute the sums in its place. None for any other reduction.
        by_row: Whether each row of the result (a "position" or "query") depends only on this row of the array. A sweep may then
            take the rows before an edit from the baseline.

    Raises:
        SinkjaxError: `dims` does not start with these axes, or the site does not support statistics.
    """

    name: str
    site: Site
    fn: Callable[[jax.Array, Any], jax.Array]
    dims: tuple[str, ...]
    finish: Callable[[jax.Array, jax.Array], jax.Array] | None = None
    sums: Literal["received", "later", "no key", "past"] | None = field(default=None, repr=False)  # not part of identities
    by_row: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "site", as_site(self.site))
        refuse(not callable(self.fn), f"{self.name}: fn must be a function, not {short(self.fn)}")
        fits = self.dims[:2] == ("prompt", "layer") or (self.dims[:2] == ("prompt", "depth") and self.site == Site.RESID)
        start = f"the dims of {self.name} must start with prompt, layer (or prompt, depth at RESID)"
        refuse(not fits, f"{start}, not {self.dims}")
        if self.site in (*BEFORE_BLOCKS, Site.POSITION):
            raise SinkjaxError(f"{self.name}: statistics are measured inside blocks; for the embedding, use depth 0 of RESID")


def column_sums(weights: jax.Array, view: PairView) -> jax.Array:
    """Sum over queries key <= i of the weight on each key: [B, H, S]."""
    if view.ahead:
        weights = jnp.where(view.rows[:, None] >= jnp.arange(weights.shape[-1]), weights, 0)
    real = jnp.broadcast_to(view.real_rows[..., 0].astype(weights.dtype), weights.shape[:3])
    real = real if view.divisor is None else real / view.divisor[..., 0]
    return jnp.einsum("BHQ,BHQS->BHS", real, weights, precision="highest")  # a masked sum would copy the weights


def row_sizes(weights: jax.Array, view: PairView) -> jax.Array:
    """Each row's absolute weight, including weight on no key and on a past (Gu et al. 2025, with their 1e-8): [B, H, Q]."""
    keys = jnp.abs(weights).sum(axis=-1) + 1e-8
    for beside in (view.bias, view.past):
        keys = keys if beside is None else keys + jnp.abs(beside)
    return keys


def share_sums(weights: jax.Array, view: PairView) -> jax.Array:
    """Sum over queries of each key's share of the row's absolute weight, for any normaliser (Gu et al. 2025): [B, H, S]."""
    return column_sums(jnp.abs(weights) / row_sizes(weights, view)[..., None], view)


def mean_over_later_queries(sums: jax.Array, lengths: jax.Array) -> jax.Array:
    """Sums over queries key <= i < length, divided by their number (Gu et al. 2025, alpha_k): [B, H, S]."""
    seen_by = lengths[:, None, None] - jnp.arange(sums.shape[-1])[None, None, :]
    return sums / jnp.maximum(seen_by, 1)


def bias_sums(weights: jax.Array, view: PairView) -> jax.Array:
    """Sum over queries of the weight of a sink logit, a 1 in the denominator or a key of no token: [B, H]; else 0."""
    return row_sums(view.bias, weights, view)


def past_sums(weights: jax.Array, view: PairView) -> jax.Array:
    """Sum over queries of the weight on the keys of a past: [B, H]; without one 0."""
    return row_sums(view.past, weights, view)


def row_sums(part: jax.Array | None, weights: jax.Array, view: PairView) -> jax.Array:
    """Sum a part of each row [B, H, Q] over the queries of the prompt: [B, H]; 0 if it is None."""
    if part is None:
        return jnp.zeros(weights.shape[:2], weights.dtype)
    return jnp.where(view.real_rows[..., 0], part, 0).sum(axis=-1)


def bias_share_sums(weights: jax.Array, view: PairView) -> jax.Array:
    """`bias_sums` of the share of each row's absolute weight: [B, H]."""
    share = None if view.bias is None else jnp.abs(view.bias) / row_sizes(weights, view)
    return bias_sums(weights, dataclasses.replace(view, bias=share))


def mean_over_queries(sums: jax.Array, lengths: jax.Array) -> jax.Array:
    """Sums over the queries of each prompt, divided by their number: [B, H]."""
    return sums / lengths[:, None]


def later_sums(weights: jax.Array, view: PairView) -> jax.Array:
    """Sum over later queries of the weight on each key, excluding the query at the key itself: [B, H, S]."""
    at_key = view.rows[:, None] == jnp.arange(weights.shape[-1])[None, :]
    return column_sums(jnp.where(at_key, 0, weights), view)


def share_above(sums: jax.Array, lengths: jax.Array, *, eps: float) -> jax.Array:
    """Share of heads whose mean over queries key < i < length is > eps, from `later_sums`: [B, S]."""
    seen_by = lengths[:, None, None] - 1 - jnp.arange(sums.shape[-1])[None, None, :]
    sinks = jnp.where(jnp.isnan(sums), jnp.nan, sums / jnp.maximum(seen_by, 1) > eps)
    return sinks.mean(axis=1, dtype=sums.dtype)


def later_share_sums(weights: jax.Array, view: PairView) -> jax.Array:
    """`later_sums` of each key's share of the row's absolute weight, for rows that do not sum to 1: [B, H, S]."""
    return later_sums(jnp.abs(weights) / row_sizes(weights, view)[..., None], view)


@functools.cache
def sinking_heads(eps: float, shares: bool = False) -> Statistic:
    """Share of a layer's heads that sink on each key, judged by later queries: prompt, layer, key.

    Gu et al.'s threshold (2025), but without the query at the key itself, for edits that change that query's mask. It has no head
    axis, to keep sweeps of many edits small. shares: whether to use shares of each row's weight, for rows that do not sum to 1.
    """
    finish = functools.partial(share_above, eps=eps)
    fn = later_share_sums if shares else later_sums
    return Statistic("sinking_heads", Site.WEIGHTS, fn, ("prompt", "layer", "key"), finish, None if shares else "later")


def cosine_sums(scores: jax.Array, view: PairView) -> jax.Array:
    """Sum over queries key <= i of the cosine of the rotated query with the rotated key, masked or not: [B, H, S]."""
    key = unit(view.key[:, :, : scores.shape[-1]].astype(scores.dtype))
    key = jnp.repeat(key, view.query.shape[1] // view.key.shape[1], axis=1)
    cosine = jnp.einsum("BHQD,BHSD->BHQS", unit(view.query.astype(scores.dtype)), key, precision="highest")
    causal = view.rows[:, None] >= jnp.arange(scores.shape[-1])[None, :]
    return jnp.where(view.real_rows & causal, cosine, 0).sum(axis=2)


def row_entropy(weights: jax.Array, view: View) -> jax.Array:
    """Entropy of each row in nats, 0 log 0 = 0: [B, H, Q]."""
    nothing = weights <= 0  # False for NaN, which must not count as 0
    return jnp.where(nothing, 0, -weights * jnp.log(jnp.where(nothing, 1, weights))).sum(axis=-1)


def own_weight(weights: jax.Array, view: PairView) -> jax.Array:
    """Weight of each query on its own key: [B, H, Q]."""
    at_own = view.rows[:, None] == jnp.arange(weights.shape[-1])[None, :]
    return jnp.where(at_own, weights, 0).sum(axis=-1)


def norm(x: jax.Array, view: View) -> jax.Array:
    """L2 norm over the last axis."""
    return jnp.sqrt(jnp.square(x).sum(axis=-1))


def head_norm(x: jax.Array, view: View) -> jax.Array:
    """L2 norm of each head's vector: [B, H, T] from [B, T, H, D]."""
    return norm(x, view).swapaxes(1, 2)


def abs_max(x: jax.Array, view: View) -> jax.Array:
    """Largest absolute value over dims; NaN if any is not finite.

    We take the maximum and minimum of x, which on a CPU saves a copy of |x|. XLA's maximum skips NaN there.
    """
    return jnp.maximum(x.max(axis=-1), -x.min(axis=-1)) + _zero_or_nan(x)


def abs_argmax(x: jax.Array, view: View) -> jax.Array:
    """Dim of the largest absolute value, or of a non-finite one; ties take the lowest dim.

    `jnp.argmax` costs a CPU four times as much.
    """
    dims = jax.lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 1)
    largest = (jnp.abs(x) == abs_max(x, view)[..., None]) | ~jnp.isfinite(x)
    return jnp.where(largest, dims, x.shape[-1]).min(axis=-1)


def abs_median(x: jax.Array, view: View) -> jax.Array:
    """Median of the absolute values over dims, equal to `jnp.median`, by bisection on the bits instead of a sort.

    Non-negative floats are ordered like their bit patterns, so the k-th smallest is found bit by bit, by counting.
    """
    size = x.shape[-1]
    width = x.dtype.itemsize * 8
    whole = {32: jnp.int32, 64: jnp.int64}[width]
    bits = jax.lax.bitcast_convert_type(jnp.abs(x), whole)
    rank = (size - 1) // 2

    def settle(step: jax.Array, settled: jax.Array) -> jax.Array:
        trial = settled | (jnp.ones((), whole) << (width - 2 - step).astype(whole))
        below = (bits < trial[..., None]).sum(axis=-1)
        return jnp.where(below <= rank, trial, settled)

    lower = jax.lax.fori_loop(0, width - 1, settle, jnp.zeros(x.shape[:-1], whole))
    if size % 2:
        return jax.lax.bitcast_convert_type(lower, x.dtype) + _zero_or_nan(x)
    at_most = (bits <= lower[..., None]).sum(axis=-1)
    next_up = jnp.where(bits > lower[..., None], bits, jnp.iinfo(whole).max).min(axis=-1)
    upper = jnp.where(at_most > rank + 1, lower, next_up)
    low, high = (jax.lax.bitcast_convert_type(each, x.dtype) for each in (lower, upper))
    return low / 2 + high / 2 + _zero_or_nan(x)  # halving is exact, so their sum is rounded only once


def excess_kurtosis(x: jax.Array, view: View) -> jax.Array:
    """Fourth central moment over dims, divided by the squared variance, less 3: 0 for a normal distribution; NaN for a constant.

    With one large entry in d it is about d (Kaul et al. 2025, arXiv 2410.17174).
    """
    centred = x - x.mean(axis=-1, keepdims=True)
    centred = centred / jnp.sqrt(jnp.square(centred).mean(axis=-1, keepdims=True))
    return (centred**4).mean(axis=-1) - 3


def first_cosine(x: jax.Array, view: View) -> jax.Array:
    """Cosine of each position's vector with the first one's."""
    return jnp.einsum("BTd,Bd->BT", unit(x), unit(x)[:, 0], precision="highest")


def unit(x: jax.Array) -> jax.Array:
    """Normalise vectors along the last axis; zero vectors stay zero."""
    return x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), jnp.finfo(x.dtype).tiny)


def _zero_or_nan(x: jax.Array) -> jax.Array:
    """Return 0 where all dims are finite, else NaN. On a CPU this product and sum cost a third of `isfinite` and a count."""
    return (x * 0).sum(axis=-1)


def non_finite_cells(x: jax.Array, view: View) -> jax.Array:
    """Number of positions in each prompt with an infinite or NaN activation: int32 [B]."""
    real = jnp.arange(x.shape[1])[None, :] < view.lengths[:, None]
    return (real & jnp.isnan(_zero_or_nan(x))).sum(axis=-1, dtype=jnp.int32)


# Sums over the rows of each prompt, so that those of some rows add up; and functions of each row on its own.
SUMS = (
    column_sums, share_sums, bias_sums, bias_share_sums, past_sums, later_sums, later_share_sums, cosine_sums, non_finite_cells,
)  # fmt: skip
BY_ROW = (row_entropy, own_weight, norm, head_norm, abs_max, abs_argmax, abs_median, excess_kurtosis)


def cut_by_rows(entry: Statistic) -> bool:
    """Return whether a statistic can be computed for some rows, and joined with those of the others."""
    return entry.fn in SUMS or (entry.finish is None and (entry.by_row or entry.fn in BY_ROW))


# Part of every record of a non-empty probe, so that overflow never goes unnoticed.
NON_FINITE = Statistic("non_finite", Site.RESID, non_finite_cells, ("prompt", "depth"))

BUILT_IN: dict[str, Statistic] = {
    entry.name: entry
    for entry in (
        Statistic("attention_received", Site.WEIGHTS, column_sums, KEYS, mean_over_later_queries, "received"),
        Statistic("attention_share", Site.WEIGHTS, share_sums, KEYS, mean_over_later_queries),
        Statistic("attention_received_bias", Site.WEIGHTS, bias_sums, ("prompt", "layer", "head"), mean_over_queries, "no key"),
        Statistic("attention_share_bias", Site.WEIGHTS, bias_share_sums, ("prompt", "layer", "head"), mean_over_queries),
        Statistic("attention_received_past", Site.WEIGHTS, past_sums, ("prompt", "layer", "head"), mean_over_queries, "past"),
        Statistic("row_entropy", Site.WEIGHTS, row_entropy, ("prompt", "layer", "head", "query")),
        Statistic("attention_self", Site.WEIGHTS, own_weight, ("prompt", "layer", "head", "query")),
        Statistic("query_key_cosine", Site.LOGITS, cosine_sums, KEYS, mean_over_later_queries),
        Statistic("resid_max", Site.RESID, abs_max, DEPTHS),
        Statistic("resid_norm", Site.RESID, norm, DEPTHS),
        Statistic("resid_median", Site.RESID, abs_median, DEPTHS),
        Statistic("resid_argmax", Site.RESID, abs_argmax, DEPTHS),
        Statistic("resid_kurtosis", Site.RESID, excess_kurtosis, DEPTHS),
        Statistic("resid_first_cosine", Site.RESID, first_cosine, DEPTHS),
        Statistic("query_norm", Site.QUERY, head_norm, ("prompt", "layer", "head", "position")),
        Statistic("key_norm", Site.KEY, head_norm, ("prompt", "layer", "kv_head", "position")),
        Statistic("value_norm", Site.VALUE, head_norm, ("prompt", "layer", "kv_head", "position")),
    )
}
