"""Quantities by layer, depth and position."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis.intervals import Interval
from sinkjax.report.figures import style
from sinkjax.report.figures.style import MOST_COLUMNS, draw_map, leave_empty, logarithmic, panels, plain_ticks, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

TITLE_WIDTH = 36  # maximum characters of a title's line above one of three columns
NARROW = 100  # below this ratio of its ends, a logarithmic axis has plain numbers as ticks
DASHED = (0, (4, 3))
DECADES = 1e4  # the range of a logarithmic colour scale; smaller values share the darkest colour


@dataclass(frozen=True)
class Line:
    """A series over x with an interval at each point.

    reference: the value to compare with, drawn dashed, or None. compared: the reference's name in the legend.
    """

    name: str
    x: Sequence[float]
    values: Sequence[Interval]
    reference: float | None = None
    compared: str = "no edit"


@dataclass(frozen=True)
class Panel:
    """Lines that share axes.

    log: whether y is logarithmic. signed: whether y can be negative; a line is then drawn at 0. top: minimum upper end of y along
    the row, so that small values look small; at least `style.reach` of its label.
    """

    title: str
    ylabel: str
    lines: Sequence[Line]
    log: bool = False
    signed: bool = False
    top: float = 0.0

    @property
    def least(self) -> float:
        """Minimum upper end of y."""
        return max(self.top, style.reach(self.ylabel))


@styled
def lines(grid: Sequence[Sequence[Panel]], xlabel: str, legend_above: bool = False, log_x: bool = False) -> Figure:
    """Draw lines with interval bands in panels that share x, and y along a row.

    Args:
        grid: The panels, [row][column].
        xlabel: The name of x. If all x are integers, so are the ticks.
        legend_above: One legend over all panels, for lines of the same names, instead of one in the first panel of each row.
        log_x: Whether x is logarithmic.

    Returns:
        A matplotlib figure.
    """
    from matplotlib.ticker import MaxNLocator

    figure, axes = panels(len(grid), max(map(len, grid)), 2.9, sharex=True, sharey="row")
    lowest = {column: row for row, entries in enumerate(grid) for column in range(len(entries))}
    whole = all(isinstance(x, int) for row in grid for panel in row for line in panel.lines for x in line.x)
    for row, entries in enumerate(grid):
        for column, panel in enumerate(entries):
            _draw_lines(axes[row, column], panel)
            if log_x:
                logarithmic(axes[row, column], "x")
            elif whole:
                axes[row, column].xaxis.set_major_locator(MaxNLocator(min(10, 20 // len(entries)), integer=True))
            if row == 0:
                axes[row, column].set_title(panel.title)
            if row == lowest[column]:
                axes[row, column].set_xlabel(xlabel)
                axes[row, column].tick_params(labelbottom=True)
        for panel in axes[row, len(entries) :]:
            panel.set_axis_off()
        if not (entries[0].log or entries[0].signed):
            # after all panels are drawn, because it ends the search for a shared top
            axes[row, 0].set_ylim(bottom=0, top=max(axes[row, 0].get_ylim()[1], *(panel.least for panel in entries)))
            axes[row, 0].yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))  # counts have no halves
        if entries[0].log:
            _near_the_means(axes[row, 0], entries)
            _whole_decade(axes[row, 0])
        axes[row, 0].set_ylabel(entries[0].ylabel)
        for name in dict.fromkeys(line.compared for panel in entries for line in panel.lines if line.reference is not None):
            axes[row, 0].plot([], [], color="#555555", linestyle=DASHED, linewidth=1, label=name)
        if not legend_above:
            axes[row, 0].legend(loc="best")
    if legend_above:
        style.legend_above(figure, axes[0, 0])
    return figure


def _near_the_means(axes: Axes, entries: Sequence[Panel]) -> None:
    """End a logarithmic y axis at half of the smallest mean, because an interval that reaches 0 would fill it with decades."""
    drawn = [
        number for panel in entries for line in panel.lines for number in (line.reference, *(one.mean for one in line.values))
    ]
    bottom = min((number for number in drawn if number is not None and number > 0), default=0.0) / 2
    axes.set_ylim(bottom=max(bottom, axes.get_ylim()[0]))


def _whole_decade(axes: Axes) -> None:
    """Make a logarithmic y axis span at least a power of ten, so that tiny differences look tiny."""
    low, high = axes.get_ylim()
    if high < 10 * low:
        middle, half = math.sqrt(low * high), math.sqrt(10)
        low, high = axes.set_ylim(middle / half, middle * half)
    if high < NARROW * low:
        logarithmic(axes, "y")


def _draw_lines(axes: Axes, panel: Panel) -> None:
    for number, line in enumerate(panel.lines):
        colour, marker = style.form(number)
        mean, low, high = (np.array([getattr(value, part) for value in line.values], float) for part in ("mean", "low", "high"))
        axes.fill_between(line.x, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(line.x, mean, color=colour, marker=marker, label=line.name)
        if line.reference is not None:
            axes.axhline(line.reference, color=colour, linestyle=DASHED, linewidth=1)
    if panel.log:
        axes.set_yscale("log")
    elif panel.signed:
        axes.axhline(0, color="#888888", linewidth=0.8)


def _upward_map(panel: Axes, values: NDArray, scale: Normalize) -> AxesImage:
    """Draw a map of float[y, x] with y upwards and integer ticks."""
    from matplotlib.ticker import MaxNLocator

    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    return draw_map(panel, values, scale, origin="lower", aspect="auto")


@styled
def received(values: Mapping[str, Mapping[str, NDArray]], xlabel: str) -> Figure:
    """Draw the attention that a key receives, by edited layer (across) and layer of measurement (up), on one colour scale.

    values: row title -> column title -> float[x, layer] in 0..1, NaN if there is no such condition.
    """
    from matplotlib.colors import Normalize

    figure, axes = panels(len(values), len(next(iter(values.values()))), 3.3, sharex=True, sharey=True)
    for row, (row_title, entries) in enumerate(values.items()):
        for panel, (title, array) in zip(axes[row], entries.items(), strict=True):
            image = _upward_map(panel, array.T, Normalize(0, 1))
            panel.set_title(f"{row_title}; {title}")
        axes[row, 0].set_ylabel("layer where it is read")
    for panel in axes[-1]:
        panel.set_xlabel(xlabel)
    figure.colorbar(image, ax=axes, shrink=0.7, pad=0.02).set_label("attention received, mean over heads and prompts")
    return figure


@styled
def activations(values: NDArray, titles: Sequence[str]) -> Figure:
    """Draw the largest |h| by position (across) and depth (up), one panel per run, on one logarithmic colour scale.

    Args:
        values: float[run, depth, position], positive. Depth 0 is the embedding, depth l + 1 the stream after block l.
        titles: The names of the runs.

    Returns:
        A matplotlib figure.
    """
    from matplotlib.colors import LogNorm

    rows = math.ceil(len(titles) / MOST_COLUMNS)
    figure, axes = panels(rows, math.ceil(len(titles) / rows), 3.2, sharex=True, sharey=True)
    largest = float(np.nanmax(values))
    scale = LogNorm(max(float(np.nanmin(values)), largest / DECADES), largest)
    for panel, title, array in zip(axes.flat, titles, values, strict=False):
        image = _upward_map(panel, array, scale)
        panel.set_title(textwrap.fill(title, TITLE_WIDTH), fontsize=9)
    leave_empty(axes, len(titles))
    figure.supxlabel("position", fontsize=10)
    figure.supylabel("depth (0: embedding, l + 1: after layer l)", fontsize=10)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02)
    bar.set_label("largest |h|, mean over prompts (log scale)")
    plain_ticks(bar.ax.yaxis)
    return figure
