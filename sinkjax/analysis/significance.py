"""Tests of means against 0, and rank correlation."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkjax.analysis.intervals import FEWEST_RESAMPLED, RESAMPLES, generator, shared_clusters, standard_error


def independent(samples: ArrayLike, clusters: ArrayLike | None = None) -> int:
    """How many of some samples are independent of each other: the finite ones, or their clusters where they share any.

    Args:
        samples: float[n]; NaN and inf are not counted.
        clusters: int[n] or str[n], the cluster of each sample; None: all are independent.

    Returns:
        The number.
    """
    finite = np.isfinite(np.asarray(samples, dtype=np.float64))
    return int(finite.sum()) if clusters is None else len(np.unique(np.asarray(clusters)[finite]))


def p_values(samples: ArrayLike, *, seed: int = 0, clusters: ArrayLike | None = None) -> tuple[float, float]:
    """How well the mean of some samples is shown to lie above 0, and below.

    Twice the one-sided p of the test that belongs to `intervals`, at most 1, so that it is at most 0.05 where the 95 % interval
    lies on that side of 0. Samples without any spread are tested by their signs, samples with two values by the binomial test.

    Args:
        samples: float[n]; NaN and inf are left out.
        seed, clusters: As for `intervals`.

    Returns:
        p of each side; 1 without samples or for a single one.

    Raises:
        SinkjaxError: There is not one cluster for each sample; the seed is negative.
    """
    from scipy.stats import norm, t

    values = np.asarray(samples, dtype=np.float64)
    finite = np.isfinite(values)
    shared = shared_clusters(clusters, len(values))
    gaps, groups = values[finite], None if shared is None else shared[finite]
    n = len(gaps) if groups is None else len(np.unique(groups))
    if n < 2:
        return 1.0, 1.0
    if gaps.min() == gaps.max():
        p = min(1.0, 2.0 ** (1 - n))
        return (p if gaps[0] > 0 else 1.0), (p if gaps[0] < 0 else 1.0)
    if groups is None and len(np.unique(gaps)) == 2:
        return _two_valued(gaps)
    if groups is not None or len(gaps) < FEWEST_RESAMPLED:
        upper = t.sf(gaps.mean() / standard_error(gaps[None], groups)[0], n - 1)
    else:
        means, mean = gaps[_resamples(seed, len(gaps))].mean(-1), gaps.mean()
        bias = norm.ppf((np.mean(means < mean) + np.mean(means <= mean)) / 2)
        skew = ((gaps - mean) ** 3).sum() / (6 * ((gaps - mean) ** 2).sum() ** 1.5)
        below = np.clip((np.mean(means < 0) + np.mean(means <= 0)) / 2, 0.5 / RESAMPLES, 1 - 0.5 / RESAMPLES)
        w = norm.ppf(below) - bias  # BCa inverted: the level of the interval that ends at 0
        upper = norm.cdf(w / (1 + skew * w) - bias)
    return float(min(1.0, 2 * upper)), float(min(1.0, 2 * (1 - upper)))


def _two_valued(gaps: NDArray[Any]) -> tuple[float, float]:
    """The exact binomial test of samples with two values, such as shares of yes and no: as `p_values`."""
    from scipy.stats import binom

    low, high = gaps.min(), gaps.max()
    if low >= 0 or high <= 0:  # a mean of 0 is out of reach, so only signs count
        p = min(1.0, 2.0 ** (1 - int((gaps != 0).sum())))
        return (p, 1.0) if low >= 0 else (1.0, p)
    count, share = int((gaps == high).sum()), -low / (high - low)  # of the high value where the mean is 0
    above, below = binom.sf(count - 1, len(gaps), share), binom.cdf(count, len(gaps), share)
    return float(min(1.0, 2 * above)), float(min(1.0, 2 * below))


@functools.lru_cache(maxsize=8)
def _resamples(seed: int, n: int) -> NDArray[np.integer]:
    """The resamples of n samples that `intervals` takes too: int[resample, n]."""
    return generator(seed, "bootstrap").integers(0, n, (RESAMPLES, n))


def kendall_tau(x: ArrayLike, y: ArrayLike) -> float:
    """Kendall's tau-b of two rows of numbers: 1 for the same order, -1 for the opposite one.

    Args:
        x: float[n].
        y: float[n], paired with `x`.

    Returns:
        A number in -1..1; NaN where a row holds a NaN or has no two different numbers.

    Raises:
        ValueError: The rows differ in length.
    """
    from scipy.stats import kendalltau

    return float(kendalltau(x, y).statistic)
