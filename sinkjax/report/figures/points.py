"""Single numbers side by side: one line per name, one panel per condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinkjax.analysis.intervals import Interval
from sinkjax.report.figures.style import form, panels, reach, styled, wrapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINE_HEIGHT, MARGINS = 0.3, 1.2  # inches
DODGE, SPAN = 0.24, 0.6  # shares of the distance between lines: between two points of one name, and across all of them
MANY = 6  # from this many, points of one name are drawn small
TITLE_WIDTH = 60  # characters over the whole width of a figure


@dataclass(frozen=True)
class Mark:
    """A number with its interval. name: its line. kind: determines its colour and marker, and appears in the legend."""

    name: str
    value: Interval
    kind: str


@styled
def points(
    columns: Mapping[str, Sequence[Mark]],
    xlabel: str,
    limits: tuple[float, float] | None = None,
    least: float | None = None,
    shared: bool = True,
) -> Figure:
    """Draw panels side by side with the same names down; a name may lack a point in a panel.

    Points of one name that share a panel are drawn next to its line, in order. least: makes the scale logarithmic and is its
    smallest drawn value. shared: whether the panels share the horizontal scale.
    """
    names = list(dict.fromkeys(point.name for column in columns.values() for point in column))
    kinds = list(dict.fromkeys(point.kind for column in columns.values() for point in column))
    figure, axes = panels(1, len(columns), MARGINS + LINE_HEIGHT * len(names), sharex=shared, sharey=True)
    for panel, (title, column) in zip(axes[0], columns.items(), strict=True):
        for point in column:
            if point.value.mean is None:
                continue
            colour, marker = form(kinds.index(point.kind))
            place = names.index(point.name) + _beside(point, column)
            ends = (point.value.mean, point.value.low, point.value.high)
            mean, low, high = (None if end is None else max(end, least or end) for end in ends)
            if low is not None:
                panel.plot([low, high], [place, place], color=colour, linewidth=1.6)
            many = sum((other.name, other.kind) == (point.name, point.kind) for other in column) >= MANY
            size, order = (3, 2) if many else (6, 3)  # make one stand out among many random ones
            panel.plot(mean, place, color=colour, marker=marker, markersize=size, linestyle="none", zorder=order)
        panel.set_title(wrapped(title, TITLE_WIDTH // len(columns)))
        panel.set_yticks(range(len(names)), names)
        panel.tick_params(axis="y", length=0)
        panel.grid(axis="y", color="#dddddd", linewidth=0.6)
        panel.set_axisbelow(True)
        if limits:
            panel.set_xlim(*limits)
        if least is not None:
            panel.set_xscale("log")
    low, high = axes[0, 0].get_xlim()
    if high < reach(xlabel):
        axes[0, 0].set_xlim(min(low, -0.03 * reach(xlabel)), reach(xlabel))
    axes[0, 0].set_ylim(len(names) - 0.5, -0.5)
    figure.supxlabel(xlabel, fontsize=10)
    if len(kinds) > 1:
        for number, kind in enumerate(kinds):
            colour, marker = form(number)
            axes[0, 0].plot([], [], color=colour, marker=marker, ls="none", label=kind)
        figure.legend(loc="outside upper center", ncols=len(kinds))
    return figure


def _beside(point: Mark, column: Sequence[Mark]) -> float:
    """Offset a point from the line of its name so that it hides no other point and stays short of the next line."""
    same = [other for other in column if other.name == point.name]
    step = min(DODGE, SPAN / max(len(same) - 1, 1))
    number = next(number for number, other in enumerate(same) if other is point)  # others may have the same value
    return step * (number - (len(same) - 1) / 2)
