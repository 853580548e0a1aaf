"""The page of trainings: the courses of their measurements over the steps, and where they ended. It reads logs only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sinkjax.analysis import intervals
from sinkjax.config_files.locations import Location
from sinkjax.errors import SinkjaxError
from sinkjax.report.figures.lines import Line, Panel, lines
from sinkjax.report.figures.style import wrapped
from sinkjax.report.section import Block, Drawing, Section
from sinkjax.train.log import LOG, read, step_cost

Value = Callable[[Any], float]
MEASURES: dict[str, tuple[str, Value, bool]] = {  # field of a log line -> label, its number, whether its axis is logarithmic
    "loss": ("loss on held-out data", float, False),
    "largest_error": ("largest error on held-out data", float, True),
    "sink": ("heads that sink on one position (%)", lambda share: 100 * float(np.max(share)), False),
    "spike": ("largest activation over the median", lambda sizes: float(np.max(sizes)), True),
}


def is_training(folder: Location) -> bool:
    """Return whether a folder is that of a training, finished or not."""
    return (folder / LOG).is_file()


def training_section(folders: Sequence[Location]) -> Section:
    """Return the courses of trainings as a section: a panel for each measurement, a line for each variant and learning rate.

    Errors: a folder has no log, or one without evaluations; the trainings measure nothing in common.
    """
    groups: dict[str, dict[int, dict[int, Mapping[str, Any]]]] = {}  # line -> run -> step -> evaluation
    same = len({folder.name for folder in folders}) < len(folders)
    titles = [f"{folder.parent.name}/{folder.name}" if same else folder.name for folder in folders]
    for title, folder in zip(titles, folders, strict=True):
        header, evaluations = read(folder)
        rates = len({run["learning_rate"] for run in header["runs"]}) > 1
        for line in evaluations:
            name = [title] * (len(folders) > 1) + [str(line["variant"])] + [f"rate {line['learning_rate']:g}"] * rates
            groups.setdefault(", ".join(name), {}).setdefault(line["run"], {})[line["step"]] = line
    every = [line for runs in groups.values() for steps in runs.values() for line in steps.values()]
    if not every:
        raise SinkjaxError(f"the training in {folders[0]} has no evaluation yet")
    names = [name for name in MEASURES if all(name in line for line in every)]
    if not names:
        raise SinkjaxError(f"these trainings share none of the measurements {', '.join(MEASURES)}")
    panels = [_panel(name, [_line(group, runs, name) for group, runs in groups.items()]) for name in names]
    costs = [cost for folder in folders if (cost := step_cost(folder)) is not None]
    time = f" A step of one run took {np.mean(costs):.3g} ms of wall time." if costs else ""
    caption = f"Means over runs, with 95% intervals where there are several.{time}"
    heads = ("", "runs", "steps", *(MEASURES[name][0] for name in names))
    return Section(
        study="training",
        title=f"Training {' and '.join(titles)}",
        question="How the measurements of its log went over the steps.",
        findings=(),
        rows=(),
        featured=(),
        drawings=(Drawing("courses", lines([panels], "step", "above", share="none", courses=True), caption),),
        blocks=(Block("The last evaluation", "Means over runs.", heads, _last(groups, names)),),
    )


def _panel(name: str, drawn: list[Line]) -> Panel:
    """Make a panel; that of the loss does not begin at 0."""
    label, _, log = MEASURES[name]
    means = [value.mean for line in drawn for value in line.values if value.mean is not None]
    limits = (0.95 * min(means), 1.02 * max(means)) if name == "loss" and means and min(means) < max(means) else None
    return Panel("", wrapped(label, 26), drawn, log, limits=limits)


def _line(group: str, runs: Mapping[int, Mapping[int, Mapping[str, Any]]], name: str) -> Line:
    steps = sorted({step for of in runs.values() for step in of})
    values = np.array([[_number(of[step][name], name) if step in of else np.nan for step in steps] for of in runs.values()])
    return Line(group, steps, [*intervals.intervals(values, axis=0)])


def _number(value: Any, name: str) -> float:
    """A measurement of a log line; a number that was not finite is null there."""
    flat = [np.nan if entry is None else float(entry) for entry in np.ravel(np.array(value, dtype=object))]
    return MEASURES[name][1](flat if isinstance(value, list) else flat[0])


def _last(groups: Mapping[str, Any], names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    rows = []
    for group, runs in groups.items():
        ends = [of[max(of)] for of in runs.values()]
        means = [np.mean([_number(line[name], name) for line in ends]) for name in names]
        steps = sorted({line["step"] for line in ends})
        shown = f"{steps[0]:,}" + (f" to {steps[-1]:,}" if len(steps) > 1 else "")
        rows.append((group, str(len(runs)), shown, *(f"{mean:.3g}" for mean in means)))
    return tuple(rows)
