"""Confidence intervals for means and ratios of means that keep their level on skewed and mostly constant samples.

Every interval comes from one question: is the mean of D - c W shown to be above or below 0? The interval of the ratio D / W is
the set of c where neither is shown; with W = 1 it is the interval of the mean of D.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Method = Literal["betting", "t", "two-way t", "none"]

LEVEL = 0.95
# With fewer samples, an interval valid for every distribution in a range of length 1 misses an effect of 0.3.
FEWEST_BOUNDED = 16
BETS = 0.5 ** np.arange(8)  # fractions of the largest bet that cannot lose more than the capital
STAKES = np.append(BETS[1:], BETS[-1])  # starting capital of each bet: 1/2, 1/4, ..., 1 in total
PRECISION = 1e-6  # spread below this fraction of their size is float32 rounding
STEPS, HALVINGS = 50, 36


def log_capital(values: Array, loss: Any) -> Array:
    """Return the log of the capital from bets on a positive mean, starting from 1.

    If the mean is 0 or less, the capital's expectation is at most 1, so it reaches K with probability at most 1 / K, for any
    distribution (Waudby-Smith and Ramdas 2024). The bets are a fixed mixture, so the order of the samples does not matter.

    Args:
        values: float[..., n], independent samples, none below -loss.
        loss: float[...] or float, the largest possible loss, 0 or more.

    Returns:
        float[...].
    """
    gains = values / np.maximum(loss, 1e-290)[..., None]
    with np.errstate(divide="ignore", over="ignore"):
        made = np.log1p(np.maximum(BETS[:, None] * gains[..., None, :], -1.0)).sum(-1)
        return np.asarray(np.logaddexp.reduce(made + np.log(STAKES), axis=-1))


def betting_side(values: Array, low: Any, high: Any) -> Array:
    """Return whether the mean of bounded samples is shown to be above 0 (1), below 0 (-1), or neither (0).

    Args:
        values: float[..., n], independent samples.
        low, high: float or float[...], the range of every possible sample.

    Returns:
        int[...]; each of 1 and -1 is wrong with probability at most (1 - LEVEL) / 2.
    """
    enough = math.log(2 / (1 - LEVEL))
    above, below = (log_capital(found, np.asarray(loss)) >= enough for found, loss in ((values, -low), (-values, high)))
    return np.asarray(above.astype(int) - below.astype(int))


def t_side(values: Array) -> Array:
    """Like `betting_side`, by Student's t: for samples without a range, or too few for bets. Returns 0 for fewer than 2.

    Args:
        values: float[..., n], independent samples.

    Returns:
        int[...].
    """
    n = values.shape[-1]
    if n < 2:
        return np.zeros(values.shape[:-1], int)
    return _sides(values.mean(-1), values.var(-1, ddof=1) / n, n - 1)


def crossed_side(values: Array) -> Array:
    """Like `t_side`, for samples that share documents and positions (two-way clustering; Cameron, Gelbach and Miller 2011).

    Args:
        values: float[..., n, p], NaN where there is no sample.

    Returns:
        int[...]; the variance is never below the larger one-way variance, and there are min(n, p) - 1 degrees of freedom.
    """
    n, p = values.shape[-2:]
    if min(n, p) < 2:
        return np.zeros(values.shape[:-2], int)
    present = np.isfinite(values)
    count = present.sum((-2, -1))
    mean = np.where(present, values, 0.0).sum((-2, -1)) / count
    rest = np.where(present, values - mean[..., None, None], 0.0)
    by_document, by_position, by_cell = (
        size / (size - 1) * (sums**2).sum(-1)
        for size, sums in ((n, rest.sum(-1)), (p, rest.sum(-2)), (count, rest.reshape(*rest.shape[:-2], -1)))
    )
    variance = np.maximum(np.maximum(by_document, by_position), by_document + by_position - by_cell) / count**2
    return _sides(mean, variance, min(n, p) - 1)


def constant(d: Array, w: Array, size: float = 0.0) -> Array:
    """Return whether D, or D - (mean D / mean W) W, has no spread beyond rounding; true for a single sample.

    Args:
        d, w: float[..., n], finite samples of D and W.
        size: The size of the numbers whose difference D is, to which its rounding is relative, beside D and its part of W.

    Returns:
        bool[...].
    """
    if d.shape[-1] < 2:
        return np.ones(d.shape[:-1], bool)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = d.mean(-1) / w.mean(-1)
        tolerance = PRECISION * (np.abs(d).max(-1) + np.maximum(np.abs(w).max(-1) * np.abs(ratio), size))
        spread = np.stack([np.ptp(d, axis=-1), np.ptp(d - ratio[..., None] * w, axis=-1)])
    return np.asarray((spread <= tolerance).any(0) | (spread[0] == 0))


def _sides(mean: Array, variance: Array, freedom: int) -> Array:
    from scipy.special import stdtrit

    decided = mean**2 > stdtrit(freedom, (1 + LEVEL) / 2) ** 2 * variance
    return np.asarray(np.sign(mean).astype(int) * decided)


@dataclass(frozen=True, eq=False)
class Ratio:
    """Samples of D and W, and the known range of each.

    Attributes:
        d, w: float[n], independent samples, or float[n, p], crossed (document by position), NaN where there is no sample.
        support: A function from c to the lowest and highest possible value of D - c W; None if there is no bound.
        size: See `constant`.
    """

    d: Array
    w: Array
    support: Callable[[float], tuple[float, float]] | None
    size: float = 0.0

    @cached_property
    def method(self) -> Method:
        """Betting if there are at least `FEWEST_BOUNDED` samples in a known range or nothing varies; otherwise t."""
        few = min(self.d.shape) if self.d.size else 0
        finite = np.isfinite(self.d)
        if constant(self.d[finite], self.w[finite], self.size):
            return "none" if self.support is None or not few else "betting"
        if self.d.ndim == 2:
            return "two-way t" if few > 1 else "none"
        if self.support is not None and few >= FEWEST_BOUNDED:
            return "betting"
        return "t" if few > 1 else "none"

    @cached_property
    def value(self) -> float:
        """Ratio of the means."""
        mean = float(np.nanmean(self.w)) if self.w.size else math.nan
        return float(np.nanmean(self.d)) / mean if mean else math.nan

    def side(self, c: float) -> int:
        """Return 1 if the mean of D - c W is shown to be above 0, -1 if below, and 0 if neither is shown."""
        values, method = self.d - c * self.w, self.method
        if method == "betting":
            assert self.support is not None
            if values.ndim == 2:  # nothing varies, so the smaller of documents and positions counts
                values = np.nanmean(values, axis=int(values.shape[0] <= values.shape[1]))
            return int(betting_side(values, *self.support(c)))
        if method == "none":
            return 0
        return int(t_side(values) if method == "t" else crossed_side(values))

    def ends(self) -> tuple[float, float]:
        """Return both ends of the set of c where `side` is 0, infinite if unbounded. The mean of W must be above 0."""
        low, high = (self._end(direction) for direction in (-1, 1))
        return low, high

    def _end(self, direction: int) -> float:
        inner = self.value
        if not math.isfinite(inner) or self.method == "none":
            return direction * math.inf
        step = max(abs(inner), float(np.nanstd(self.d)) / float(np.nanmean(self.w)), 1e-12) * 2.0**-20
        for number in range(STEPS):
            outer = self.value + direction * step * 4.0**number
            if self.side(outer) == -direction:
                break
            inner = outer
        else:
            return direction * math.inf
        for _ in range(HALVINGS):
            middle = (inner + outer) / 2
            inner, outer = (inner, middle) if self.side(middle) == -direction else (middle, outer)
        return inner
