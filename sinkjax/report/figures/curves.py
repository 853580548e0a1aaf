"""Many runs of the same thing: a faint line each, and one bold line for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numpy.typing import NDArray

from sinkjax.report.figures.style import COLOURS, panels, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 2.9  # inches


@dataclass(frozen=True)
class Bundle:
    """Runs of one kind. x, y: float[run, point], NaN where a run has ended. middle: x and y of the bold line, or None."""

    name: str
    x: NDArray
    y: NDArray
    middle: tuple[NDArray, NDArray] | None = None


@dataclass(frozen=True)
class Axis:
    """A panel: labels with units, runs, whether y is logarithmic, and the ends of y."""

    xlabel: str
    ylabel: str
    bundles: Sequence[Bundle]
    log: bool = False
    limits: tuple[float, float] | None = None


@styled
def curves(row: Sequence[Axis]) -> Figure:
    """Curves of runs in panels side by side, each with its own scales, with the names of all bundles in one legend."""
    figure, axes = panels(1, len(row), HEIGHT)
    names: dict[str, str] = {}
    for panel, axis in zip(axes[0], row, strict=True):
        _draw(panel, axis, names)
    for name, colour in names.items():
        axes[0, 0].plot([], [], color=colour, label=name)
    figure.legend(loc="outside upper center", ncols=4)
    return figure


def _draw(panel: Axes, axis: Axis, names: dict[str, str]) -> None:
    for bundle in axis.bundles:
        colour = names.setdefault(bundle.name, COLOURS[len(names) % len(COLOURS)])
        faint = max(0.12, min(0.6, 4 / len(bundle.y)))
        for x, line in zip(bundle.x, bundle.y, strict=True):
            panel.plot(x, line, color=colour, alpha=faint, linewidth=0.8)
        if bundle.middle is not None:
            panel.plot(*bundle.middle, color=colour, linewidth=2)
    panel.set(xlabel=axis.xlabel, ylabel=axis.ylabel, yscale="log" if axis.log else "linear")
    if axis.limits:
        panel.set_ylim(*axis.limits)
