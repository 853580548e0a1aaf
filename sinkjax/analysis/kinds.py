"""Kinds of attention sinks.

A sink is a no-op or a broadcast, depending on how much a head writes from it compared with its other keys. Secondary sinks are
later tokens whose state is aligned with the first token's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkjax.analysis import records
from sinkjax.analysis.records import RECEIVED, Floats, Statistics
from sinkjax.config_files.checks import refuse
from sinkjax.errors import SinkjaxError

GIVE, SHARE = 0.5, 0.9  # an event requires this share of later queries to give the key at least this weight
NO_OP, BROADCAST, RANK = 0.2, 0.5, 1.5  # bounds on the ratio and on |U|^2 / sigma_1^2 (arXiv 2606.08105)


class SinkKind(NamedTuple):
    """Kinds of the sinks in a record, as arrays [prompt, layer, head].

    Attributes:
        kind: str: "no-op", "broadcast" or "neither"; "" if there is no event.
        key: int, the sink's key; -1 if there is no event.
        ratio: |u_s| divided by the mean |u_j| of the other keys; NaN if there is no event or all others write nothing.
        rank: |U|_F^2 / sigma_1^2, which is 1 for rank one; NaN if there is no event or the head writes nothing.
    """

    kind: NDArray[Any]
    key: NDArray[np.int64]
    ratio: NDArray[np.float64]
    rank: NDArray[np.float64]


def sink_kind(record: Statistics, out: ArrayLike, min_queries: int = 8) -> SinkKind:
    """Classify each head's sink (Fesser et al., arXiv 2606.08105), using only later queries because attention is causal.

    An event is a key that at least 90% of the later queries give a weight >= 0.5, or the one with the largest mean weight if
    there are several. With u_j = v_j W_O and U the later queries' updates (the rows of A u), a no-op has |u_s| <= 0.2 of the
    other keys' mean |u_j|; a broadcast has >= 0.5 and an update of nearly rank one, |U|_F^2 <= 1.5 sigma_1^2.

    Args:
        record: Statistics with `attention` [prompt, layer, head, query, key] and `values` [prompt, layer, position, kv_head,
            head_dim], both for all layers or for the same chosen ones: `Probe(attention=True, capture=(Capture(Site.VALUE),))`.
        out: W_O of these layers, float[layer, head, head_dim, width]: `model.params["layers"]["o"]`. A gate or a norm on a
            head's output before W_O is ignored.
        min_queries: Minimum number of later queries of a key.

    Returns:
        Arrays [prompt, layer, head].

    Raises:
        SinkjaxError: A statistic was not measured; the shapes do not match; `min_queries` is below 1.
    """
    weights, values = (records.measured(record, name).astype(float) for name in ("attention", "values"))
    matrix = np.asarray(out, float)
    refuse(min_queries < 1, f"min_queries must be an int of at least 1, not {min_queries!r}")
    fits = weights.ndim == values.ndim == 5 and matrix.ndim == 4 and weights.shape[3] == weights.shape[4] == values.shape[2]
    fits = fits and weights.shape[:2] == values.shape[:2] and matrix.shape[:2] == weights.shape[1:3]
    if not fits or matrix.shape[2] != values.shape[4] or weights.shape[2] % values.shape[3]:
        wanted = "attention [prompt, layer, head, query, key], values [prompt, layer, position, kv_head, head_dim]"
        has = f"{weights.shape}, {values.shape} and {matrix.shape}"
        raise SinkjaxError(f"sink_kind needs {wanted} and out [layer, head, head_dim, width] of the same layers, not {has}")
    group = weights.shape[2] // values.shape[3]
    shape = weights.shape[:3]
    found = SinkKind(np.full(shape, "", "<U9"), np.full(shape, -1), np.full(shape, np.nan), np.full(shape, np.nan))
    # |v W_O| = |v S| with S S' = W_O W_O', which avoids arrays as wide as the model
    squares, axes = np.linalg.eigh(matrix @ matrix.swapaxes(-1, -2))
    roots = axes * np.sqrt(np.maximum(squares, 0))[..., None, :]
    for cell in np.ndindex(*shape):
        prompt, layer, head = cell
        vectors = values[prompt, layer, :, head // group]
        present = np.flatnonzero(np.isfinite(vectors).all(axis=-1))
        length = int(present[-1]) + 1 if len(present) else 0
        seen = weights[cell][:length, :length]
        if len(present) == length and np.isfinite(seen).all():  # prompts that overflowed are not classified
            _judge(found, cell, seen, vectors[:length] @ roots[layer, head], min_queries)
    return found


def _judge(found: SinkKind, cell: tuple[int, int, int], weights: Floats, updates: Floats, min_queries: int) -> None:
    """Write one head's entries of `found`: weights [query, key], updates u [key, d]."""
    count = np.arange(len(weights) - 1, -1, -1)  # queries behind each key
    later = np.tril(weights, -1)
    events = np.flatnonzero(((later >= GIVE).sum(axis=0) / np.maximum(count, 1) >= SHARE) & (count >= min_queries))
    if not len(events):
        return
    key = int(events[np.argmax((later.sum(axis=0) / np.maximum(count, 1))[events])])
    norms = np.linalg.norm(updates, axis=-1)
    others, singular = np.delete(norms, key).mean(), np.linalg.svd(weights[key + 1 :] @ updates, compute_uv=False)
    ratio = norms[key] / others if others else np.nan
    rank = (singular**2).sum() / singular[0] ** 2 if singular[0] else np.nan
    found.kind[cell] = "no-op" if ratio <= NO_OP else "broadcast" if ratio >= BROADCAST and rank <= RANK else "neither"
    found.key[cell], found.ratio[cell], found.rank[cell] = key, ratio, rank


ALIGNED = 0.9  # minimum |cosine| with the first token's state (Wong et al., arXiv 2512.22213)


def sink_positions(record: Statistics, eps: float = 0.3, *, min_queries: int = 8, statistic: str = RECEIVED) -> NDArray[np.bool_]:
    """Return the positions that are sinks: some head gives them more than `eps` of its attention.

    Args:
        record: Statistics by name, with `statistic`.
        eps: Threshold: a head sinks on a key if the key's mean attention is above it (Gu et al., arXiv 2410.10781).
        min_queries: Consider only keys that at least this many queries see.
        statistic: "attention_received" or "attention_share".

    Returns:
        bool[..., prompt, key].

    Raises:
        SinkjaxError: The statistic was not measured; `min_queries` is below 1.
    """
    received = records.measured(record, records.known_statistic(statistic))
    return (np.nan_to_num(received) > eps).any(axis=(-3, -2)) & records.candidates(received, None, min_queries)


class SecondarySinks(NamedTuple):
    """Tokens aligned with the first one in each layer's input, as arrays [..., prompt, layer].

    Attributes:
        share: Share of the tokens after the first that are aligned; NaN if the prompt has only one token.
        attention: Mean attention to aligned tokens in the layer, over heads and tokens; NaN if none is aligned.
        others: Mean attention to the other tokens; NaN if all are aligned.
    """

    share: Floats
    attention: Floats
    others: Floats


def secondary_sinks(
    record: Statistics, cosine: float = ALIGNED, *, min_queries: int = 8, statistic: str = RECEIVED
) -> SecondarySinks:
    """Find tokens after the first whose residual stream is aligned with the first token's (Wong et al., arXiv 2512.22213).

    Layer l reads the residual stream at depth l, so alignment there is compared with attention in layer l.

    Args:
        record: Statistics by name, with resid_first_cosine and `statistic`.
        cosine: Minimum absolute cosine of an aligned token, in 0..1.
        min_queries: Use only tokens seen by at least this many queries.
        statistic: "attention_received", or "attention_share" for attention whose rows do not sum to 1.

    Returns:
        The share of aligned tokens, and the attention to them and to the others: float[..., prompt, layer] each.

    Raises:
        SinkjaxError: A statistic was not measured; `min_queries` is below 1; `cosine` is not in 0..1.
    """
    refuse(not 0 <= records.finite_number("cosine", cosine) <= 1, f"cosine must be in 0..1, not {cosine}")
    received = records.measured(record, records.known_statistic(statistic)).astype(np.float64)
    later = records.candidates(received, np.arange(received.shape[-1]) > 0, min_queries)[..., None, :]
    cosines = records.measured(record, "resid_first_cosine")[..., :-1, :]  # depths that are a layer's input
    attention = received.mean(axis=-2)  # over heads
    aligned = later & (np.abs(cosines) >= cosine)

    def mean(chosen: NDArray[np.bool_]) -> Floats:
        return records.ratio(np.where(chosen, attention, 0).sum(-1), chosen.sum(-1))

    share = records.ratio(aligned.sum(-1).astype(float), np.broadcast_to(later.sum(-1), aligned.shape[:-1]))
    return SecondarySinks(share, mean(aligned), mean(later & ~aligned))
