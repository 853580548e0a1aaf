"""Sinks and massive activations as functions of a record, computed after the run and without the model.

A record is any mapping from statistic names to arrays, such as a `Record` or an `xarray.Dataset`; `from_tensors` makes one from
the attention maps and hidden states of another program. Its arrays may come from NumPy, JAX or PyTorch, and may have additional
leading axes (`edit`, from a sweep), written "..." below. Results are NumPy arrays with one value per prompt, ready for intervals
over prompts (`sinkjax.intervals`). Positions, layers and depths count from 0; depth 0 is the embedding and depth l + 1 the
residual stream after block l. An undefined value (for a key that a prompt does not have, or a ratio to 0) is NaN;
`sinkjax.intervals.interval` excludes such prompts and counts them.

Options shared by the functions on sinks:

- `rule`: "gu" (Gu et al. 2025, arXiv 2410.10781): a key's score is its attention averaged over the queries that see it, and a
  head sinks on it if the score is > eps. "queipo" (Queipo-de-Llano et al. 2026, arXiv 2510.06477): the same sum over queries,
  divided by the length of the prompt, and >= eps. The two agree on key 0.
- `per`: "prompt" is the share of all (layer, head) pairs; "layer" the share of a layer's heads; "head" 1 or 0 for each head.
- `statistic`: "attention_received", or "attention_share" for attention whose rows do not sum to 1.
- `min_queries`: when searching for a key, consider only keys seen by at least this many queries, because a mean over few is not
  evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkjax.analysis import records
from sinkjax.analysis.heads import diagonal_share, head_load, sink_divergence, value_norm_ratio, value_null_share
from sinkjax.analysis.kinds import SecondarySinks, SinkKind, secondary_sinks, sink_kind, sink_positions
from sinkjax.analysis.records import RECEIVED, RULES, Floats, Peak, Statistics
from sinkjax.analysis.tensors import from_tensors
from sinkjax.config_files.checks import refuse
from sinkjax.errors import SinkjaxError

__all__ = [
    "NEVER", "RULES", "SecondarySinks", "SinkKind", "diagonal_share", "from_tensors", "head_load", "hidden_median", "is_massive",
    "largest_activation", "logit_difference", "massive_activations", "massive_onset", "mean_nll", "norm_ratio", "onset",
    "perplexity", "secondary_sinks", "sink_divergence", "sink_kind", "sink_onset", "sink_position", "sink_positions", "sink_rate",
    "sink_rate_among", "token_mask", "top1_over_median", "undecided_heads", "value_norm_ratio", "value_null_share",
]  # fmt: skip


def sink_rate(
    record: Statistics, key: ArrayLike = 0, eps: float = 0.3, *, per: str = "prompt", rule: str = "gu", statistic: str = RECEIVED
) -> Floats:
    """Return the share of heads that sink on `key`, thresholded per prompt and head before any averaging.

    Args:
        record: Statistics by name, with `statistic`.
        key: int, or int[prompt] (int[..., prompt]) for a different key in each prompt.
        eps: The threshold on a key's score.
        per: "prompt", "layer" or "head": the axes that remain (see the top of this module).
        rule: "gu" (mean over the queries that see the key, > eps) or "queipo" (sum over queries by length, >= eps).
        statistic: "attention_received" or "attention_share".

    Returns:
        float[..., prompt], [..., prompt, layer] or [..., prompt, layer, head] in 0..1, depending on `per`; NaN for a
        prompt that does not reach the key.

    Raises:
        SinkjaxError: The statistic was not measured; the key is outside the record; `per`, `rule` or `statistic` is unknown.
    """
    scores = records.pick(records.key_scores(record, statistic, rule), key, inner=2)
    return records.head_mean(records.above(scores, eps, rule), per)


def sink_rate_among(
    record: Statistics,
    where: ArrayLike,
    eps: float = 0.3,
    *,
    min_queries: int = 8,
    per: str = "prompt",
    rule: str = "gu",
    statistic: str = RECEIVED,
) -> Floats:
    """Return the share of heads that sink on at least one key chosen by `where`, such as full stops or line breaks.

    Args:
        record: Statistics by name, with `statistic`.
        where: bool[prompt, key], the keys (see `token_mask`).
        eps: The threshold on a key's score.
        min_queries: Consider only keys that at least this many queries see.
        per: "prompt", "layer" or "head": the axes that remain (see the top of this module).
        rule: "gu" or "queipo", as for `sink_rate`.
        statistic: "attention_received" or "attention_share".

    Returns:
        The same shape as from `sink_rate`; NaN for a prompt without a chosen key that `min_queries` queries see.

    Raises:
        SinkjaxError: The statistic was not measured; `where` is not boolean or does not fit; `min_queries` is below 1; `per`,
            `rule` or `statistic` is unknown.
    """
    scores = records.key_scores(record, statistic, rule)
    chosen = records.candidates(scores, where, min_queries)[..., None, None, :]
    best = np.max(scores, axis=-1, where=chosen, initial=-np.inf)
    return records.head_mean(records.above(np.where(chosen.any(-1), best, np.nan), eps, rule), per)


def sink_position(
    record: Statistics, where: ArrayLike | None = None, *, min_queries: int = 8, per: str = "prompt", statistic: str = RECEIVED
) -> Peak:
    """Find the key that receives the most attention, and its amount, averaged over heads as `per` specifies.

    Args:
        record: Statistics by name, with `statistic`.
        where: bool[prompt, key], the keys to choose from; None: all.
        min_queries: Consider only keys that at least this many queries see.
        per: "prompt", "layer" or "head": the axes that remain (see the top of this module).
        statistic: "attention_received" or "attention_share".

    Returns:
        A Peak of [..., prompt], [..., prompt, layer] or [..., prompt, layer, head], undefined for a prompt without such a key
        that `min_queries` queries see. Ties go to the lowest key.

    Raises:
        SinkjaxError: The statistic was not measured; `where` is not boolean or does not fit; `min_queries` is below 1; `per` or
            `statistic` is unknown.
    """
    received = records.measured(record, records.known_statistic(statistic))
    candidates = records.candidates(received, where, min_queries)
    means = np.moveaxis(records.head_mean(np.moveaxis(received, -1, 0), per), 0, -1)
    shape = (*candidates.shape[:-1], *(1,) * (means.ndim - candidates.ndim), candidates.shape[-1])
    return records.peak(means, candidates.reshape(shape))


def sink_onset(
    record: Statistics, key: ArrayLike = 0, eps: float = 0.3, *, share: float = 0.5, rule: str = "gu", statistic: str = RECEIVED
) -> Floats:
    """Return the first layer where more than a given share of the heads sink on `key`.

    Args:
        record: Statistics by name, with `statistic`.
        key: int, or int[prompt] (int[..., prompt]) for a different key in each prompt.
        eps: The threshold on a key's score.
        share: Share of the layer's heads, in 0..1.
        rule: "gu" or "queipo", as for `sink_rate`.
        statistic: "attention_received" or "attention_share".

    Returns:
        float[..., prompt]: the layer, from 0; `NEVER` (inf) if no layer qualifies; NaN if the sink rate is undefined in an
        earlier layer.

    Raises:
        SinkjaxError: The statistic was not measured; the key is outside the record; `rule` or `statistic` is unknown.
    """
    return onset(sink_rate(record, key, eps, per="layer", rule=rule, statistic=statistic), share)


def undecided_heads(
    record: Statistics,
    other: Statistics,
    key: ArrayLike = 0,
    eps: float = 0.3,
    *,
    per: str = "prompt",
    rule: str = "gu",
    statistic: str = RECEIVED,
) -> Floats:
    """Return the share of heads whose score of `key` crosses eps, or is as close to eps as the two records are to each other.

    A head can cross eps even at equal scores, because eps is rounded to the dtype of the scores.

    Args:
        record: The run in one dtype: statistics by name, with `statistic`.
        other: The same run in another dtype.
        key, eps, per, rule, statistic: See `sink_rate`.

    Returns:
        The same shape as from `sink_rate`.

    Raises:
        SinkjaxError: The records differ in shape; any error of `sink_rate`.
    """
    one, two = (records.pick(records.key_scores(each, statistic, rule), key, inner=2) for each in (record, other))
    refuse(one.shape != two.shape, f"the two records differ in shape: {one.shape} and {two.shape} (prompts, layers, heads)")
    changed = records.above(one, eps, rule) != records.above(two, eps, rule)
    gap = np.abs(one.astype(np.float64) - two)
    near = np.abs(one.astype(np.float64) - eps) <= gap
    return records.head_mean(np.where(np.isnan(gap), np.nan, near | changed), per)


def mean_nll(record: Statistics, lengths: ArrayLike | None = None) -> Floats:
    """Return the mean negative log-likelihood over the predicted tokens of each prompt.

    Args:
        record: Statistics by name, with nll.
        lengths: int[prompt], number of tokens of each prompt; if given, a NaN before a prompt's end makes its mean NaN.

    Returns:
        float[..., prompt] in nats per token; NaN for a prompt of one token; not finite if a token's loss is not finite.

    Raises:
        SinkjaxError: The statistic was not measured; the lengths do not fit.
    """
    nll = records.measured(record, "nll").astype(np.float64)
    if lengths is None:
        scored = ~np.isnan(nll)  # a NaN between two losses is one that was lost
        scored = np.maximum.accumulate(scored, -1) & np.maximum.accumulate(scored[..., ::-1], -1)[..., ::-1]
    else:
        last = records.broadcast("lengths", np.asarray(lengths), nll.shape[:-1]) - 1
        scored = np.arange(nll.shape[-1]) < last[..., None]
    return records.ratio(np.where(scored, nll, 0).sum(-1), scored.sum(-1))


def perplexity(record: Statistics, lengths: ArrayLike | None = None) -> Floats:
    """Return exp(`mean_nll`) of each prompt.

    Args:
        record, lengths: See `mean_nll`.

    Returns:
        float[..., prompt].

    Raises:
        SinkjaxError: The statistic was not measured; the lengths do not fit.
    """
    return np.exp(mean_nll(record, lengths))


def logit_difference(result: Any, right: ArrayLike, wrong: ArrayLike) -> Floats:
    """Return the logit of one token minus that of another after each prompt.

    Args:
        result: The output of a forward with logits, or the dataset of a sweep with `Probe(logits_of=...)`.
        right: Token id, int or int[prompt].
        wrong: Token id, int or int[prompt].

    Returns:
        float[..., prompt].

    Raises:
        SinkjaxError: The logits of a token were not measured; a record does not say which tokens its logits belong to.
    """
    if hasattr(result, "last_logits"):
        values = np.asarray(result.last_logits)
        known = np.arange(values.shape[-1])
    else:
        values = records.measured(result, "logits_of")
        refuse("token" not in result, "these logits have no token ids: pass the output of the forward, or the dataset of a sweep")
        known = np.asarray(result["token"])
    pair = []
    for token in (right, wrong):
        places = np.asarray(token)[..., None] == known
        if not places.any(axis=-1).all():
            raise SinkjaxError(f"the logits of token {np.asarray(token)[~places.any(axis=-1)].flat[0]} were not measured")
        pair.append(np.take_along_axis(values, np.broadcast_to(places.argmax(axis=-1), values.shape[:-1])[..., None], -1)[..., 0])
    return np.asarray(pair[0] - pair[1])


def token_mask(
    tokens: ArrayLike, decode: Callable[[Sequence[int]], str], texts: Collection[str] = (".", "\n")
) -> NDArray[np.bool_]:
    """Return which positions, except the first, have a token whose stripped text is one of `texts`.

    Args:
        tokens: int[prompt, position].
        decode: A function from token ids to text, such as a tokenizer's.
        texts: The texts to match.

    Returns:
        bool[prompt, position]. Padding may be included; a record has no values there.
    """
    tokens = np.asarray(tokens)
    ids = [token for token in np.unique(tokens) if decode([int(token)]).strip(" ") in texts]
    return np.isin(tokens, ids) & (np.arange(tokens.shape[-1]) > 0)


# Massive activations as functions of a record: size and location of large hidden states, and the depth of onset.


NEVER = np.inf
THRESHOLD, RATIO = 100.0, 1000.0  # thresholds that define a massive activation (Sun et al. 2024, section 2)
STATE_MEDIAN = "state_median"


def is_massive(largest: ArrayLike, median: ArrayLike, *, threshold: float = THRESHOLD, ratio: float = RATIO) -> Floats:
    """Apply Sun et al.'s definition (arXiv 2402.17762): |h| > 100 and > 1,000 times the median |h| of its hidden state.

    A hidden state covers a whole prompt at one depth. As in their code, its median is over all positions and dims
    (`hidden_median`), not over the dims of one position.

    Args:
        largest: |h|, or the largest of several values: float[...].
        median: Median of the hidden state, which broadcasts with `largest`.
        threshold: Lower bound on |h|, in units of the residual stream.
        ratio: Lower bound on |h| divided by the median.

    Returns:
        1 or 0, or NaN where a number is undefined: float[...].

    Raises:
        SinkjaxError: A threshold is not finite.
    """
    largest, median = np.asarray(largest), np.asarray(median)
    threshold, ratio = records.finite_number("threshold", threshold), records.finite_number("ratio", ratio)
    return np.where(np.isnan(largest + median), np.nan, (largest > threshold) & (largest > ratio * median))


def hidden_median(record: Statistics) -> Floats:
    """Return the median |h| of each hidden state, over all positions and dims.

    Args:
        record: Statistics by name, with state_median (this value), or with resid_median, from which the median of the positions'
            medians is used instead.

    Returns:
        float[..., prompt, depth].

    Raises:
        SinkjaxError: Neither statistic was measured.
    """
    if STATE_MEDIAN in record:
        return records.measured(record, STATE_MEDIAN)
    return np.nanmedian(records.measured(record, "resid_median"), axis=-1)


def massive_activations(
    record: Statistics, position: ArrayLike | None = None, *, threshold: float = THRESHOLD, ratio: float = RATIO
) -> Floats:
    """Return whether the largest |h| of a position is massive (`is_massive`).

    The definition was made for 7B models and fails in small ones (arXiv 2508.03616), so also report `norm_ratio`,
    `top1_over_median` and the maximum itself.

    Args:
        record: Statistics by name, with resid_max and the input of `hidden_median`.
        position: int, int[prompt], or None for all.
        threshold, ratio: See `is_massive`.

    Returns:
        1, 0 or NaN: float[..., prompt, depth], with a last axis of positions if `position` is None.

    Raises:
        SinkjaxError: A statistic was not measured; the position is outside the record; a threshold is not finite.
    """
    largest, median = records.measured(record, "resid_max"), hidden_median(record)
    return records.at(is_massive(largest, median[..., None], threshold=threshold, ratio=ratio), position)


def norm_ratio(record: Statistics, position: ArrayLike | None = None) -> Floats:
    """Return ||h_k|| divided by the mean ||h_t|| of the prompt's other positions t != k (Gu et al., Figs. 7 and 8).

    Args:
        record: Statistics by name, with resid_norm.
        position: int, int[prompt], or None for all.

    Returns:
        float[..., prompt, depth], with a last axis of positions if `position` is None; NaN in a prompt of one token.

    Raises:
        SinkjaxError: The statistic was not measured; the position is outside the record.
    """
    return records.at(records.over_others(records.measured(record, "resid_norm").astype(np.float64)), position)


def top1_over_median(record: Statistics, position: ArrayLike | None = None) -> Floats:
    """Return max |h| divided by median |h| at the same position.

    Args:
        record: Statistics by name, with resid_max and resid_median.
        position: int, int[prompt], or None for all.

    Returns:
        The same shape as from `norm_ratio`; NaN where the median is 0.

    Raises:
        SinkjaxError: A statistic was not measured; the position is outside the record.
    """
    return records.at(records.ratio(records.measured(record, "resid_max"), records.measured(record, "resid_median")), position)


def largest_activation(record: Statistics, where: ArrayLike | None = None) -> Peak:
    """Find the position with the largest |h|, and its value, at each depth.

    Args:
        record: Statistics by name, with resid_max.
        where: bool[prompt, position], the positions to search (for example from `token_mask`, to find activations on full
            stops); None for all.

    Returns:
        A Peak of [..., prompt, depth].

    Raises:
        SinkjaxError: The statistic was not measured; `where` is not boolean or does not fit.
    """
    largest = records.measured(record, "resid_max")
    return records.peak(largest, records.choice(largest, where, inner=1)[..., None, :] & ~np.isnan(largest))


def massive_onset(
    record: Statistics, position: ArrayLike | None = 0, *, threshold: float = THRESHOLD, ratio: float = RATIO
) -> Floats:
    """Return the first depth with a massive activation (Sun et al.'s rule) at `position`, or anywhere if None.

    Other rules compose: `onset(norm_ratio(record, 0), 10)`.

    Args:
        record, threshold, ratio: See `massive_activations`.
        position: int, int[prompt], or None for anywhere.

    Returns:
        float[..., prompt]: the depth, 0 for the embedding; `NEVER` (inf) if no depth has one.

    Raises:
        SinkjaxError: A statistic was not measured; the position is outside the record; a threshold is not finite.
    """
    massive = massive_activations(record, position, threshold=threshold, ratio=ratio)
    return onset(massive if position is not None else np.fmax.reduce(massive, axis=-1), 0.5)


def onset(values: ArrayLike, threshold: float) -> Floats:
    """Return the first index along the last axis (layers or depths) where values > threshold.

    Args:
        values: float[..., n].
        threshold: A finite number.

    Returns:
        float[...]: `NEVER` (inf) if no value exceeds it, so that a mean cannot hide this; NaN if a NaN comes first.

    Raises:
        SinkjaxError: The threshold is not a single finite number.
    """
    values = np.asarray(values, dtype=np.float64)
    undefined = np.isnan(values)
    hit = undefined | (values > records.finite_number("threshold", threshold))
    first = hit.argmax(-1)
    blocked = np.take_along_axis(undefined, first[..., None], -1)[..., 0]
    return np.where(hit.any(-1), np.where(blocked, np.nan, first), NEVER)
