"""From what was measured on each run to rows of a summary: means over runs with intervals, and every run by its seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.experiments.summary import LEVEL, Row
from sinkjax.experiments.trigger.measure import DIVERGED, EVERY, OTHERS, TRIGGER
from sinkjax.report.table import number

DONE = "converged"  # the outcome of a run that met the stopping rule
MODELS, RUNS = "models", "runs"  # groups of rows
MILLION = 1e6

SOLVED, STEPS = "runs that met the stopping rule (%)", "steps until then"
LOSS, ERROR = "held-out loss (millionths)", "largest held-out error"
LEFT = "loss left of that of an idle model (%)"
BOS, BOS_SHARE = "weight on BOS, other rows", "share of BOS, other rows"
BOS_TRIGGER, BOS_TRIGGER_SHARE = "weight on BOS, trigger row", "share of BOS, trigger row"
ELSEWHERE, ELSEWHERE_TRIGGER = "weight elsewhere, other rows", "weight elsewhere, trigger row"
UNEVEN = "largest difference from 1/j on tokens 1 to j, trigger row"


def mass(data: Any, name: str, rows: str, target: str) -> Any:
    """A mass of every run, layer and head."""
    return data[name].sel(rows=rows, target=target)


def _mean(name: str, rows: str, target: str) -> Callable[[Any], NDArray]:
    """Of each run: its mass, mean over layers and heads."""
    return lambda data: mass(data, name, rows, target).mean(("layer", "head")).values


# name of a measure, with its unit -> float[run] of a lesson's dataset; NaN where a run diverged, inf where it never came so far
MEASURES: dict[str, Callable[[Any], NDArray]] = {
    SOLVED: lambda data: 100.0 * (data["outcome"].values == DONE),
    STEPS: lambda data: np.where(data["outcome"].values == DONE, data["steps"].values, np.inf),
    LOSS: lambda data: MILLION * data["loss"].sel(error_rows=EVERY).values,
    LEFT: lambda data: 100 * (data["loss"].sel(error_rows=EVERY) / data["null_loss"]).values,
    ERROR: lambda data: data["largest_error"].values,
    BOS: _mean("weight", OTHERS, "bos"),
    BOS_SHARE: _mean("share", OTHERS, "bos"),
    ELSEWHERE: _mean("weight", OTHERS, "elsewhere"),
    BOS_TRIGGER: _mean("weight", TRIGGER, "bos"),
    BOS_TRIGGER_SHARE: _mean("share", TRIGGER, "bos"),
    ELSEWHERE_TRIGGER: _mean("weight", TRIGGER, "elsewhere"),
    UNEVEN: lambda data: data["uneven"].mean(("layer", "head")).values,
}


def values(data: Any, measure: str) -> NDArray:
    """A measure of each run: float[run]."""
    return np.asarray(MEASURES[measure](data), np.float64)


def interval(data: Any, measure: str, seed: int) -> Interval:
    """A measure, mean over the runs that have it."""
    return intervals.interval(values(data, measure), level=LEVEL, seed=seed)


def rows(stores: Mapping[str, Any], labels: Mapping[str, str], measures: Sequence[str], seed: int) -> list[Row]:
    """A row for each model and measure, and then one for each of its runs. labels: name of a lesson -> name of its model."""
    models, runs = [], []
    for name, label in labels.items():
        data = stores[name]
        for measure in measures:
            each = values(data, measure)
            models.append(Row(label, MODELS, measure, intervals.interval(each, level=LEVEL, seed=seed)))
            runs += [
                Row(f"{label}, seed {run}", RUNS, measure, alone(value))
                for run, value in zip(data["run"].values, each, strict=True)
            ]
    return models + runs


def alone(value: float) -> Interval:
    """A number that stands for itself; None where it is not finite."""
    return intervals.interval(np.array([value]))


def exceptions(stores: Mapping[str, Any], labels: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each model of which not all runs are done, with the seeds of the others and where they ended."""
    said = []
    for name, label in labels.items():
        data = stores[name]
        outcome = data["outcome"].values
        if (outcome == DONE).all():
            continue
        ends = [
            f"{run} ({'diverged at step ' if end == DIVERGED else 'not done at step '}{steps:,}"
            + ("" if end == DIVERGED else f", largest error {number(error)}")
            + ")"
            for run, end, steps, error in zip(data["run"].values, outcome, data["steps"].values, values(data, ERROR), strict=True)
            if end != DONE
        ]
        shown = "; ".join(ends[:8]) + (f"; and {len(ends) - 8} more, in the table" if len(ends) > 8 else "")
        said.append(
            f"{label}: {(outcome == DONE).sum()} of {len(outcome)} runs met the stopping rule. By seed, the others: {shown}. "
            "Means hold all runs that did not diverge."
        )
    return tuple(said)
