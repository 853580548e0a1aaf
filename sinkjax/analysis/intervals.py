"""Intervals of means over prompts or seeds, and of differences that are paired by them."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkjax.config_files.checks import refuse
from sinkjax.errors import SinkjaxError

Array = NDArray[Any]
ARRAYS = ("mean", "low", "high", "n", "excluded", "method", "note", "samples")
BATCH_ELEMENTS = 2**23
RESAMPLES = 2000
FEWEST = 8  # minimum seeds for a word, and samples for an interval of `to_frame`; with fewer, it depends mostly on the method
FEWEST_RESAMPLED = 20  # a bootstrap's 95% interval covers 89% for 8 normal samples, 75% for 3


@dataclass(frozen=True)
class Interval:
    """A mean over samples (documents, seeds), its interval, and the samples themselves.

    Its text form is: mean [low, high] (remarks).

    Attributes:
        mean: Mean of the finite samples; None if there are none.
        low, high: Ends of the interval; None if no interval exists.
        n: Number of finite samples, which are the ones used.
        excluded: Number of other samples (NaN: undefined; inf: never reached).
        level: Coverage, between 0 and 1.
        method: "BCa", "percentile", "t", "clustered t" or "none"; in judgements "t", "two-way t" or "none".
        note: Why there is no proper interval ("no finite samples", "one sample", "no spread"), or "".
        samples: float[sample], NaN where undefined; None for a number that is not a mean over samples.
        clusters: int[sample], the document of each sample, if some share a document; otherwise None.
    """

    mean: float | None
    low: float | None
    high: float | None
    n: int
    excluded: int
    level: float
    method: str
    note: str = ""
    samples: NDArray[Any] | None = field(default=None, repr=False, compare=False)
    clusters: NDArray[Any] | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        mean = "" if self.mean is None else f"{self.mean:.4g}"
        bounds = "" if self.low is None else f"[{self.low:.4g}, {self.high:.4g}]"
        counted = f"{self.n} of {self.n + self.excluded}" if self.excluded else ""
        remarks = ", ".join(filter(None, (self.note, counted)))
        return " ".join(filter(None, (mean, bounds, remarks and f"({remarks})")))


@dataclass(frozen=True, eq=False)
class Intervals:
    """Means over samples and their intervals, as named arrays of one shape that can be indexed.

    Attributes:
        mean: float64[...], the means; NaN if there are no finite samples.
        low, high: float64[...], the ends; NaN if no interval exists.
        n, excluded: int64[...], as for `Interval`.
        method, note: str[...], as for `Interval`.
        samples: float64[..., n], the samples.
        level: Coverage, between 0 and 1.
        clusters: int[n], as for `Interval`.
    """

    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    n: NDArray[np.int64]
    excluded: NDArray[np.int64]
    method: NDArray[np.str_]
    note: NDArray[np.str_]
    samples: NDArray[np.float64]
    level: float
    clusters: NDArray[Any] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of all arrays except `samples`, which have one more axis."""
        return self.mean.shape

    def __len__(self) -> int:
        return len(self.mean)

    def __getitem__(self, index: Any) -> Any:
        """Return the `Interval` at the index of an entry, or the `Intervals` at any other NumPy index."""
        chosen = {name: getattr(self, name)[index] for name in ARRAYS}
        if np.ndim(chosen["mean"]):
            return Intervals(**chosen, level=self.level, clusters=self.clusters)
        numbers = {name: chosen[name].item() for name in ARRAYS if name != "samples"}
        ends = {name: None if math.isnan(numbers[name]) else numbers[name] for name in ("mean", "low", "high")}
        return Interval(**(numbers | ends), level=self.level, samples=chosen["samples"], clusters=self.clusters)

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))


def generator(seed: int, name: str) -> np.random.Generator:
    """Return the random generator of (seed, name), which does not depend on earlier draws.

    Args:
        seed: At least 0.
        name: Name of the stream.

    Returns:
        The generator.

    Raises:
        SinkjaxError: The seed is negative.
    """
    refuse(seed < 0, f"seed must be 0 or more, not {seed}")
    return np.random.default_rng([seed, int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())])


def interval(
    values: ArrayLike, *, level: float = 0.95, resamples: int | None = None, seed: int = 0, clusters: ArrayLike | None = None
) -> Interval:
    """Compute the mean of one row of samples, with its interval.

    Args:
        values: float[n].
        level, resamples, seed, clusters: See `intervals`.

    Returns:
        The interval.

    Raises:
        SinkjaxError: There is more than one row of samples; any error of `intervals`.
    """
    values = np.asarray(values)
    refuse(values.ndim != 1, f"interval takes one row of samples, not an array of shape {values.shape}; intervals takes a table")
    found: Interval = intervals(values[None], level=level, resamples=resamples, seed=seed, clusters=clusters)[0]
    return found


def intervals(
    values: ArrayLike,
    axis: int = -1,
    *,
    level: float = 0.95,
    resamples: int | None = None,
    seed: int = 0,
    clusters: ArrayLike | None = None,
) -> Intervals:
    """Compute the mean over `axis`, with its interval, for each row of a table.

    The method is the bias-corrected and accelerated bootstrap (Efron 1987; scipy.stats.bootstrap), or the percentile bootstrap
    if that is undefined. With fewer than `FEWEST_RESAMPLED` samples it is Student's t. If samples share clusters, it is t with
    cluster-robust errors (Liang and Zeger 1986) and one degree of freedom less than the number of clusters. A row's interval
    does not depend on the other rows.

    Args:
        values: float[..., n, ...]; NaN and inf are excluded from their row and counted.
        axis: Axis of the samples.
        level: Coverage, between 0 and 1.
        resamples: Number of bootstrap resamples, at least 100; None: `RESAMPLES`.
        seed: Seed of the resamples, at least 0.
        clusters: int[n], equal for samples that are not independent (e.g. passages of one document); None if all are independent.

    Returns:
        Named arrays, with the shape of `values` without `axis`.

    Raises:
        SinkjaxError: The axis does not exist; the level, the number of resamples or the seed is out of range; `clusters`
            does not have one entry per sample."""
    values = np.asarray(values, dtype=np.float64)
    refuse(not -values.ndim <= axis < values.ndim, f"axis {axis} does not exist in an array of shape {values.shape}")
    refuse(not 0 < level < 1, f"level must lie between 0 and 1, not {level}")
    resamples = RESAMPLES if resamples is None else resamples
    refuse(resamples < 100, f"resamples must be at least 100, not {resamples}")
    generator(seed, "")  # raises for a negative seed, even if the samples are too few to resample
    table = np.moveaxis(values, axis, -1)
    rows = table.reshape(math.prod(table.shape[:-1]), table.shape[-1])
    shared = shared_clusters(clusters, rows.shape[1])
    columns = {name: np.full(len(rows), np.nan) for name in ("mean", "low", "high")}
    columns |= {name: np.zeros(len(rows), "U17") for name in ("method", "note")}
    finite = np.isfinite(rows)
    patterns, members = np.unique(finite, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        chosen = np.flatnonzero(members == number)
        groups = None if shared is None else shared[pattern]
        for name, column in _intervals_of(rows[chosen][:, pattern], level, resamples, seed, groups).items():
            columns[name][chosen] = column
    columns |= {"n": finite.sum(-1), "excluded": (~finite).sum(-1)}
    arrays = {name: column.reshape(table.shape[:-1]) for name, column in columns.items()}
    return Intervals(**arrays, samples=table, level=level, clusters=shared)


def paired_differences(
    edited: ArrayLike,
    baseline: ArrayLike,
    axis: int = -1,
    *,
    level: float = 0.95,
    resamples: int | None = None,
    seed: int = 0,
    clusters: ArrayLike | None = None,
) -> Intervals:
    """Compute effects of edits: intervals of edited - baseline, paired by prompt.

    Args:
        edited: float[..., n, ...], e.g. [edit, prompt].
        baseline: float[n], or any shape that broadcasts to `edited`. A prompt that is missing in either is excluded.
        axis, level, resamples, seed, clusters: See `intervals`.

    Returns:
        The same as from `intervals`, for the differences.

    Raises:
        SinkjaxError: The baseline does not broadcast; any error of `intervals`.
    """
    edited, baseline = np.asarray(edited, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    try:
        baseline = np.broadcast_to(baseline, edited.shape)
    except ValueError:
        raise SinkjaxError(f"a baseline of shape {baseline.shape} does not broadcast to the shape {edited.shape}") from None
    defined = np.isfinite(edited) & np.isfinite(baseline)
    differences = np.subtract(edited, baseline, out=np.full(edited.shape, np.nan), where=defined)
    return intervals(differences, axis, level=level, resamples=resamples, seed=seed, clusters=clusters)


def pseudo_values(values: ArrayLike, statistic: Callable[[NDArray[Any]], ArrayLike]) -> NDArray[np.float64]:
    """Compute jackknife pseudo-values of a smooth function of means; its interval is their `interval` (Tukey 1958).

    Args:
        values: float[n, ...], finite, at least 2 samples.
        statistic: A function from means [..., (axes of values)] to numbers [...].

    Returns:
        float[n]: n s - (n - 1) s_i, with s from all samples and s_i from all except the i-th.

    Raises:
        SinkjaxError: There are fewer than 2 samples, or one is not finite.
    """
    values = np.asarray(values, dtype=np.float64)
    n = len(values)
    refuse(n < 2 or not np.isfinite(values).all(), "pseudo-values need at least 2 samples, all finite")
    total = values.sum(0)
    of_all, of_others = (np.asarray(statistic(means), np.float64) for means in (total / n, (total - values) / (n - 1)))
    return np.asarray(n * of_all - (n - 1) * of_others)


def shared_clusters(clusters: ArrayLike | None, n: int) -> NDArray[Any] | None:
    """Return the clusters as an array, or None if no two samples share a cluster.

    Args:
        clusters: int[n] or str[n], the cluster of each sample; None if no two samples share a cluster.
        n: Number of samples.

    Returns:
        int[n] or str[n], or None.

    Raises:
        SinkjaxError: `clusters` does not have one entry per sample.
    """
    if clusters is None:
        return None
    found = np.asarray(clusters)
    refuse(found.shape != (n,), f"{n} samples need as many clusters, not an array of shape {found.shape}")
    return None if len(np.unique(found)) == n else found


def standard_error(rows: NDArray[Any], clusters: NDArray[Any] | None) -> NDArray[Any]:
    """Return standard errors of row means; cluster-robust if samples share clusters (Liang and Zeger 1986).

    Args:
        rows: float[row, n], finite, at least 2 samples.
        clusters: int[n] or str[n], the cluster of each sample, at least 2 of them; None if samples are independent.

    Returns:
        float[row], in the unit of the rows.
    """
    n = rows.shape[1]
    centred = rows - rows.mean(-1, keepdims=True)
    if clusters is None:
        return np.asarray(np.sqrt((centred**2).sum(-1) / (n * (n - 1))))
    _, members = np.unique(clusters, return_inverse=True)
    sums = centred @ np.eye(members.max() + 1)[members]
    G = sums.shape[1]
    return np.asarray(np.sqrt(G / (G - 1) * (sums**2).sum(-1)) / n)


def _student(rows: Array, level: float, clusters: Array | None) -> tuple[Array, Array, str]:
    """Return the low and high ends for float[row, n], and the method."""
    from scipy.special import stdtrit  # the quantile of t, without importing scipy.stats, which takes a second

    freedom = (rows.shape[1] if clusters is None else len(np.unique(clusters))) - 1
    means, half = rows.mean(-1), stdtrit(freedom, (1 + level) / 2) * standard_error(rows, clusters)
    return means - half, means + half, "t" if clusters is None else "clustered t"


def _intervals_of(rows: Array, level: float, resamples: int, seed: int, clusters: Array | None) -> dict[str, ArrayLike]:
    """Compute the columns of `Intervals` for float[row, n], all finite."""
    n = rows.shape[1]
    if n == 0:
        return {"method": "none", "note": "no finite samples"}
    if n == 1 or (clusters is not None and len(np.unique(clusters)) == 1):
        return {"mean": rows.mean(-1), "method": "none", "note": "one sample" if n == 1 else "one cluster"}
    constant = rows.min(-1) == rows.max(-1)
    low, high, method = rows[:, 0].copy(), rows[:, 0].copy(), np.full(len(rows), "none", "U17")
    resampled = clusters is None and n >= FEWEST_RESAMPLED
    spread = rows[~constant]
    if len(spread):
        ends = _bootstrap(spread, level, resamples, seed) if resampled else _student(spread, level, clusters)
        low[~constant], high[~constant], method[~constant] = ends
    mean = np.where(constant, rows[:, 0], rows.mean(-1))
    return {"mean": mean, "low": low, "high": high, "method": method, "note": np.where(constant, "no spread", "")}


def _bootstrap(rows: Array, level: float, resamples: int, seed: int) -> tuple[Array, Array, Array]:
    """Bootstrap float[row, n]: low and high ends and methods. All rows share the resamples of (seed, "bootstrap")."""
    from scipy.stats import DegenerateDataWarning, bootstrap

    with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        warnings.simplefilter("ignore", DegenerateDataWarning)  # these rows are detected below and named in `method`
        batch, rng = max(1, BATCH_ELEMENTS // rows.size), generator(seed, "bootstrap")
        result = bootstrap(
            (rows,), np.mean, n_resamples=resamples, batch=batch, axis=-1, confidence_level=level, method="BCa", rng=rng
        )
    low, high = result.confidence_interval
    accelerated = np.isfinite(low) & np.isfinite(high)
    tails = np.quantile(result.bootstrap_distribution, [(1 - level) / 2, (1 + level) / 2], axis=-1)
    low, high = np.where(accelerated, (low, high), tails)
    return low, high, np.where(accelerated, "BCa", "percentile")
