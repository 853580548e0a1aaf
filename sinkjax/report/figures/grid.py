"""Quantities over two choices at once (a position and a set of layers, two indices, ...), as heat maps side by side."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from sinkjax.report.figures.style import draw_map, panels, plain_ticks, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE_WIDTH = 72  # maximum characters of titles over the whole width of a figure
TICK_WIDTH = 90  # and of the cells' names
LABEL_WIDTH = 11  # characters per inch of the label of a colour bar
NARROWEST = 0.22  # as a share of the widest column
MOST_TICKS = 16  # along one axis of a map


@dataclass(frozen=True)
class MapColumn:
    """A column of maps. title: above it. x: names of its cells, from left to right. xlabel: below it."""

    title: str
    x: Sequence[str]
    xlabel: str


@dataclass(frozen=True)
class MapRow:
    """The maps of one quantity on one colour scale.

    values: for each column float[x, y], NaN if missing. label: label of the colour bar. limits: ends of the scale, by default the
    values' range. log: whether it is logarithmic. signed: whether colours diverge at the middle of the scale. title: before
    the name of y.
    """

    values: Sequence[NDArray]
    label: str
    limits: tuple[float, float] | None = None
    log: bool = False
    signed: bool = False
    title: str = ""


@styled
def grids(columns: Sequence[MapColumn], rows: Sequence[MapRow], y: Sequence[str], ylabel: str, height: float = 2.9) -> Figure:
    """Draw heat maps [row, column]: y is shared and upwards, columns are as wide as their cells, each row has a colour bar.

    y: names of the cells from bottom to top.
    """
    from matplotlib.colors import LogNorm, Normalize

    most = max(len(column.x) for column in columns)
    widths = [max(len(column.x) / most, NARROWEST) for column in columns]
    figure, axes = panels(len(rows), len(columns), height, sharex="col", sharey=True, width_ratios=widths)
    for number, row in enumerate(rows):
        finite = np.concatenate([values[np.isfinite(values)] for values in row.values])
        low, high = row.limits or (float(finite.min()), float(finite.max()))
        scale = LogNorm(low, high) if row.log else Normalize(low, high)
        for panel, column, values, width in zip(axes[number], columns, row.values, widths, strict=True):
            image = draw_map(panel, values.T, scale, row.signed, origin="lower", aspect="auto")
            _ticks(panel, "x", column.x, width / sum(widths) * TICK_WIDTH)
            _ticks(panel, "y", y)
            if number == 0:
                panel.set_title(textwrap.fill(column.title, max(int(width / sum(widths) * TITLE_WIDTH), 12)))
            if number == len(rows) - 1:
                panel.set_xlabel(column.xlabel)
        axes[number, 0].set_ylabel(f"{row.title}\n{ylabel}".strip())
        bar = figure.colorbar(image, ax=list(axes[number]), pad=0.02, aspect=16)
        bar.set_label(textwrap.fill(row.label, int(height * LABEL_WIDTH)))
        if row.log:
            plain_ticks(bar.ax.yaxis)
    return figure


def _ticks(panel: Axes, axis: Literal["x", "y"], names: Sequence[str], room: float = math.inf) -> None:
    """Label the cells, omitting names that would touch; vertical if `room`, in characters, is too small."""
    longest = max(len(name) for name in names)
    fit = MOST_TICKS
    if axis == "x" and all(name.isdigit() for name in names):  # readers can fill in the numbers between
        fit = max(2, min(MOST_TICKS, int(room / (longest + 1))))
    places = range(0, len(names), math.ceil(len(names) / fit))
    upright = axis == "x" and (longest > 3 or (longest == 3 and len(places) * (longest + 1) > room))
    set_ticks = panel.set_xticks if axis == "x" else panel.set_yticks
    set_ticks(places, [names[place] for place in places], rotation=90 if upright else 0)
    panel.tick_params(axis=axis, length=2)
