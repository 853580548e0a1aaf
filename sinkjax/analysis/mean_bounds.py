"""Confidence intervals for means and ratios of means of few, skewed or mostly constant samples.

Every interval comes from one question: is the mean of D - c W shown to be above or below 0? The interval of the ratio D / W is
the set of c where neither is shown; with W = 1 it is the interval of the mean of D. Student's t answers, for the samples and one
more: as low as the lowest where the mean may be above 0, as high as the highest where it may be below. So one more sample rarely
undoes a decision, and skewed samples rarely make a false one (docs/judgements.md has the rates).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Method = Literal["t", "two-way t", "none"]

LEVEL = 0.95
PRECISION = 1e-6  # spread below this fraction of their size is float32 rounding
STEPS, HALVINGS = 50, 36


def t_side(values: Array, ends: tuple[Any, Any] | None = None) -> Array:
    """Return whether the mean of samples is shown to be above 0 (1), below 0 (-1), or neither (0).

    Args:
        values: float[..., n], independent samples.
        ends: float[...] each, the lowest and the highest value of the sample that is added; None: those of `values`.

    Returns:
        int[...]; 0 for fewer than 2 samples.
    """
    n = values.shape[-1]
    if n < 2:
        return np.zeros(values.shape[:-1], int)
    extremes = (values.min(-1), values.max(-1)) if ends is None else ends
    added = (np.broadcast_to(end, values.shape[:-1])[..., None] for end in extremes)
    low, high = (np.concatenate([values, end], -1) for end in added)
    both = np.stack([low, -high])
    return _above(both.mean(-1), both.var(-1, ddof=1) / (n + 1), n)


def _above(mean: Array, variance: Array, freedom: int) -> Array:
    """Return 1 where the first of two samples has a mean above 0, -1 where the second has. variance: of each mean."""
    from scipy.special import stdtrit

    above = (mean > 0) & (mean**2 > stdtrit(freedom, (1 + LEVEL) / 2) ** 2 * variance)
    return np.asarray(above[0].astype(int) - above[1].astype(int))


def crossed_side(values: Array) -> Array:
    """Like `t_side`, for samples that share documents and positions (two-way clustering; Cameron, Gelbach and Miller 2011).

    The document and the position with the lowest mean (or the highest) are counted twice.

    Args:
        values: float[n, p], NaN where there is no sample.

    Returns:
        int; the variance is never below the larger one-way variance, and there are min(n, p) degrees of freedom.
    """
    if min(values.shape) < 2:
        return np.zeros((), int)
    mean, variance = np.array([_two_way(sign * values) for sign in (1, -1)]).T
    return _above(mean, variance, min(values.shape))


def _two_way(values: Array) -> tuple[float, float]:
    """Return mean and variance of the mean, with the lowest row and the lowest column counted twice."""
    for axis in (0, 1):
        lowest = np.nanmean(values, 1 - axis).argmin()
        values = np.concatenate([values, np.take(values, [lowest], axis)], axis)
    present = np.isfinite(values)
    count = present.sum()
    mean = values[present].mean()
    rest = np.where(present, values - mean, 0.0)
    sums = (rest.sum(1), rest.sum(0), rest[present])
    rows, columns, cells = (len(one) / (len(one) - 1) * (one**2).sum() for one in sums)
    return mean, max(rows, columns, rows + columns - cells) / count**2


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


@dataclass(frozen=True, eq=False)
class Ratio:
    """Samples of D and W.

    Attributes:
        d, w: float[n], independent samples, or float[n, p], crossed (document by position), NaN where there is no sample.
        largest: Largest possible size of D; None if there is no bound. If the samples do not differ, the added one has this size,
            and the mean W.
        size: See `constant`.
    """

    d: Array
    w: Array
    largest: float | None = None
    size: float = 0.0

    @cached_property
    def alike(self) -> bool:
        """Whether the samples do not differ."""
        finite = np.isfinite(self.d)
        return bool(constant(self.d[finite], self.w[finite], self.size))

    @cached_property
    def method(self) -> Method:
        """The kind of interval; "none" for fewer than two samples, or for samples that do not differ and have no bound."""
        few = min(self.d.shape) if self.d.size else 0
        if few < 2 or (self.alike and self.largest is None):
            return "none"
        return "t" if self.alike or self.d.ndim == 1 else "two-way t"

    @cached_property
    def value(self) -> float:
        """Ratio of the means."""
        mean = float(np.nanmean(self.w)) if self.w.size else math.nan
        return float(np.nanmean(self.d)) / mean if mean else math.nan

    def side(self, c: float) -> int:
        """Return 1 if the mean of D - c W is shown to be above 0, -1 if below, and 0 if neither is shown."""
        values = self.d - c * self.w
        if self.method == "none":
            return 0
        if not self.alike:
            return int(t_side(values) if self.method == "t" else crossed_side(values))
        if values.ndim == 2:  # the smaller of documents and positions counts
            values = np.nanmean(values, axis=int(values.shape[0] <= values.shape[1]))
        assert self.largest is not None
        return int(t_side(values, (-self.largest - c * np.nanmean(self.w), self.largest - c * np.nanmean(self.w))))

    def ends(self) -> tuple[float, float]:
        """Return both ends of the set of c where `side` is 0, infinite if unbounded. The mean of W must be above 0."""
        return self._end(-1), self._end(1)

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
