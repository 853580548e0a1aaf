"""Massive activations as functions of a record: size and location of large hidden states, and the depth of onset.

Records, axes and undefined values follow `sinkjax.metrics`, which lists these functions too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from sinkjax.analysis import records
from sinkjax.analysis.records import Floats, Peak, Statistics

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
