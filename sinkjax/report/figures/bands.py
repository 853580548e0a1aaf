"""Means over runs with bands, along a training: rows of panels with a legend next to each, or above a single one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numpy.typing import NDArray

from sinkjax.report.figures.style import COLOURS, MOST_COLUMNS, leave_empty, legend_above, logarithmic, panels, reach, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT = 2.5  # inches
DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))  # in addition to colours, for printing in grey


@dataclass(frozen=True)
class Band:
    """A series: x, its middle and its bounds, float[point] each."""

    name: str
    x: NDArray
    middle: NDArray
    low: NDArray
    high: NDArray


@dataclass(frozen=True)
class Column:
    """A quantity with its unit, with one panel per row. log: whether its axis is logarithmic. limits: ends of the axis."""

    ylabel: str
    log: bool = False
    limits: tuple[float, float] | None = None


@styled
def bands(columns: Sequence[Column], grid: Sequence[Sequence[Sequence[Band]]], xlabel: str) -> Figure:
    """Draw panels [row, column] of bands; the first band of each row is black, and a column's panels share their scale.

    grid: [row][column] -> bands, of the same names in all columns of a row.
    """
    single = len(grid) == 1  # a row of many panels is split into several
    rows = math.ceil(len(columns) / MOST_COLUMNS) if single else len(grid)
    width = math.ceil(len(columns) / rows) if single else len(columns)
    figure, axes = panels(rows, width, HEIGHT, sharex=True, sharey=False if single else "col")
    if single:
        leave_empty(axes, len(columns))
        axes = axes.reshape(1, -1)[:, : len(columns)]
    for row, entries in enumerate(grid):
        for panel, entry in zip(axes[row], entries, strict=True):
            for number, band in enumerate(entry):
                colour = "black" if number == 0 else COLOURS[(number - 1) % (len(COLOURS) - 1)]
                panel.fill_between(band.x, band.low, band.high, color=colour, alpha=0.18, linewidth=0)
                panel.plot(band.x, band.middle, color=colour, linestyle=DASHES[number % len(DASHES)], label=band.name)
        if not single:
            axes[row, -1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
    if single:
        legend_above(figure, axes[0, 0])
    for number, column in enumerate(columns):
        axes[-1, number].set_xlabel(xlabel if not single or number >= len(columns) - width else "")
        for panel in axes[:, number]:
            panel.set_ylabel(column.ylabel)
        if column.log:
            logarithmic(axes[0, number], "y")
        elif column.limits is not None:
            axes[0, number].set_ylim(*column.limits)
        else:
            low, high = axes[0, number].get_ylim()
            high = max(high, least := reach(column.ylabel))
            axes[0, number].set_ylim(max(low, -high / 30) if least else low, high)  # no space below a share of 0
    return figure
