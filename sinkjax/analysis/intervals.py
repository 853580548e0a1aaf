"""Intervals over prompts or seeds, paired differences, and where an effect lies among its controls."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkjax.errors import SinkjaxError

BATCH_ELEMENTS = 2**23
RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """A mean over samples (prompts, seeds) and its bootstrap interval.

    As text: mean [low, high] (remarks).

    Attributes:
        mean: None without finite samples.
        low, high: The ends; None where no interval exists.
        n: Finite samples, the ones that count.
        excluded: The others (NaN: undefined; inf: never reached).
        level: Coverage, between 0 and 1.
        method: "BCa", "percentile" or "none".
        note: Why there is no proper interval ("no finite samples", "one sample", "no spread"), or "".
    """

    mean: float | None
    low: float | None
    high: float | None
    n: int
    excluded: int
    level: float
    method: str
    note: str = ""

    def __str__(self) -> str:
        mean = "" if self.mean is None else f"{self.mean:.4g}"
        bounds = "" if self.low is None else f"[{self.low:.4g}, {self.high:.4g}]"
        counted = f"{self.n} of {self.n + self.excluded}" if self.excluded else ""
        remarks = ", ".join(filter(None, (self.note, counted)))
        return " ".join(filter(None, (mean, bounds, remarks and f"({remarks})")))


def generator(seed: int, name: str) -> np.random.Generator:
    """The random numbers of (seed, name), the same whatever else was drawn before.

    Args:
        seed: At least 0.
        name: Of the stream.

    Returns:
        A generator.

    Raises:
        SinkjaxError: The seed is negative.
    """
    if seed < 0:
        raise SinkjaxError(f"seed must be 0 or more, not {seed}")
    return np.random.default_rng([seed, int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())])


def interval(values: ArrayLike, *, level: float = 0.95, resamples: int | None = None, seed: int = 0) -> Interval:
    """The mean of one row of samples and its bootstrap interval.

    Args:
        values: float[n].
        level, resamples, seed: As for `intervals`.

    Returns:
        The interval.

    Raises:
        SinkjaxError: As `intervals`; the samples are more than one row.
    """
    values = np.asarray(values)
    if values.ndim != 1:
        raise SinkjaxError(f"interval takes one row of samples, not an array of shape {values.shape}; intervals takes a table")
    return intervals(values[None], level=level, resamples=resamples, seed=seed)[0]


def intervals(
    values: ArrayLike, axis: int = -1, *, level: float = 0.95, resamples: int | None = None, seed: int = 0
) -> NDArray[np.object_]:
    """Mean over `axis` and its bootstrap interval, for each row of a table.

    Bias-corrected and accelerated (Efron 1987; scipy.stats.bootstrap), percentile where that is undefined. A row's interval does
    not depend on the other rows.

    Args:
        values: float[..., n, ...]; NaN and inf are left out of their row and counted.
        axis: That of the samples.
        level: Coverage, between 0 and 1.
        resamples: Of the bootstrap, at least 100; None: `RESAMPLES`.
        seed: Of the resamples, at least 0.

    Returns:
        An object array of `Interval`, shaped as `values` without `axis`.

    Raises:
        SinkjaxError: The axis does not exist; the level, the number of resamples or the seed is out of range.
    """
    values = np.asarray(values, dtype=np.float64)
    if not -values.ndim <= axis < values.ndim:
        raise SinkjaxError(f"axis {axis} does not exist in an array of shape {values.shape}")
    if not 0 < level < 1:
        raise SinkjaxError(f"level must lie between 0 and 1, not {level}")
    resamples = RESAMPLES if resamples is None else resamples
    if resamples < 100:
        raise SinkjaxError(f"resamples must be at least 100, not {resamples}")
    table = np.moveaxis(values, axis, -1)
    rows = table.reshape(math.prod(table.shape[:-1]), table.shape[-1])
    result = np.empty(len(rows), dtype=object)
    patterns, members = np.unique(np.isfinite(rows), axis=0, return_inverse=True)
    for number, finite in enumerate(patterns):
        chosen = np.flatnonzero(members == number)
        result[chosen] = _intervals_of(rows[chosen][:, finite], int((~finite).sum()), level, resamples, seed)
    return result.reshape(table.shape[:-1])


def paired_differences(
    edited: ArrayLike, baseline: ArrayLike, axis: int = -1, *, level: float = 0.95, resamples: int | None = None, seed: int = 0
) -> NDArray[np.object_]:
    """Effects of edits: intervals of edited - baseline, differences taken in each prompt.

    Args:
        edited: float[..., n, ...], e.g. [edit, prompt].
        baseline: float[n], or any shape that broadcasts to that of `edited`. A prompt that either lacks is excluded.
        axis, level, resamples, seed: As for `intervals`.

    Returns:
        As `intervals`.

    Raises:
        SinkjaxError: As `intervals`; the baseline does not broadcast.
    """
    edited, baseline = np.asarray(edited, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    try:
        baseline = np.broadcast_to(baseline, edited.shape)
    except ValueError:
        raise SinkjaxError(f"a baseline of shape {baseline.shape} has no pairs in an array of shape {edited.shape}") from None
    defined = np.isfinite(edited) & np.isfinite(baseline)
    differences = np.subtract(edited, baseline, out=np.full(edited.shape, np.nan), where=defined)
    return intervals(differences, axis, level=level, resamples=resamples, seed=seed)


def pseudo_values(values: ArrayLike, statistic: Callable[[NDArray], ArrayLike]) -> NDArray[np.float64]:
    """Jackknife pseudo-values of a function of means, one for each sample, so that `interval` gives the function's interval.

    For smooth functions (Tukey 1958).

    Args:
        values: float[n, ...], finite, at least 2 samples.
        statistic: Means [..., (axes of values)] -> numbers [...].

    Returns:
        float[n]: n s - (n - 1) s_i, with s of all samples and s_i of all but the i-th.

    Raises:
        SinkjaxError: There are fewer than 2 samples, or one is not finite.
    """
    values = np.asarray(values, dtype=np.float64)
    n = len(values)
    if n < 2 or not np.isfinite(values).all():
        raise SinkjaxError("pseudo-values need at least 2 samples, all finite")
    total = values.sum(0)
    return n * np.asarray(statistic(total / n)) - (n - 1) * np.asarray(statistic((total - values) / (n - 1)))


def percentile_among(value: ArrayLike, controls: ArrayLike) -> NDArray[np.float64]:
    """Where an effect lies among its matched controls: per cent of them below it, ties counted half.

    Args:
        value: float[...].
        controls: float[..., control] or float[control].

    Returns:
        float[...] in 0..100.

    Raises:
        SinkjaxError: There are no controls; a value or control is not finite (an undefined effect has no rank); the shapes do
            not fit.
    """
    value, controls = np.asarray(value, dtype=np.float64), np.asarray(controls, dtype=np.float64)
    if controls.ndim == 0 or controls.shape[-1] == 0:
        raise SinkjaxError("a percentile among controls needs at least one control")
    if not (np.isfinite(value).all() and np.isfinite(controls).all()):
        raise SinkjaxError("a percentile among controls needs finite values, and one of them is NaN or infinite")
    try:
        controls = np.broadcast_to(controls, (*value.shape, controls.shape[-1]))
    except ValueError:
        raise SinkjaxError(f"controls of shape {controls.shape} do not fit values of shape {value.shape}") from None
    below, tied = controls < value[..., None], controls == value[..., None]
    return 100 * (below + tied / 2).mean(-1)


def _intervals_of(rows: NDArray, excluded: int, level: float, resamples: int, seed: int) -> list[Interval]:
    """Intervals of float[row, n], all finite."""
    n = rows.shape[1]
    if n == 0:
        return [Interval(None, None, None, 0, excluded, level, "none", "no finite samples")] * len(rows)
    means = rows.mean(-1).tolist()
    if n == 1:
        return [Interval(mean, None, None, 1, excluded, level, "none", "one sample") for mean in means]
    constant = rows.min(-1) == rows.max(-1)
    bootstrapped = iter(_bootstrap(rows[~constant], level, resamples, seed))
    found = []
    for first, mean, same in zip(rows[:, 0].tolist(), means, constant, strict=True):
        low, high, method, note = (first, first, "none", "no spread") if same else (*next(bootstrapped), "")
        found.append(Interval(first if same else mean, low, high, n, excluded, level, method, note))
    return found


def _bootstrap(rows: NDArray, level: float, resamples: int, seed: int) -> list[tuple[float, float, str]]:
    """(low, high, method) of each float[row, n]; every row sees the same resamples, those of (seed, "bootstrap")."""
    if not rows.size:
        return []
    from scipy.stats import DegenerateDataWarning, bootstrap

    with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        warnings.simplefilter("ignore", DegenerateDataWarning)  # such rows are found below, and named in `method`
        result = bootstrap(
            (rows,),
            np.mean,
            n_resamples=resamples,
            batch=max(1, BATCH_ELEMENTS // rows.size),
            vectorized=True,
            axis=-1,
            confidence_level=level,
            method="BCa",
            rng=generator(seed, "bootstrap"),
        )
    low, high = result.confidence_interval
    accelerated = np.isfinite(low) & np.isfinite(high)
    tails = np.quantile(result.bootstrap_distribution, [(1 - level) / 2, (1 + level) / 2], axis=-1)
    low, high = np.where(accelerated, (low, high), tails)
    method = np.where(accelerated, "BCa", "percentile")
    return list(zip(low.tolist(), high.tolist(), method.tolist(), strict=True))


def kendall_tau(x: ArrayLike, y: ArrayLike) -> float:
    """Kendall's tau-b of two rows of numbers: 1 for the same order, -1 for the opposite one."""
    from scipy.stats import kendalltau

    return float(kendalltau(x, y).statistic)
