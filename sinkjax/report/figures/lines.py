"""Lines with bands, in panels that share their axes: by layer, along a training, over any number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sinkjax.analysis.intervals import Interval
from sinkjax.report.figures import style
from sinkjax.report.figures.style import logarithmic, panels, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 2.9  # inches
NARROW = 100  # below this ratio of its ends, a logarithmic axis has plain numbers as ticks
DASHED = (0, (4, 3))
DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))  # a course has one besides its colour, for printing in grey


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

    log: whether y is logarithmic. signed: whether y can be negative; a line is then drawn at 0. limits: both ends of y; by
    default the lines decide, and y begins at 0 unless it is logarithmic or signed. top: minimum upper end of y, so that small
    values look small; at least `style.reach` of its label.
    """

    title: str
    ylabel: str
    lines: Sequence[Line]
    log: bool = False
    signed: bool = False
    top: float = 0.0
    limits: tuple[float, float] | None = None

    @property
    def least(self) -> float:
        """Minimum upper end of y."""
        return max(self.top, style.reach(self.ylabel))


@styled
def lines(
    grid: Sequence[Sequence[Panel]],
    xlabel: str,
    legend: Literal["first", "above", "beside"] = "first",
    log_x: bool = False,
    share: Literal["row", "col", "none"] = "row",
    courses: bool = False,
    height: float = HEIGHT,
) -> Figure:
    """Draw lines with interval bands in panels that share x.

    Args:
        grid: The panels, [row][column].
        xlabel: The name of x. If all x are integers, so are the ticks.
        legend: Its place: the first panel of each row, beside each row, or above all panels if all have lines of the same names.
        log_x: Whether x is logarithmic.
        share: The panels that share y. The panels of a row then have one label.
        courses: Whether lines have many points, so that no point has a marker; the first line, the baseline, is then black.
        height: Inches per row.

    Returns:
        A matplotlib figure.
    """
    wide = max(map(len, grid))
    figure, axes = panels(len(grid), wide, height, sharex=True, sharey=False if share == "none" else share)
    lowest = {column: row for row, entries in enumerate(grid) for column in range(len(entries))}
    whole = all(isinstance(x, int) for row in grid for panel in row for line in panel.lines for x in line.x)
    for row, entries in enumerate(grid):
        for column, panel in enumerate(entries):
            _draw_lines(axes[row, column], panel, courses)
            if log_x:
                logarithmic(axes[row, column], "x")
            elif whole:
                style.spaced_ticks(axes[row, column].xaxis, min(10, 20 // wide), integer=True)
            if row == 0 or share == "none":
                axes[row, column].set_title(panel.title)
            if row == lowest[column]:
                axes[row, column].set_xlabel(xlabel)
                axes[row, column].tick_params(labelbottom=True)
            if column == 0 or share != "row":
                axes[row, column].set_ylabel(panel.ylabel)
        for empty in axes[row, len(entries) :]:
            empty.set_axis_off()
        for name in dict.fromkeys(line.compared for panel in entries for line in panel.lines if line.reference is not None):
            axes[row, 0].plot([], [], color="#555555", linestyle=DASHED, linewidth=1, label=name)
        if legend == "first":
            axes[row, 0].legend(loc="best")
        elif legend == "beside":
            axes[row, len(entries) - 1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
    cells = [(row, column) for row, entries in enumerate(grid) for column in range(len(entries))]
    shared: dict[object, list[tuple[int, int]]] = {}  # the panels of each y axis; the first one sets it
    for cell in cells:
        shared.setdefault({"row": cell[0], "col": cell[1], "none": cell}[share], []).append(cell)
    for group in shared.values():
        _scale(axes[group[0]], [grid[row][column] for row, column in group])
    if legend == "above":
        style.legend_above(figure, axes[0, 0])
    return figure


def _scale(axes: Axes, entries: Sequence[Panel]) -> None:
    """Set the y axis of panels that share it, after all are drawn, because that ends the search for shared ends."""
    first = entries[0]
    if first.limits is not None:
        axes.set_ylim(*first.limits)
    elif first.log:
        _near_the_means(axes, entries)
        _whole_decade(axes)
    elif not first.signed:
        axes.set_ylim(bottom=0, top=max(axes.get_ylim()[1], *(panel.least for panel in entries), 0))
        style.spaced_ticks(axes.yaxis, 6, steps=[1, 2, 5, 10])  # counts have no halves


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


def _draw_lines(axes: Axes, panel: Panel, courses: bool) -> None:
    for number, line in enumerate(panel.lines):
        colour, marker = style.form(number)
        form: dict[str, Any] = {"color": colour, "marker": marker}
        if courses:
            colour = "black" if number == 0 else style.COLOURS[(number - 1) % (len(style.COLOURS) - 1)]
            form = {"color": colour, "linestyle": DASHES[number % len(DASHES)]}
        mean, low, high = (np.array([getattr(value, part) for value in line.values], float) for part in ("mean", "low", "high"))
        axes.fill_between(line.x, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(line.x, mean, label=line.name, **form)
        if line.reference is not None:
            axes.axhline(line.reference, color=colour, linestyle=DASHED, linewidth=1)
    if panel.log:
        axes.set_yscale("log")
    elif panel.signed:
        axes.axhline(0, color="#888888", linewidth=0.8)
