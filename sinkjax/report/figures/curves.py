"""Many runs of one kind: a faint line each, and one bold line for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numpy.typing import NDArray

from sinkjax.report.figures.style import COLOURS, logarithmic, panels, styled

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
    """A panel's title, labels with units, and logarithmic axes ("", "x", "y" or "xy")."""

    title: str
    xlabel: str
    ylabel: str
    bundles: Sequence[Bundle]
    log: str = ""
    limits: tuple[float, float] | None = None


@styled
def curves(grid: Sequence[Sequence[Axis]]) -> Figure:
    """Draw curves of runs in panels with separate scales and one legend for all bundles.

    Args:
        grid: The panels, [row][column].

    Returns:
        A matplotlib figure.
    """
    figure, axes = panels(len(grid), max(map(len, grid)), HEIGHT)
    names: dict[str, str] = {}
    for row, entries in enumerate(grid):
        for panel, axis in zip(axes[row], entries, strict=True):
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
    panel.set(title=axis.title, xlabel=axis.xlabel, ylabel=axis.ylabel)
    if "x" in axis.log:
        logarithmic(panel, "x")
    if "y" in axis.log:
        panel.set_yscale("log")
    if axis.limits:
        panel.set_ylim(*axis.limits)
