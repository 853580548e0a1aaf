"""From measures per prompt to a summary: means, paired effects with intervals, and percentiles among matched controls."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax import stats
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.base import Arm, Claim
from sinkjax.stats import Interval

if TYPE_CHECKING:
    import xarray

LEVEL = 0.95
NOT_COMPARED = Interval(None, None, None, 0, 0, LEVEL, "none")  # the effect of a row that stands for itself


@dataclass(frozen=True)
class Measure:
    """A number per edit and prompt. name: with its unit, as a column is headed. of: dataset -> float[edit, prompt]."""

    name: str
    of: Callable[[xarray.Dataset], NDArray]


@dataclass(frozen=True)
class Row:
    """One measure of one arm.

    value: mean over prompts. effect: mean paired difference from the first arm (0 for that one), NOT_COMPARED where nothing
    is. percentile: where the effect
    lies among those of `controls` random edits of the same budget, None without controls.
    """

    arm: str
    group: str
    measure: str
    value: Interval
    effect: Interval = NOT_COMPARED
    percentile: float | None = None
    controls: int = 0


Table = dict[tuple[str, str], Row]


@dataclass(frozen=True)
class Measured:
    """A finished sweep and the arms that it holds, in its order."""

    data: xarray.Dataset
    arms: Sequence[Arm]

    def __post_init__(self) -> None:
        stored, wanted = [str(label) for label in self.data["edit"].values], [arm.edit.label for arm in self.arms]
        if stored != wanted:
            odd = next((pair for pair in zip(stored, wanted, strict=False) if pair[0] != pair[1]), (len(stored), len(wanted)))
            raise SinkjaxError(f"the store and its config disagree about the edits: {odd[0]!r} and {odd[1]!r}")


def summarise(sweep: Measured, measures: Sequence[Measure], seed: int, controls: Measured | None = None) -> Table:
    """The summary of a sweep, (label of the arm, name of the measure) -> row, arms in their order.

    The first arm is what the others are compared with. controls: random arms, measured on the first of the sweep's prompts; on
    those same prompts an arm's effect is ranked among the controls of its budget.
    """
    columns = [_column(sweep, measure, seed, controls) for measure in measures]
    return {(row.arm, row.measure): row for rows in zip(*columns, strict=True) for row in rows}


def _column(sweep: Measured, measure: Measure, seed: int, controls: Measured | None) -> list[Row]:
    values = measure.of(sweep.data)
    means = stats.intervals(values, level=LEVEL, seed=seed)
    effects = stats.paired_differences(values, values[0], level=LEVEL, seed=seed)
    ranks = _ranks(sweep, values, measure.of(controls.data), controls.arms) if controls else {}
    return [
        Row(arm.edit.label, arm.group, measure.name, mean, effect, *ranks.get(number, (None, 0)))
        for number, (arm, mean, effect) in enumerate(zip(sweep.arms, means, effects, strict=True))
    ]


def _ranks(sweep: Measured, values: NDArray, random: NDArray, controls: Sequence[Arm]) -> dict[int, tuple[float, int]]:
    """Number of an arm -> percentile of its effect among its controls, and how many there are; undefined effects have none."""
    shared = random.shape[1]
    effects, random_effects = ((table - values[0, :shared]).mean(axis=1) for table in (values[:, :shared], random))
    ranks = {}
    for number, arm in enumerate(sweep.arms):
        matched = [other for other, control in enumerate(controls) if control.budget == arm.budget is not None]
        if matched and np.isfinite(effects[number]) and np.isfinite(random_effects[matched]).all():
            ranks[number] = float(stats.percentile_among(effects[number], random_effects[matched])), len(matched)
    return ranks


def to_csv(rows: Sequence[Row]) -> str:
    """The summary as CSV: one line for each arm and measure, empty where a number does not exist."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    interval = ("mean", "low", "high")
    table.writerow(
        ["edit", "group", "measure", *interval, "n", *(f"effect_{name}" for name in interval), "percentile", "controls"]
    )
    for row in rows:
        ranks = ("" if row.percentile is None else row.percentile, row.controls)
        table.writerow([row.arm, row.group, row.measure, *_bounds(row.value), row.value.n, *_bounds(row.effect), *ranks])
    return out.getvalue()


def claims_csv(claims: Sequence[Claim]) -> str:
    """A paper's statements and their verdicts as CSV."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["statement", "verdict", "evidence", "paper"])
    table.writerows([claim.statement, claim.verdict, claim.evidence, claim.paper] for claim in claims)
    return out.getvalue()


def _bounds(interval: Interval) -> tuple[float | str, ...]:
    return tuple("" if bound is None else bound for bound in (interval.mean, interval.low, interval.high))
