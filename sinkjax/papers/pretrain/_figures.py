"""Figures of a pretraining table: learning curves, and its rows next to the paper's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.lab.claims import Training
from sinkjax.lab.measures import Measure
from sinkjax.lab.numbers import Stored, read_measure
from sinkjax.lab.trained import alone, paired
from sinkjax.papers.pretrain._outcomes import sinks
from sinkjax.report.figures.bands import Band, Column, bands
from sinkjax.report.figures.points import Point, points
from sinkjax.report.section import Drawing

if TYPE_CHECKING:
    import xarray

TOGETHER = 5  # rows of a table in one row of panels, so that their colours can be distinguished
HERE, PAPER = "here", "paper"


def learning_curves(read: Stored, rows: Sequence[Training]) -> Drawing | None:
    """Loss, sink and norm ratio against steps; the first row of the table is in every row of panels."""
    there = _trained(read, rows)
    if not there:
        return None
    first, *others = there
    groups = [[first, *group] for group in np.array_split(np.array(others, object), max(1, math.ceil(len(others) / TOGETHER)))]
    shown: list[Callable[[xarray.Dataset], NDArray]] = [
        lambda data: np.asarray(data["loss"].values),
        lambda data: sinks(data)[..., 0],
        lambda data: np.asarray(data["norm_ratio"].values.max(axis=-1)),
    ]
    grid = [[[_band(row.label, read.data(row.name), of) for row in group] for of in shown] for group in groups]
    columns = [
        Column("valid loss\n(nats)", limits=_losses([band for row in grid for band in row[0]])),
        Column("Sink$_1$\n(% of heads)", limits=_percent([band for row in grid for band in row[1]])),
        Column("norm of token 1\nover others", log=True),
    ]
    counts = {read.data(row.name).sizes["run"] for row in there}
    seeds = f"{min(counts)} to {max(counts)} seeds" if len(counts) > 1 else f"{counts.pop()} seed(s) a row"
    caption = f"""At size {read.settings.size}: held-out loss, share of heads that sink on the first token, and its norm over
        the others' (largest over depths), against steps. Lines: means over seeds; bands: lowest and highest seed.
        {seeds}. A line that ends early belongs to a training that is not finished, or diverged."""
    return Drawing("learning", bands(columns, grid, "step"), caption)


def beside_the_paper(read: Stored, measures: Sequence[Measure], rows: Sequence[Training], xlabel: str) -> Drawing | None:
    """Measures of the rows next to the paper's numbers, one panel per measure."""
    if not read.stores:
        return None
    columns = {}
    for measure in measures:
        found = []
        for row in _trained(read, rows):
            number = row.paper.get(measure.name)
            found.append(Point(row.label, read.interval(read_measure(measure, read.data(row.name))), HERE))
            if isinstance(number, int | float):
                found.append(Point(row.label, alone(number), PAPER))
        columns[measure.name] = found
    caption = f"""The rows at size {read.settings.size}: means over seeds, bars: 95% intervals; next to the paper's numbers,
        from one run each."""
    return Drawing("rows", points(columns, xlabel), caption)


def losses_beside(read: Stored, measure: Measure, rows: Sequence[Training]) -> Drawing | None:
    """Excess of each row's loss over the first row's, here and in the paper; nothing with fewer than two rows."""
    first, *others = rows
    if not read.has(first.name):
        return None
    base, paper, found = read.data(first.name), first.paper.get(measure.name), []
    for row in _trained(read, others):
        number = row.paper.get(measure.name)
        found.append(Point(row.label, paired(base, read.data(row.name), measure, read), HERE))
        if isinstance(number, int | float) and isinstance(paper, int | float):
            found.append(Point(row.label, alone(number - paper), PAPER))
    if not any(point.kind == HERE and point.value.mean is not None for point in found):
        return None
    caption = f"""Held-out loss of each row less the first row's ({first.name}), next to the same difference in the paper. Losses
        themselves cannot be compared, since text and tokenizer differ. Here: paired by seed, bars: 95% intervals."""
    return Drawing("losses", points({f"against {first.name}": found}, "difference in valid loss (nats)"), caption)


def _trained(read: Stored, rows: Sequence[Training]) -> list[Training]:
    """The rows that have been trained, in the order of their stores."""
    by_name = {row.name: row for row in rows}
    return [by_name[name] for name in read.trained if name in by_name]


def _band(name: str, data: xarray.Dataset, of: Callable[[xarray.Dataset], NDArray]) -> Band:
    """Mean, lowest and highest over the runs that are still running at each evaluation."""
    values = np.asarray(of(data), float)
    there = np.isfinite(values).any(axis=0)
    values, steps = values[:, there], data["step"].values[:, there]
    return Band(name, np.nanmax(steps, axis=0), np.nanmean(values, axis=0), np.nanmin(values, axis=0), np.nanmax(values, axis=0))


def _losses(shown: Sequence[Band]) -> tuple[float, float]:
    """Limits that show where losses end, not where untrained models start."""
    low = min(float(band.low.min()) for band in shown)
    room = max(0.3, 1.5 * float(np.quantile([band.middle[-1] for band in shown], 0.75) - low))
    return low - 0.05 * room, low + 1.5 * room


def _percent(shown: Sequence[Band]) -> tuple[float, float]:
    most = max(10.0, *(float(band.high.max()) for band in shown))
    return -0.03 * most, 1.05 * most
