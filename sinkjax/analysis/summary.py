"""The summary of a study: one row for each condition and measure, with its effect and its rank among matched controls."""

from __future__ import annotations

import csv
import io
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval

LEVEL = 0.95
ROUNDING = 1e-6  # relative; float32 programs that compute the same differ by less
NOT_COMPARED = Interval(None, None, None, 0, 0, LEVEL, "none")  # the effect of a row that stands for itself
COLUMNS = ("group", "measure", "mean", "low", "high", "n", "effect_mean", "effect_low", "effect_high", "percentile", "controls")


@dataclass(frozen=True)
class Row:
    """One measure of one condition.

    Attributes:
        condition, series, measure: What it is about.
        value: Mean over prompts (or seeds).
        effect: Mean paired difference from the baseline (0 for the baseline itself), NOT_COMPARED where there is none.
        percentile: Share of the matched random controls with a smaller effect, in per cent; None without controls.
        controls: How many of these there are.
    """

    condition: str
    series: str
    measure: str
    value: Interval
    effect: Interval = NOT_COMPARED
    percentile: float | None = None
    controls: int = 0


Table = dict[tuple[str, str], Row]  # (condition, measure) -> row


@dataclass(frozen=True)
class Column:
    """One measure of a sweep.

    values: float[condition, prompt]. baseline: what each is compared with, float[(condition,) prompt].
    """

    values: NDArray
    baseline: NDArray

    @property
    def effects(self) -> NDArray:
        """Paired differences from the baseline, float[condition, prompt]; those within float32 rounding are 0."""
        return self.rounded - self.baseline

    @property
    def rounded(self) -> NDArray:
        """The values, but for those within rounding of the baseline: edited and unedited runs are two programs."""
        with np.errstate(invalid="ignore"):  # what is not finite stays as it is
            close = np.abs(self.values - self.baseline) <= ROUNDING * np.abs(self.baseline)
            return np.where(close, self.baseline, self.values)


def column_rows(
    labels: Sequence[tuple[str, str]],
    measure: str,
    column: Column,
    seed: int,
    ranks: Sequence[tuple[float | None, int]] | None = None,
) -> list[Row]:
    """The rows of one measure.

    Args:
        labels: (condition, series) of each row.
        measure: name, with its unit.
        column: the numbers.
        seed: of the bootstrap.
        ranks: (percentile, number of controls) of each row, from `ranks_among`.
    """
    means = intervals.intervals(column.values, level=LEVEL, seed=seed)
    effects = intervals.paired_differences(column.rounded, column.baseline, level=LEVEL, seed=seed)
    return [
        Row(condition, series, measure, mean, effect, *rank)
        for (condition, series), mean, effect, rank in zip(
            labels, means, effects, ranks or [(None, 0)] * len(labels), strict=True
        )
    ]


def own_rows(
    labels: Sequence[str],
    series: str,
    measure: str,
    values: NDArray,
    seed: int,
    elsewhere: NDArray | None = None,
    compared: bool = False,
) -> list[Row]:
    """Rows of numbers that stand for themselves, as nothing is edited: one for each label.

    Args:
        labels: of the rows.
        series: of all of them.
        measure: name, with its unit.
        values: float[label, prompt].
        seed: of the bootstrap.
        elsewhere: the same at other places of the prompts, float[label, prompt, place]: the controls, among whose means over
            prompts that of the row is ranked.
        compared: whether the effects are paired differences from the first label; else there are none.
    """
    means = intervals.intervals(values, level=LEVEL, seed=seed)
    ranks: list[tuple[float | None, int]] = [(None, 0)] * len(labels)
    if elsewhere is not None:
        here, others = _finite_mean(values[:, None, :])[:, 0], _finite_mean(np.moveaxis(elsewhere, 1, -1))
        for number, (mean, places) in enumerate(zip(here, others, strict=True)):
            if len(places) and np.isfinite(mean) and np.isfinite(places).all():
                ranks[number] = float(intervals.percentile_among(mean, places)), len(places)
    effects: Sequence[Interval] = [NOT_COMPARED] * len(labels)
    if compared:
        effects = intervals.paired_differences(values, values[0], level=LEVEL, seed=seed).tolist()
    return [
        Row(label, series, measure, mean, effect, *rank)
        for label, mean, effect, rank in zip(labels, means, effects, ranks, strict=True)
    ]


def _finite_mean(values: NDArray) -> NDArray:
    """Mean of the finite entries along the last axis, NaN where there are none."""
    finite = np.isfinite(values)
    counts = finite.sum(-1)
    return np.divide(np.where(finite, values, 0).sum(-1), counts, out=np.full(counts.shape, np.nan), where=counts > 0)


def ranks_among(
    effects: NDArray, budgets: Sequence[Hashable], random: NDArray, random_budgets: Sequence[Hashable]
) -> list[tuple[float | None, int]]:
    """Where the mean effect of each condition lies among the controls of its budget, and how many controls there are.

    Args:
        effects: float[condition, prompt].
        budgets: of each condition; None for one without controls.
        random: effects of the controls on the first of these prompts, float[control, prompt].
        random_budgets: of each control.

    Returns:
        (percentile in 0..100, controls) for each condition; (None, 0) without controls or where an effect is undefined.
    """
    means, random_means = effects[:, : random.shape[1]].mean(axis=1), random.mean(axis=1)
    found: list[tuple[float | None, int]] = []
    for mean, budget in zip(means, budgets, strict=True):
        matched = [number for number, other in enumerate(random_budgets) if other == budget is not None]
        if matched and np.isfinite(mean) and np.isfinite(random_means[matched]).all():
            found.append((float(intervals.percentile_among(mean, random_means[matched])), len(matched)))
        else:
            found.append((None, 0))
    return found


def summary_csv(rows: Sequence[Row], subject: str = "edit") -> str:
    """The summary as CSV: one line for each row, empty where a number does not exist. subject: what a condition is."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow([subject, *COLUMNS])
    for row in rows:
        ranks = ("" if row.percentile is None else row.percentile, row.controls)
        table.writerow([row.condition, row.series, row.measure, *bounds(row.value), row.value.n, *bounds(row.effect), *ranks])
    return out.getvalue()


def bounds(interval: Interval) -> tuple[float | str, ...]:
    """Mean, low and high as cells of a CSV file."""
    return tuple("" if bound is None else bound for bound in (interval.mean, interval.low, interval.high))
