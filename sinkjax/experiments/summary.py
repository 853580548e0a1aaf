"""From measures per prompt to a summary: means, paired effects with intervals, and percentiles among matched controls."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.base import Arm, Claim

if TYPE_CHECKING:
    import xarray

LEVEL = 0.95
ROUNDING = 1e-6  # relative; float32 programs that compute the same differ by less
NOT_COMPARED = Interval(None, None, None, 0, 0, LEVEL, "none")  # the effect of a row that stands for itself


@dataclass(frozen=True)
class Measure:
    """A number per edit and prompt.

    name: with its unit, as a column is headed. of: dataset -> float[edit, prompt]. against: dataset -> float[edit, prompt], what
    each edit is compared with: by default the first edit's number, another one where each edit is read at a place of its own.
    """

    name: str
    of: Callable[[xarray.Dataset], NDArray]
    against: Callable[[xarray.Dataset], NDArray] | None = None


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
    those same prompts an arm's effect is ranked among the controls of its budget. For a measure with an `against` of its own the
    controls begin with an unedited arm too.
    """
    columns = [_column(sweep, measure, seed, controls) for measure in measures]
    return {(row.arm, row.measure): row for rows in zip(*columns, strict=True) for row in rows}


def _column(sweep: Measured, measure: Measure, seed: int, controls: Measured | None) -> list[Row]:
    values = measure.of(sweep.data)
    means = intervals.intervals(values, level=LEVEL, seed=seed)
    compared = values[0] if measure.against is None else measure.against(sweep.data)
    values = _without_rounding(values, compared)
    effects = intervals.paired_differences(values, compared, level=LEVEL, seed=seed)
    ranks = _ranks(sweep, values - compared, _random_effects(measure, controls, compared), controls.arms) if controls else {}
    return [
        Row(arm.edit.label, arm.group, measure.name, mean, effect, *ranks.get(number, (None, 0)))
        for number, (arm, mean, effect) in enumerate(zip(sweep.arms, means, effects, strict=True))
    ]


def _random_effects(measure: Measure, controls: Measured, compared: NDArray) -> NDArray:
    """Effects of the controls on their prompts, the first of the sweep's: float[control, prompt]."""
    values = measure.of(controls.data)
    against = compared[: values.shape[1]] if measure.against is None else measure.against(controls.data)
    return _without_rounding(values, against) - against


def _without_rounding(values: NDArray, compared: NDArray) -> NDArray:
    """Values, but for those within rounding of what they are compared with: unedited and edited runs are two programs."""
    with np.errstate(invalid="ignore"):  # what is not finite stays as it is
        return np.where(np.abs(values - compared) <= ROUNDING * np.abs(compared), compared, values)


def _ranks(sweep: Measured, effects: NDArray, random: NDArray, controls: Sequence[Arm]) -> dict[int, tuple[float, int]]:
    """Number of an arm -> percentile of its effect among its controls, and how many there are; undefined effects have none.

    effects: float[edit, prompt]. random: float[control, prompt], on the first prompts.
    """
    means, random_means = effects[:, : random.shape[1]].mean(axis=1), random.mean(axis=1)
    ranks = {}
    for number, arm in enumerate(sweep.arms):
        matched = [other for other, control in enumerate(controls) if control.budget == arm.budget is not None]
        if matched and np.isfinite(means[number]) and np.isfinite(random_means[matched]).all():
            ranks[number] = float(intervals.percentile_among(means[number], random_means[matched])), len(matched)
    return ranks


def to_csv(rows: Sequence[Row], subject: str = "edit") -> str:
    """The summary as CSV: one line for each arm and measure, empty where a number does not exist. subject: what an arm is."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    interval = ("mean", "low", "high")
    table.writerow(
        [subject, "group", "measure", *interval, "n", *(f"effect_{name}" for name in interval), "percentile", "controls"]
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
