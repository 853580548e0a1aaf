"""Further figures that studies share: heat maps over two choices, one measure against another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.studies.figures import Figure, drawn
from sinkjax.studies.study import Measure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

    from sinkjax.studies.results import Results

UNEDITED = "none"  # the tick of the conditions' baseline in a heat map


@dataclass(frozen=True)
class HeatMap:
    """A measure as heat maps on one colour scale.

    ylabel: beside the colour bar. log: whether the scale is logarithmic; else it begins at 0 and reaches 1 at least.
    """

    ylabel: str
    measure: Measure
    log: bool = False


@dataclass(frozen=True)
class HeatColumn:
    """The conditions of a heat map: those of a column from left to right, and in each from bottom to top.

    labels: tick on the x axis -> labels of conditions. baseline: whether a first column "none" shows what those of the last
    column are compared with.
    """

    title: str
    xlabel: str
    labels: Mapping[str, Sequence[str]]
    baseline: bool = False


def heat_maps(
    name: str, ylabel: str, y: Sequence[str], rows: Sequence[HeatMap], columns: Sequence[HeatColumn], caption: str
) -> Figure:
    """Means of measures (down) over two choices, side by side for a few sets of conditions.

    Args:
        name, caption: As for `drawn`.
        ylabel: Of the y axis, which all maps share.
        y: Its ticks from bottom to top, one for each condition of a tick on the x axis.
        rows: The measures, from top to bottom.
        columns: The sets of conditions, from left to right.

    Returns:
        The figure, for `Study.figures`.
    """

    def values(results: Results, measure: Measure, column: HeatColumn) -> NDArray:
        found = [[results.row(measure, label).value.mean for label in labels] for labels in column.labels.values()]
        if column.baseline:
            last = [results.labels().index(label) for label in list(column.labels.values())[-1]]
            unedited = results.baseline(measure)
            found.insert(0, np.broadcast_to(unedited, results.values(measure).shape)[last].mean(axis=1).tolist())
        return np.array(found, float)

    def picture(results: Results) -> Picture:
        from sinkjax.report.figures import grid

        shown = []
        for row in rows:
            found = [values(results, row.measure, column) for column in columns]
            limits = None if row.log else (0.0, max(1.0, *(float(np.nanmax(part)) for part in found)))
            shown.append(grid.Row(found, row.ylabel, limits, row.log))
        names = [grid.Column(column.title, [*[UNEDITED] * column.baseline, *column.labels], column.xlabel) for column in columns]
        return grid.grids(names, shown, y, ylabel)

    return drawn(name, picture, caption, bands=False)


def against(
    name: str, x: Measure, y: Measure, clouds: Mapping[str, tuple[str, str]], caption: str, log_y: bool = False
) -> Figure:
    """One measure against another: a dot for the mean of each condition.

    Args:
        name, caption: As for `drawn`.
        x, y: The measures.
        clouds: Name in the legend -> (store, series) of the conditions; one without conditions is left out.
        log_y: Whether the y axis is logarithmic.

    Returns:
        The figure, for `Study.figures`.
    """

    def picture(results: Results) -> Picture:
        from sinkjax.report.figures.scatter import Cloud, scatter
        from sinkjax.report.figures.style import reach

        found = []
        for title, (store, series) in clouds.items():
            rows = [row for row, condition in enumerate(results.conditions(store)) if condition.series == series]
            if rows:
                found.append(Cloud(title, *(results.values(measure, store)[rows].mean(axis=1) for measure in (x, y))))
        top = 1.05 * max(reach(x.name), *(float(cloud.x.max()) for cloud in found))
        return scatter({"": found}, x.name, y.name, log="y" if log_y else False, limits=((-0.03 * top, top), None))

    return drawn(name, picture, caption, bands=False)
