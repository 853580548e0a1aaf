"""Sinks and massive activations as functions of a record, computed after the run and without the model.

A record is anything that maps statistic names to arrays: a `Record` or an `xarray.Dataset`. Its arrays may have further
leading axes (`edit`, from a sweep), written "..." below. Results are NumPy arrays with one value per prompt, so that intervals
over prompts can follow (`sinkjax.intervals`). Positions, layers and depths count from 0; depth 0 is the embedding and depth
l + 1 the residual stream after block l. What is undefined for a prompt (a key that it does not have, a ratio to nothing) is NaN,
never a guess: `sinkjax.intervals.interval` leaves such prompts out and counts them.

Options shared by the functions on sinks:
    rule        "gu" (Gu et al. 2025, arXiv 2410.10781): a key's score is its attention averaged over the queries that see it,
                and a head sinks on it if the score is > eps. "queipo" (Queipo-de-Llano et al. 2026, arXiv 2510.06477): the same
                sum over queries, divided by the length of the prompt, and >= eps. The two agree on key 0.
    per         "prompt": share of all (layer, head); "layer": share of a layer's heads; "head": 1 or 0 for each head.
    statistic   "attention_received", or "attention_share" for attention whose rows do not sum to 1.
    min_queries where a key is searched for: only keys seen by at least so many queries, as a mean over few is no evidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkjax.errors import SinkjaxError, one_of

NEVER = np.inf
RULES = ("gu", "queipo")
STATISTICS = ("attention_received", "attention_share")
HEAD_AXES = {"prompt": (-2, -1), "layer": (-1,), "head": ()}

Floats = NDArray[np.floating]


class Peak(NamedTuple):
    """Where something is largest, and how large.

    Attributes:
        position: int, -1 where undefined.
        value: float, NaN where undefined.
    """

    position: NDArray[np.integer]
    value: Floats


def sink_rate(
    record: Mapping[Any, Any],
    key: ArrayLike = 0,
    eps: float = 0.3,
    *,
    per: str = "prompt",
    rule: str = "gu",
    statistic: str = "attention_received",
) -> Floats:
    """Share of heads that sink on `key`, thresholded in each prompt and head before anything is averaged.

    Args:
        record: Statistics by name, with `statistic`.
        key: int, or int[prompt] (int[..., prompt]) for a key of its own in each prompt.
        eps: The threshold on a key's score.
        per, rule, statistic: See the top of this module.

    Returns:
        float[..., prompt], [..., prompt, layer] or [..., prompt, layer, head] in 0..1, as `per` says; NaN for a prompt that does
        not reach the key.

    Raises:
        SinkjaxError: The statistic was not measured; the key is outside the record; `per`, `rule` or `statistic` is unknown.
    """
    scores = _pick(_scores(record, statistic, rule), key, inner=2)
    return _head_mean(_above(scores, eps, rule), per)


def sink_rate_among(
    record: Mapping[Any, Any],
    where: ArrayLike,
    eps: float = 0.3,
    *,
    min_queries: int = 8,
    per: str = "prompt",
    rule: str = "gu",
    statistic: str = "attention_received",
) -> Floats:
    """Share of heads that sink on at least one of the keys chosen by `where`: sinks on full stops, line breaks, ...

    Args:
        record: Statistics by name, with `statistic`.
        where: bool[prompt, key], the keys (see `token_mask`).
        eps: The threshold on a key's score.
        min_queries, per, rule, statistic: See the top of this module.

    Returns:
        As `sink_rate`; NaN for a prompt in which no chosen key is seen by `min_queries` queries.

    Raises:
        SinkjaxError: As `sink_rate`; `where` is not boolean or does not fit; `min_queries` is below 1.
    """
    scores = _scores(record, statistic, rule)
    chosen = _candidates(scores, where, min_queries)[..., None, None, :]
    best = np.max(scores, axis=-1, where=chosen, initial=-np.inf)
    return _head_mean(_above(np.where(chosen.any(-1), best, np.nan), eps, rule), per)


def sink_position(
    record: Mapping[Any, Any],
    where: ArrayLike | None = None,
    *,
    min_queries: int = 8,
    per: str = "prompt",
    statistic: str = "attention_received",
) -> Peak:
    """The key that receives most attention, and how much: averaged over the heads that `per` joins, ties to the lowest key.

    Args:
        record: Statistics by name, with `statistic`.
        where: bool[prompt, key], the keys to choose from; None: all.
        min_queries, per, statistic: See the top of this module.

    Returns:
        A Peak of [..., prompt], [..., prompt, layer] or [..., prompt, layer, head], undefined for a prompt in which no such key
        is seen by `min_queries` queries.

    Raises:
        SinkjaxError: As `sink_rate_among`.
    """
    received = _measured(record, _known_statistic(statistic))
    candidates = _candidates(received, where, min_queries)
    means = np.moveaxis(_head_mean(np.moveaxis(received, -1, 0), per), 0, -1)
    return _peak(means, candidates.reshape(candidates.shape[:-1] + (1,) * (means.ndim - candidates.ndim) + candidates.shape[-1:]))


def sink_onset(
    record: Mapping[Any, Any],
    key: ArrayLike = 0,
    eps: float = 0.3,
    *,
    share: float = 0.5,
    rule: str = "gu",
    statistic: str = "attention_received",
) -> Floats:
    """First layer in which more than a share of the heads sink on `key`.

    Args:
        record: Statistics by name, with `statistic`.
        key: int, or int[prompt] (int[..., prompt]) for a key of its own in each prompt.
        eps: The threshold on a key's score.
        share: Of the layer's heads, in 0..1.
        rule, statistic: See the top of this module.

    Returns:
        float[..., prompt]: the layer, from 0; `NEVER` (inf) if there is none; NaN where the sink rate is undefined before.

    Raises:
        SinkjaxError: As `sink_rate`.
    """
    return onset(sink_rate(record, key, eps, per="layer", rule=rule, statistic=statistic), share)


def undecided_heads(
    record: Mapping[Any, Any],
    other: Mapping[Any, Any],
    key: ArrayLike = 0,
    eps: float = 0.3,
    *,
    per: str = "prompt",
    rule: str = "gu",
    statistic: str = "attention_received",
) -> Floats:
    """Share of heads whose score of `key` is no further from eps than the two records are from each other.

    No head outside this share changes sides between the two.

    Args:
        record: The run in one dtype: statistics by name, with `statistic`.
        other: The same run in another dtype.
        key, eps, per, rule, statistic: As for `sink_rate`.

    Returns:
        As `sink_rate`.

    Raises:
        SinkjaxError: As `sink_rate`; the records differ in shape.
    """
    one, two = (_pick(_scores(each, statistic, rule), key, inner=2).astype(np.float64) for each in (record, other))
    if one.shape != two.shape:
        raise SinkjaxError(f"the two records differ in shape: {one.shape} and {two.shape} (prompts, layers, heads)")
    gap = np.abs(one - two)
    return _head_mean(np.where(np.isnan(gap), np.nan, np.abs(one - _number("eps", eps)) <= gap), per)


def massive_activations(
    record: Mapping[Any, Any], position: ArrayLike | None = None, *, threshold: float = 100.0, ratio: float = 1000.0
) -> Floats:
    """Sun et al.'s rule (2024, arXiv 2402.17762): max |h| > threshold and > ratio times the median |h| of the same position.

    The rule was made for models of 7B parameters and fails in small ones (arXiv 2508.03616): report `norm_ratio`,
    `top1_over_median` and the maximum itself beside it.

    Args:
        record: Statistics by name, with resid_max and resid_median.
        position: int, int[prompt], or None for all.
        threshold: In units of the residual stream.
        ratio: To the median.

    Returns:
        1, 0 or NaN: float[..., prompt, depth], with a last axis of positions where `position` is None.

    Raises:
        SinkjaxError: A statistic was not measured; the position is outside the record; a threshold is not finite.
    """
    largest, median = _measured(record, "resid_max"), _measured(record, "resid_median")
    massive = (largest > _number("threshold", threshold)) & (largest > _number("ratio", ratio) * median)
    return _at(np.where(np.isnan(largest + median), np.nan, massive), position)


def norm_ratio(record: Mapping[Any, Any], position: ArrayLike | None = None) -> Floats:
    """||h_k|| over the mean ||h_t|| of the prompt's other positions t != k (Gu et al., their Figs. 7 and 8).

    Args:
        record: Statistics by name, with resid_norm.
        position: int, int[prompt], or None for all.

    Returns:
        float[..., prompt, depth], with a last axis of positions where `position` is None; NaN in a prompt of one token.

    Raises:
        SinkjaxError: The statistic was not measured; the position is outside the record.
    """
    norms = _measured(record, "resid_norm").astype(np.float64)
    present = ~np.isnan(norms)
    others = np.where(present, norms, 0).sum(-1, keepdims=True) - norms
    return _at(_ratio(norms * (present.sum(-1, keepdims=True) - 1), others), position)


def top1_over_median(record: Mapping[Any, Any], position: ArrayLike | None = None) -> Floats:
    """max |h| over median |h| of the same position.

    Args:
        record: Statistics by name, with resid_max and resid_median.
        position: int, int[prompt], or None for all.

    Returns:
        As `norm_ratio`; NaN where the median is 0.

    Raises:
        SinkjaxError: As `norm_ratio`.
    """
    return _at(_ratio(_measured(record, "resid_max"), _measured(record, "resid_median")), position)


def largest_activation(record: Mapping[Any, Any], where: ArrayLike | None = None) -> Peak:
    """The position with the largest |h|, and its value, at each depth.

    Args:
        record: Statistics by name, with resid_max.
        where: bool[prompt, position], the positions to choose from (`token_mask`: activations on full stops); None: all.

    Returns:
        A Peak of [..., prompt, depth].

    Raises:
        SinkjaxError: The statistic was not measured; `where` is not boolean or does not fit.
    """
    largest = _measured(record, "resid_max")
    return _peak(largest, _chosen(largest, where, inner=1)[..., None, :] & ~np.isnan(largest))


def massive_onset(
    record: Mapping[Any, Any], position: ArrayLike | None = 0, *, threshold: float = 100.0, ratio: float = 1000.0
) -> Floats:
    """First depth with a massive activation (Sun et al.'s rule) at `position`, or anywhere for None; `NEVER` (inf) if none has.

    Other rules compose: `onset(norm_ratio(record, 0), 10)`.

    Args:
        record, threshold, ratio: As for `massive_activations`.
        position: int, int[prompt], or None for anywhere.

    Returns:
        float[..., prompt]: the depth, 0 for the embedding.

    Raises:
        SinkjaxError: As `massive_activations`.
    """
    massive = massive_activations(record, position, threshold=threshold, ratio=ratio)
    return onset(massive if position is not None else np.fmax.reduce(massive, axis=-1), 0.5)


def onset(values: ArrayLike, threshold: float) -> Floats:
    """First index along the last axis (layers or depths) at which values > threshold.

    Args:
        values: float[..., n].
        threshold: A finite number.

    Returns:
        float[...]: `NEVER` (inf) where no value is above, so that a mean cannot hide it; NaN where a NaN comes before any.

    Raises:
        SinkjaxError: The threshold is not one finite number.
    """
    values = np.asarray(values, dtype=np.float64)
    undefined = np.isnan(values)
    hit = undefined | (values > _number("threshold", threshold))
    first = hit.argmax(-1)
    blocked = np.take_along_axis(undefined, first[..., None], -1)[..., 0]
    return np.where(hit.any(-1), np.where(blocked, np.nan, first), NEVER)


def mean_nll(record: Mapping[Any, Any], lengths: ArrayLike | None = None) -> Floats:
    """Mean negative log-likelihood over the predicted tokens of each prompt.

    Args:
        record: Statistics by name, with nll.
        lengths: int[prompt], the tokens of each prompt; with them a NaN before a prompt's end makes its mean NaN.

    Returns:
        float[..., prompt] in nats per token; NaN in a prompt of one token.

    Raises:
        SinkjaxError: The statistic was not measured; the lengths do not fit.
    """
    nll = _measured(record, "nll").astype(np.float64)
    if lengths is None:
        scored = ~np.isnan(nll)
    else:
        last = _broadcast("lengths", np.asarray(lengths), nll.shape[:-1]) - 1
        scored = np.arange(nll.shape[-1]) < last[..., None]
    return _ratio(np.where(scored, nll, 0).sum(-1), scored.sum(-1))


def perplexity(record: Mapping[Any, Any], lengths: ArrayLike | None = None) -> Floats:
    """exp(`mean_nll`) of each prompt.

    Args:
        record, lengths: As for `mean_nll`.

    Returns:
        float[..., prompt].

    Raises:
        SinkjaxError: As `mean_nll`.
    """
    return np.exp(mean_nll(record, lengths))


def token_mask(
    tokens: ArrayLike, decode: Callable[[Sequence[int]], str], texts: Collection[str] = (".", "\n")
) -> NDArray[np.bool_]:
    """Which positions, the first left out, hold a token that reads as one of `texts` (spaces around it aside).

    Args:
        tokens: int[prompt, position].
        decode: Token ids -> text, such as a tokenizer's.
        texts: What a token may read as.

    Returns:
        bool[prompt, position]. Padding may be chosen; a record has nothing there.
    """
    tokens = np.asarray(tokens)
    ids = [token for token in np.unique(tokens) if decode([int(token)]).strip(" ") in texts]
    return np.isin(tokens, ids) & (np.arange(tokens.shape[-1]) > 0)


def _measured(record: Mapping[Any, Any], name: str) -> Floats:
    from sinkjax.probes.record import Record  # imports JAX, which a list of the studies need not

    values = np.asarray(Record(record)[name])
    return values.astype(np.result_type(values.dtype, np.float32), copy=False)


def _known_statistic(name: str) -> str:
    one_of("statistic", name, STATISTICS)
    return name


def _number(name: str, value: float) -> float:
    if not isinstance(value, Real) or not math.isfinite(value):
        raise SinkjaxError(f"{name} must be one finite number, not {value!r}")
    return float(value)


def _scores(record: Mapping[Any, Any], statistic: str, rule: str) -> Floats:
    """Score of each key under `rule`: float[..., prompt, layer, head, key]."""
    one_of("rule", rule, RULES)
    received = _measured(record, _known_statistic(statistic))
    if rule == "gu":
        return received
    queries = _queries(received)
    return received * (queries / np.maximum(queries[..., :1], 1))[..., None, None, :].astype(received.dtype)


def _queries(received: Floats) -> NDArray[np.integer]:
    """How many queries see each key, length - key: int[..., prompt, key], 0 or less beyond the prompt."""
    lengths = (~np.isnan(received)).any(axis=(-3, -2)).sum(-1)
    return lengths[..., None] - np.arange(received.shape[-1])


def _candidates(received: Floats, where: ArrayLike | None, min_queries: int) -> NDArray[np.bool_]:
    """Keys that may be searched: bool[..., prompt, key]."""
    if min_queries < 1:
        raise SinkjaxError(f"min_queries must be at least 1, not {min_queries}")
    return _chosen(received, where, inner=2) & (_queries(received) >= min_queries)


def _chosen(values: Floats, where: ArrayLike | None, inner: int) -> NDArray[np.bool_]:
    """`where` as bool[..., prompt, position] for values[..., prompt, (inner axes), position]."""
    shape = values.shape[: -1 - inner] + values.shape[-1:]
    mask = np.asarray(True if where is None else where)
    if mask.dtype != np.bool_:
        raise SinkjaxError(f"a choice of positions must be boolean, not {mask.dtype}")
    return _broadcast("a choice of positions", mask, shape)


def _pick(values: Floats, position: ArrayLike, inner: int) -> Floats:
    """values[..., prompt, (inner axes), position] at one position, or one per prompt: [..., prompt, (inner axes)]."""
    position, size = np.asarray(position), values.shape[-1]
    if position.dtype.kind not in "iu":
        raise SinkjaxError(f"a position must be a whole number, not {position.dtype}")
    outside = position[(position < 0) | (position >= size)]
    if outside.size:
        raise SinkjaxError(f"position {outside[0]} is not in the record; allowed: 0 to {size - 1}")
    index = _broadcast("positions", position, values.shape[: -1 - inner])
    return np.take_along_axis(values, index.reshape(index.shape + (1,) * (inner + 1)), axis=-1)[..., 0]


def _at(values: Floats, position: ArrayLike | None) -> Floats:
    """values[..., prompt, depth, position] at a position, or as they are for None."""
    return values if position is None else _pick(values, position, inner=1)


def _broadcast(what: str, array: NDArray, shape: tuple[int, ...]) -> NDArray:
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise SinkjaxError(f"{what} of shape {array.shape} do not fit a record of shape {shape}") from None


def _above(scores: Floats, eps: float, rule: str) -> Floats:
    """1 or 0, NaN where the score is."""
    eps = _number("eps", eps)
    return np.where(np.isnan(scores), np.nan, scores > eps if rule == "gu" else scores >= eps)


def _head_mean(values: Floats, per: str) -> Floats:
    """values[..., layer, head] averaged over the axes that `per` joins."""
    one_of("per", per, HEAD_AXES)
    return values.mean(axis=HEAD_AXES[per], dtype=np.float64)


def _ratio(above: Floats, below: Floats) -> Floats:
    """above / below, NaN where there is nothing below."""
    return np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0)


def _peak(values: Floats, chosen: NDArray[np.bool_]) -> Peak:
    """The largest of values[..., position] among the chosen."""
    masked = np.where(chosen, values, -np.inf)
    position = masked.argmax(-1)
    value = np.take_along_axis(masked, position[..., None], -1)[..., 0]
    defined = chosen.any(-1) & ~np.isnan(value)
    return Peak(np.where(defined, position, -1), np.where(defined, value, np.nan))
