"""Line figures: lines with bands by layer or along a training, curves of many runs, and how often sizes occur."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis.intervals import Interval
from sinkjax.report.figures import style
from sinkjax.report.figures.style import COLOURS, MARKERS, WIDTH, legend_above, logarithmic, panels, plain_ticks, styled

if TYPE_CHECKING:
    import matplotlib.axis
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


@dataclass(frozen=True)
class Bundle:
    """Runs of one kind, or one curve.

    x, y: float[run, point], NaN where a run has ended, or float[point]. middle: x and y of a bold line, or None. kind: how they
    are drawn: faintly, as a line or as dots.
    """

    name: str
    x: NDArray[Any]
    y: NDArray[Any]
    middle: tuple[NDArray[Any], NDArray[Any]] | None = None
    kind: Literal["runs", "line", "dots"] = "runs"


@dataclass(frozen=True)
class Axis:
    """A panel's title, labels with units, and logarithmic axes ("", "x", "y" or "xy")."""

    title: str
    xlabel: str
    ylabel: str
    bundles: Sequence[Bundle]
    log: str = ""
    limits: tuple[float, float] | None = None


@styled
def lines(
    grid: Sequence[Sequence[Panel]],
    xlabel: str,
    legend: Literal["first", "above", "beside"] = "first",
    log_x: bool = False,
    share: Literal["row", "col", "none"] = "row",
    courses: bool = False,
    height: float = HEIGHT,
    width: float = WIDTH,
) -> Figure:
    """Draw lines with interval bands in panels that share x.

    Args:
        grid: The panels, [row][column].
        xlabel: The name of x. If all x are integers, so are the ticks.
        legend: Its position: the first panel of each row, beside each row, or above all panels if their lines have the same
            names.
        log_x: Whether x is logarithmic.
        share: The panels that share y. The panels of a row then have a single label.
        courses: Whether lines have many points and therefore no markers; the first line, the baseline, is then black.
        height: Inches per row.
        width: Inches of the figure.

    Returns:
        A matplotlib figure.
    """
    wide = max(map(len, grid))
    figure, axes = panels(len(grid), wide, height, sharex=True, sharey=False if share == "none" else share, width=width)
    whole = all(isinstance(x, int) for row in grid for panel in row for line in panel.lines for x in line.x)
    shared: dict[object, list[tuple[Axes, Panel]]] = {}  # the panels of each y axis; the first one sets it
    for row, entries in enumerate(grid):
        for column, (drawn, panel) in enumerate(zip(axes[row], entries, strict=False)):
            shared.setdefault({"row": row, "col": column, "none": (row, column)}[share], []).append((drawn, panel))
            _draw_lines(drawn, panel, courses)
            if log_x:
                logarithmic(drawn, "x")
            elif whole:
                style.spaced_ticks(drawn.xaxis, min(10, 20 // wide), integer=True)
            if row == 0 or share == "none":
                drawn.set_title(panel.title)
            if not any(column < len(below) for below in grid[row + 1 :]):
                drawn.set_xlabel(xlabel)
                drawn.tick_params(labelbottom=True)
            if column == 0 or share != "row":
                drawn.set_ylabel(panel.ylabel)
        for empty in axes[row, len(entries) :]:
            empty.set_axis_off()
        for name in dict.fromkeys(line.compared for panel in entries for line in panel.lines if line.reference is not None):
            axes[row, 0].plot([], [], color="#555555", linestyle=DASHED, linewidth=1, label=name)
        if legend == "first":
            axes[row, 0].legend(loc="best")
        elif legend == "beside":
            axes[row, len(entries) - 1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
    for group in shared.values():
        _scale(group[0][0], [panel for _, panel in group])
    if legend == "above":
        legend_above(figure, axes[0, 0])
    return figure


def _scale(axes: Axes, entries: Sequence[Panel]) -> None:
    """Set the y axis of panels that share it, after all are drawn, because that ends the search for shared ends."""
    first, (low, high) = entries[0], axes.get_ylim()
    if first.limits is not None:
        axes.set_ylim(*first.limits)
    elif first.log:
        # From half of the smallest mean, because an interval that reaches 0 would fill the axis with decades.
        drawn = [line for panel in entries for line in panel.lines]
        means = [mean for line in drawn for mean in (line.reference, *(value.mean for value in line.values))]
        low = max(low, min((mean for mean in means if mean is not None and mean > 0), default=0.0) / 2)
        if high < 10 * low:  # at least a power of ten, so that tiny differences look tiny
            low, high = math.sqrt(low * high / 10), math.sqrt(low * high * 10)
        axes.set_ylim(low, high)
        _plain_if_narrow(axes.yaxis)
    elif not first.signed:
        axes.set_ylim(0, max(high, *(max(panel.top, style.reach(panel.ylabel)) for panel in entries)))
        style.spaced_ticks(axes.yaxis, 6, steps=[1, 2, 5, 10])  # counts have no halves


def _plain_if_narrow(axis: matplotlib.axis.Axis) -> None:
    low, high = axis.get_view_interval()
    if high < NARROW * low:
        plain_ticks(axis)


def _draw_lines(axes: Axes, panel: Panel, courses: bool) -> None:
    for number, line in enumerate(panel.lines):
        colour, marker = style.form(number)
        form: dict[str, Any] = {"color": colour, "marker": marker}
        if courses:
            colour = "black" if number == 0 else COLOURS[(number - 1) % (len(COLOURS) - 1)]
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


@styled
def curves(grid: Sequence[Sequence[Axis]], height: float = HEIGHT) -> Figure:
    """Draw curves of runs in panels with separate scales and one legend for all bundles; a name looks the same in all panels.

    Args:
        grid: The panels, [row][column].
        height: Inches per row.

    Returns:
        A matplotlib figure.
    """
    figure, axes = panels(len(grid), max(map(len, grid)), height)
    forms: dict[str, dict[str, Any]] = {}
    for row, entries in enumerate(grid):
        for panel, axis in zip(axes[row], entries, strict=True):
            for bundle in axis.bundles:
                form = forms.setdefault(bundle.name, _form(bundle.kind, len(forms)))
                runs = np.atleast_2d(bundle.y)
                faint = {"alpha": max(0.12, min(0.6, 4 / len(runs))), "linewidth": 0.8} if bundle.kind == "runs" else {}
                panel.plot(np.atleast_2d(bundle.x).T, runs.T, **form | faint)
                if bundle.middle is not None:
                    panel.plot(*bundle.middle, **form)
            panel.set(title=axis.title, xlabel=axis.xlabel, ylabel=axis.ylabel)
            panel.set(**{f"{name}scale": "log" for name in axis.log})
            if axis.log == "xy":
                panel.grid(color="#e5e5e5", linewidth=0.6)
            for name in axis.log:
                _plain_if_narrow(panel.xaxis if name == "x" else panel.yaxis)
            if axis.limits:
                panel.set_ylim(*axis.limits)
    for name, form in forms.items():
        axes[0, 0].plot([], [], label=name, **form)
    legend_above(figure, axes[0, 0])
    return figure


def _form(kind: str, number: int) -> dict[str, Any]:
    form: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)], "linewidth": 2}
    if kind == "dots":
        marker = MARKERS[number % len(MARKERS)]
        return form | {"marker": marker, "markersize": 4.5, "linestyle": "none", "alpha": 0.75, "markeredgewidth": 0}
    return form | {"linestyle": DASHES[number % len(DASHES)]} if kind == "line" else form


@styled
def histogram(kinds: Mapping[str, NDArray[Any]], marks: Mapping[str, float], xlabel: str, ylabel: str) -> Figure:
    """Draw how often sizes occur, with counts on a logarithmic axis, so that a single one is visible beside many.

    Args:
        kinds: Kind -> positive sizes, float[n]; kinds share their bins.
        marks: Name -> a size to compare with, drawn as a vertical line.
        xlabel: Name of the sizes.
        ylabel: Name of the counts.

    Returns:
        A matplotlib figure.
    """
    figure, axes = panels(1, 1, 3.2)
    panel, sizes = axes[0, 0], np.concatenate([*kinds.values(), [*marks.values()]])
    edges = np.geomspace(sizes.min() * 0.9, sizes.max() * 1.1, 91)
    for (name, counted), colour in zip(kinds.items(), COLOURS, strict=False):
        panel.hist(counted, edges, histtype="stepfilled", color=colour, alpha=0.55, label=name)
    for number, (name, size) in enumerate(marks.items(), 1):
        panel.axvline(size, color="black", linestyle=DASHES[number % len(DASHES)], linewidth=1.2, label=name)
    panel.set(xlabel=xlabel, ylabel=ylabel)
    logarithmic(panel, "x")
    panel.set(yscale="log", ylim=(0.7, None))  # a count of 1 has a height
    panel.yaxis.set_major_formatter("{x:,.0f}")
    legend_above(figure, panel)
    return figure
