"""A study's summary: one row per condition and measure, with its effect and its rank among matched controls."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.config_files.tables import csv_text

LEVEL = 0.95
ROUNDING = 1e-6  # relative; two float32 programs for the same computation differ by less
NOT_COMPARED = Interval(None, None, None, 0, 0, LEVEL, "none")  # effect of a row without a baseline
NUMBERS = ("mean", "low", "high", "n", "effect_mean", "effect_low", "effect_high")
COLUMNS = ("group", "measure", *NUMBERS, "percentile", "controls", "overflowed")


@dataclass(frozen=True)
class Rank:
    """Rank of a number among its matched controls: how many are below it, how many equal it, and how many there are."""

    below: int
    tied: int
    controls: int

    @classmethod
    def among(cls, value: float, controls: ArrayLike) -> Rank | None:
        """Rank a number among controls; None if there are none, or any of these values is not finite."""
        others = np.asarray(controls, dtype=np.float64)
        if not others.size or not np.isfinite(value) or not np.isfinite(others).all():
            return None
        return cls(int((others < value).sum()), int((others == value).sum()), others.size)

    @property
    def percentile(self) -> float:
        """Percentage of the controls below it; ties count half."""
        return 100 * (self.below + self.tied / 2) / self.controls

    def __str__(self) -> str:
        return f"{self.percentile:.0f} ({self.controls})"


@dataclass(frozen=True)
class Row:
    """One measure of one condition.

    Attributes:
        condition, series, measure: The row's labels.
        value: Mean over prompts (or seeds).
        effect: Mean paired difference from the baseline (0 for the baseline itself), NOT_COMPARED if there is no baseline.
        rank: Rank of its effect among the matched random controls; None if there are none.
        overflowed: Number of prompts excluded because of an infinite or NaN activation.
    """

    condition: str
    series: str
    measure: str
    value: Interval
    effect: Interval = NOT_COMPARED
    rank: Rank | None = None
    overflowed: int = 0


Table = dict[tuple[str, str], Row]  # (condition, measure) -> row


@dataclass(frozen=True)
class Column:
    """One measure of a sweep.

    values: float[condition, prompt]. baseline: the reference of each condition, float[(condition,) prompt].
    """

    values: NDArray
    baseline: NDArray

    @property
    def effects(self) -> NDArray:
        """Return paired differences from the baseline, float[condition, prompt]; 0 if within float32 rounding."""
        return self.rounded - self.baseline

    @property
    def rounded(self) -> NDArray:
        """Return the values, set to the baseline where they agree to rounding: edited and unedited runs are different
        programs."""
        with np.errstate(invalid="ignore"):  # infinite and NaN values stay
            close = np.abs(self.values - self.baseline) <= ROUNDING * np.abs(self.baseline)
            return np.where(close, self.baseline, self.values)


def column_rows(
    labels: Sequence[tuple[str, str]],
    measure: str,
    column: Column,
    seed: int,
    ranks: Sequence[Rank | None] | None = None,
    clusters: NDArray | None = None,
) -> list[Row]:
    """Make the rows of one measure.

    Args:
        labels: (condition, series) of each row.
        measure: Name of the measure, with its unit.
        column: The numbers.
        seed: Seed of the bootstrap.
        ranks: Rank of each row, from `ranks_among`.
        clusters: The document of each prompt, if some prompts share one.
    """
    means = intervals.intervals(column.values, level=LEVEL, seed=seed, clusters=clusters)
    effects = intervals.paired_differences(column.rounded, column.baseline, level=LEVEL, seed=seed, clusters=clusters)
    return [
        Row(condition, series, measure, mean, effect, rank)
        for (condition, series), mean, effect, rank in zip(labels, means, effects, ranks or [None] * len(labels), strict=True)
    ]


def own_rows(labels: Sequence[str], series: str, measure: str, values: NDArray, seed: int) -> list[Row]:
    """Make summary rows for measurements without an edit, one per label, in their order.

    Args:
        labels: Labels of the rows.
        series: Series of all rows.
        measure: Name of the measure, with its unit.
        values: float[label, prompt]; NaN where undefined.
        seed: Seed of the bootstrap, at least 0.
    """
    means = intervals.intervals(values, level=LEVEL, seed=seed)
    return [Row(label, series, measure, mean) for label, mean in zip(labels, means, strict=True)]


def ranks_among(
    effects: NDArray, budgets: Sequence[Hashable], random: NDArray, random_budgets: Sequence[Hashable]
) -> list[Rank | None]:
    """Rank the mean effect of each condition among the controls of its budget.

    Args:
        effects: float[condition, prompt].
        budgets: Budget of each condition; None if it has no controls.
        random: Effects of the controls on the first of these prompts, float[control, prompt].
        random_budgets: Budget of each control.

    Returns:
        The rank of each condition; None if it has no controls or an effect is undefined.
    """
    means, random_means = effects[:, : random.shape[1]].mean(axis=1), random.mean(axis=1)
    matched = [[other == budget is not None for other in random_budgets] for budget in budgets]
    return [Rank.among(mean, random_means[chosen]) for mean, chosen in zip(means, matched, strict=True)]


def summary_csv(rows: Sequence[Row], subject: str = "edit") -> str:
    """Format the summary as CSV: one line per row, empty where a number does not exist. subject: the noun for a condition."""
    table: list[list[Any]] = [[subject, *COLUMNS]]
    for row in rows:
        ranks = (row.rank.percentile, row.rank.controls) if row.rank else ("", 0)
        table.append(
            [row.condition, row.series, row.measure, *bounds(row.value), row.value.n, *bounds(row.effect), *ranks, row.overflowed]
        )
    return csv_text(table)


def bounds(interval: Interval) -> tuple[float | str, ...]:
    """Format mean, low and high as CSV cells."""
    return tuple("" if bound is None else bound for bound in (interval.mean, interval.low, interval.high))
