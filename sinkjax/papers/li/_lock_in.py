"""Dominance of one dim in hidden states, and the lock-in of keys and queries on it: reductions inside the forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from numpy.typing import NDArray

import sinkjax
from sinkjax.checkpoints.model import Model
from sinkjax.model.norms import AfterRotation, AllHeads, EachHead, gains
from sinkjax.model.ops import rms_norm
from sinkjax.model.site import Site
from sinkjax.papers.gu._geometry import mean_over_queries_after
from sinkjax.probes.probe import Capture, Probe
from sinkjax.probes.statistics import PairView, Statistic
from sinkjax.study import Batch

BLOCK = 4  # prompts per forward pass, whose hidden states are in memory at the same time
HEADS, KV_HEADS = ("prompt", "layer", "head"), ("prompt", "layer", "kv_head")


def _queries(view: PairView, dtype: jnp.dtype) -> jax.Array:
    """Rotated queries of real positions except the first, zeros elsewhere: [B, H, Q, D]."""
    return jnp.where((view.real_rows & (view.rows > 0)[None, None, :, None]), view.query.astype(dtype), 0)


def gram(scores: jax.Array, view: PairView) -> jax.Array:
    """Sum of q q' over all queries except the first: [B, H, D, D]."""
    queries = _queries(view, scores.dtype)
    return jnp.einsum("BHQD,BHQE->BHDE", queries, queries, precision="highest")


def query_sum(scores: jax.Array, view: PairView) -> jax.Array:
    """Sum of all queries except the first: [B, H, D]."""
    return _queries(view, scores.dtype).sum(axis=2)


def rotated_keys(scores: jax.Array, view: PairView) -> jax.Array:
    """The rotated keys, [B, K, S, D], in the first block of queries, as every block sees them."""
    return jnp.where(view.rows[0] == 0, view.key.astype(scores.dtype), 0)


def positive(scores: jax.Array, view: PairView) -> jax.Array:
    """Number of later queries with a positive score for each key: [B, H, S]."""
    later = view.rows[:, None] > jnp.arange(scores.shape[-1])[None, :]
    return ((scores > 0) & later & view.real_rows).sum(axis=2).astype(scores.dtype)


STATISTICS = (
    Statistic("query_gram", Site.LOGITS, gram, (*HEADS, "dim", "other_dim")),
    Statistic("query_sum", Site.LOGITS, query_sum, (*HEADS, "dim")),
    Statistic("rotated_keys", Site.LOGITS, rotated_keys, ("prompt", "layer", "kv_head", "key", "dim")),
    Statistic("positive", Site.LOGITS, positive, (*HEADS, "key"), mean_over_queries_after),
)


@partial(jax.jit, static_argnames="eps")
def ratios(states: jax.Array, factors: jax.Array, *, eps: float) -> dict[str, jax.Array]:
    """Dominance of hidden states [B, depth, T, d] before and after the norm that reads them, with factors [depth, d].

    before, after: [B, depth, T]. top, mean, dim: the first token's largest and mean |x| after the norm, and the dim of
    the largest, [B, depth].
    """
    sizes, normed = jnp.abs(states), jnp.abs(rms_norm(states, factors[:, None, :], eps))
    size = normed[:, :, 0]
    return {
        "before": sizes.max(axis=-1) / sizes.mean(axis=-1),
        "after": normed.max(axis=-1) / normed.mean(axis=-1),
        "top": size.max(axis=-1),
        "mean": size.mean(axis=-1),
        "dim": size.argmax(axis=-1),
    }


def measure(model: Model, batch: Batch, controls: Sequence[int]) -> xarray.Dataset:
    """Measure dominance by depth and position, and the lock-in of each head.

    Args:
        model: The model.
        batch: Prompts.
        controls: Dims whose rows of W_K take the place of the dominant dim's.

    Returns:
        before, after [prompt, depth, position] and top, mean, dim [prompt, depth], as `ratios`; NaN beyond a prompt. alignment
        and other_alignment [prompt, layer, head]: cos(u_1, k_0), and the mean of cos(u_1, k_j) over later keys of the first half
        of a prompt. key_alignment [layer, head, key]: mean over prompts of cos(u_1, k_j). positive [prompt, layer, head, key]:
        share of later queries with a positive score. own_row [prompt, layer, kv_head]: |cosine| of k_0 with the row of W_K, times
        the gain of a norm of keys, of the dim that dominates there. other_rows [control, prompt, layer, kv_head]: the same
        with the rows of the controls.
    """
    parts = [_block(model, *prompts) for prompts in batch.blocks(BLOCK)]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    gram, queries, keys, count = (joined[name].sum(0) for name in ("gram", "queries", "keys", "count"))
    first, group = first_direction(gram, queries), model.config.group
    of_heads = np.repeat(keys / np.maximum(count, 1), group, axis=1)
    rows = unit(key_rows(model))
    chosen = np.stack([matrix[:, dims] for matrix, dims in zip(rows, joined["dim"].T[:-1], strict=True)])  # [L, K, N, D]
    others = rows[:, :, list(controls)]
    keys_of = {"alignment": joined["key_0"], "other_alignment": joined["key_others"]}
    aligned = {name: np.einsum("NLHD,LHD->NLH", np.repeat(key, group, axis=2), first) for name, key in keys_of.items()}
    return xarray.Dataset(
        {name: (("prompt", "depth", "position"), joined[name]) for name in ("before", "after")}
        | {name: (("prompt", "depth"), joined[name]) for name in ("top", "mean", "dim")}
        | {name: (HEADS, values) for name, values in aligned.items()}
        | {
            "key_alignment": (("layer", "head", "key"), np.einsum("LHSD,LHD->LHS", of_heads, first)),
            "positive": ((*HEADS, "key"), joined["positive"]),
            "own_row": (KV_HEADS, np.abs(np.einsum("NLKD,LKND->NLK", joined["key_0"], chosen))),
            "other_rows": (("control", *KV_HEADS), np.abs(np.einsum("NLKD,LKCD->CNLK", joined["key_0"], others))),
        }
    )


def key_rows(model: Model) -> NDArray[Any]:
    """Return the key that each single dim of the stream makes: rows of W_K times the gain of the keys' norm, float[L, K, d,
    D]."""
    layers, norm = model.params["layers"], model.config.qk_norm
    rows = np.asarray(layers["k"], np.float32).transpose(0, 2, 1, 3)
    norm = norm.norm if isinstance(norm, EachHead | AllHeads | AfterRotation) else norm
    if norm is None or "" not in norm.learned():
        return rows
    return np.asarray(rows * np.asarray(gains(norm, layers["k_norm"])).reshape(len(rows), -1, 1, rows.shape[-1]))


def _block(model: Model, tokens: NDArray[Any], lengths: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Compute the arrays for `measure` from a few prompts; sums (gram, queries, keys, count) have a first axis of length 1."""
    probe = Probe(capture=(Capture(Site.EMBED), Capture(Site.RESID)), extra=STATISTICS)
    record = sinkjax.forward(model.params, tokens, model.config, probe=probe, lengths=lengths, logits=False).record
    states = jnp.concatenate([record["embed"][:, None], record["resid"]], axis=1)
    norm = model.config.norm
    assert norm is not None
    every = gains(norm, jnp.concatenate([model.params["layers"]["attn_norm"], model.params["final_norm"][None]]))
    found = {name: np.asarray(array) for name, array in ratios(states, every, eps=norm.eps).items()}
    real = (np.arange(tokens.shape[1]) < lengths[:, None])[:, None]
    found |= {name: np.where(real, found[name], np.nan) for name in ("before", "after")}
    keys = unit(np.asarray(record["rotated_keys"], np.float32))
    there = np.isfinite(keys).all(axis=-1, keepdims=True)
    return found | {
        "key_0": keys[:, :, :, 0],
        "key_others": np.nanmean(keys[:, :, :, 1 : tokens.shape[1] // 2 + 1], axis=3),
        "positive": np.asarray(record["positive"], np.float32),
        "gram": np.asarray(record["query_gram"], np.float64).sum(0, keepdims=True),
        "queries": np.asarray(record["query_sum"], np.float64).sum(0, keepdims=True),
        "keys": np.where(there, keys, 0).sum(0, keepdims=True),
        "count": there.sum(0, keepdims=True),
    }


def first_direction(gram: NDArray[Any], total: NDArray[Any]) -> NDArray[Any]:
    """Return u_1 of each head: the first eigenvector of gram [..., D, D], with a positive product with the sum of the queries."""
    vectors = np.linalg.eigh(gram)[1][..., -1]
    return vectors * np.where((vectors * total).sum(-1, keepdims=True) < 0, -1, 1)


def unit(vectors: NDArray[Any]) -> NDArray[Any]:
    """Divide vectors by their norm; a zero vector stays 0."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.finfo(np.float32).tiny))
