"""Figures of a pretraining table: learning curves, and its rows next to the paper's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import xarray
from numpy.typing import NDArray

from sinkjax.analysis.intervals import Interval
from sinkjax.papers.pretrain._outcomes import sinks
from sinkjax.report.figures.dots import Mark, points
from sinkjax.report.figures.lines import Line, Panel, lines
from sinkjax.report.section import Drawing
from sinkjax.study import Measure, Numbers, TrainedModels, alone, paired, read_measure

TOGETHER = 5  # rows of a table in one row of panels, so that their colours can be distinguished
HERE, PAPER = "here", "paper"


def learning_curves(read: Numbers, rows: Sequence[TrainedModels]) -> Drawing | None:
    """Loss, sink and norm ratio against steps; the first row of the table is in every row of panels."""
    there = _trained(read, rows)
    if not there:
        return None
    first, *others = there
    groups = [[first, *group] for group in np.array_split(np.array(others, object), max(1, math.ceil(len(others) / TOGETHER)))]
    shown: list[Callable[[xarray.Dataset], NDArray[Any]]] = [
        lambda data: np.asarray(data["loss"].values),
        lambda data: sinks(data)[..., 0],
        lambda data: np.asarray(data["norm_ratio"].values.max(axis=-1)),
    ]
    found = [[[_course(row.label, read.data(row.name), of) for row in group] for of in shown] for group in groups]
    losses, sinking, _ = (list(itertools.chain(*column)) for column in zip(*found, strict=True))
    grid = []
    for loss, sink, norm in found:
        sinks_panel = Panel("", "heads that sink\non token 1 (%)", sink, limits=_percent(sinking))
        norms_panel = Panel("", "norm of token 1\nover others", norm, log=True)
        grid.append([Panel("", "valid loss\n(nats)", loss, limits=_losses(losses)), sinks_panel, norms_panel])
    counts = {read.data(row.name).sizes["run"] for row in there}
    seeds = f"{min(counts)} to {max(counts)} seeds" if len(counts) > 1 else f"{counts.pop()} seed(s) a row"
    caption = f"""At size {read.settings.size}: held-out loss, share of heads that sink on the first token, and its norm over
        the others'. Means over seeds, with the lowest and highest seed; {seeds}. A line that ends early is not finished, or
        diverged."""
    legend: Literal["above", "beside"] = "above" if len(grid) == 1 else "beside"
    return Drawing("learning", lines(grid, "step", legend, share="col", courses=True, height=2.5), caption)


def beside_the_paper(read: Numbers, measures: Sequence[Measure], rows: Sequence[TrainedModels], xlabel: str) -> Drawing | None:
    """Measures of the rows next to the paper's numbers, one panel per measure."""
    if not read.stores:
        return None
    columns: dict[str, list[Mark]] = {measure.name: [] for measure in measures}
    for measure, row in itertools.product(measures, _trained(read, rows)):
        columns[measure.name].append(Mark(row.label, read.interval(read_measure(measure, read.data(row.name))), HERE))
        if isinstance(number := row.paper.get(measure.name), int | float):
            columns[measure.name].append(Mark(row.label, alone(number), PAPER))
    caption = f"At size {read.settings.size}: means over seeds, with 95% intervals, and the paper's numbers, from one run each."
    return Drawing("rows", points(columns, xlabel), caption)


def losses_beside(read: Numbers, measure: Measure, rows: Sequence[TrainedModels]) -> Drawing | None:
    """Excess of each row's loss over the first row's, here and in the paper; nothing with fewer than two rows."""
    first, *others = rows
    if first.name not in read:
        return None
    base, paper, found = read.data(first.name), first.paper.get(measure.name), []
    for row in _trained(read, others):
        number = row.paper.get(measure.name)
        found.append(Mark(row.label, paired(base, read.data(row.name), measure, read), HERE))
        if isinstance(number, int | float) and isinstance(paper, int | float):
            found.append(Mark(row.label, alone(number - paper), PAPER))
    if not any(point.kind == HERE and point.value.mean is not None for point in found):
        return None
    caption = f"""Held-out loss of each row less the first row's ({first.name}), next to the same difference in the paper: text
        and tokenizer differ, so losses cannot be compared. Here: paired by seed, bars: 95% intervals."""
    return Drawing("losses", points({f"against {first.name}": found}, "difference in valid loss (nats)"), caption)


def _trained(read: Numbers, rows: Sequence[TrainedModels]) -> list[TrainedModels]:
    """The rows that have been trained, in the order of their stores."""
    by_name = {row.name: row for row in rows}
    return [by_name[name] for name in read.trained if name in by_name]


def _course(name: str, data: xarray.Dataset, of: Callable[[xarray.Dataset], NDArray[Any]]) -> Line:
    """Mean, lowest and highest over the runs that are still running at each evaluation."""
    values = np.asarray(of(data), float)
    there = np.isfinite(values).any(axis=0)
    values, steps = values[:, there], data["step"].values[:, there]
    ends = (float(of(column)) for column in values.T for of in (np.nanmean, np.nanmin, np.nanmax))
    shown = [Interval(*three, len(values), 0, 1.0, "none") for three in zip(ends, ends, ends, strict=True)]
    return Line(name, np.nanmax(steps, axis=0).tolist(), shown)


def _losses(shown: Sequence[Line]) -> tuple[float, float]:
    """Limits that show where losses end, not where untrained models start."""
    low = min(one.low for line in shown for one in line.values if one.low is not None)
    ends = [one.mean for line in shown for one in line.values[-1:] if one.mean is not None]
    room = max(0.3, 1.5 * float(np.quantile(ends, 0.75) - low))
    return low - 0.05 * room, low + 1.5 * room


def _percent(shown: Sequence[Line]) -> tuple[float, float]:
    most = max(10.0, *(one.high for line in shown for one in line.values if one.high is not None))
    return -0.03 * most, 1.05 * most
