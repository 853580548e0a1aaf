"""Numbers next to curves that bound them: lines, with dots above or below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numpy.typing import NDArray

from sinkjax.report.figures.style import COLOURS, MARKERS, logarithmic, panels, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT = 4.2  # inches
DASHES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class Curve:
    """A line or dots. x, y: float[point]."""

    name: str
    x: NDArray
    y: NDArray


@dataclass(frozen=True)
class FrontierPanel:
    """A panel, whose axes are both logarithmic. plain: y's ticks are plain numbers, for a range of few powers of ten."""

    title: str
    xlabel: str
    ylabel: str
    lines: Sequence[Curve]
    dots: Sequence[Curve]
    plain: bool = False


@styled
def frontier(row: Sequence[FrontierPanel]) -> Figure:
    """Draw panels side by side, each with its own scales; a name has the same colour and shape in all."""
    figure, axes = panels(1, len(row), HEIGHT)
    lines = dict.fromkeys(line.name for panel in row for line in panel.lines)
    dots = dict.fromkeys(each.name for panel in row for each in panel.dots)
    styles = {name: _of_line(number) for number, name in enumerate(lines)}
    styles |= {name: _of_dots(number) for number, name in enumerate(dots, len(lines))}
    for panel, shown in zip(axes[0], row, strict=True):
        for one in (*shown.lines, *shown.dots):
            panel.plot(one.x, one.y, **styles[one.name])
        panel.set(title=shown.title, xlabel=shown.xlabel, ylabel=shown.ylabel, xscale="log", yscale="log")
        if shown.plain:
            logarithmic(panel, "y")
        panel.grid(color="#e5e5e5", linewidth=0.6)
        panel.set_axisbelow(True)
    for name, form in styles.items():
        axes[0, 0].plot([], [], label=name, **form)
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def _of_line(number: int) -> dict:
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number % len(DASHES)], "linewidth": 1.8}


def _of_dots(number: int) -> dict:
    """Dots take the colours after the lines' colours."""
    form = {"marker": MARKERS[number % len(MARKERS)], "markersize": 4.5, "linestyle": "none", "alpha": 0.75}
    return form | {"color": COLOURS[number % len(COLOURS)], "markeredgewidth": 0}
