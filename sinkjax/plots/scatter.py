"""One quantity against another: a dot for each head, neuron or dim."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from numpy.typing import NDArray

from sinkjax.plots.style import COLOURS, MARKERS, legend_above, logarithmic, panels, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE_WIDTH = 44
HEIGHT = 3.4  # inches


@dataclass(frozen=True)
class Cloud:
    """Dots of one kind.

    x, y: float[dot]. names: text beside each dot, or None. faint: small and grey, for the many; pixels in an SVG file.
    """

    name: str
    x: NDArray
    y: NDArray
    names: Sequence[str] | None = None
    faint: bool = False


@styled
def scatter(
    columns: Mapping[str, Sequence[Cloud]],
    xlabel: str,
    ylabel: str,
    log: bool | Literal["x", "y"] = False,
    limits: tuple[tuple[float, float], tuple[float, float]] | None = None,
) -> Figure:
    """Panels side by side on the same scales. log: whether both axes, or which one, are logarithmic. limits: of x and of y."""
    figure, axes = panels(1, len(columns), HEIGHT, sharex=True, sharey=True)
    for panel, (title, clouds) in zip(axes[0], columns.items(), strict=True):
        bright = 0
        for cloud in clouds:
            if cloud.faint:
                style = {"color": "#999999", "marker": ".", "s": 9, "alpha": 0.45}
            else:
                style = {"color": COLOURS[bright], "marker": MARKERS[bright], "s": 20, "alpha": 0.7}
                bright += 1
            panel.scatter(cloud.x, cloud.y, label=cloud.name, linewidths=0, rasterized=cloud.faint, **style)
            for x, y, name in zip(cloud.x, cloud.y, cloud.names or (), strict=False):
                panel.margins(x=0.1)  # room for names
                panel.annotate(name, (x, y), xytext=(5, 0), textcoords="offset points", fontsize=7.5, va="center")
        panel.set_title(textwrap.fill(title, TITLE_WIDTH))
        panel.set_xlabel(xlabel)
        for axis in ("x", "y"):
            if log in (True, axis):
                logarithmic(panel, axis)
        if limits:
            panel.set_xlim(*limits[0])
            panel.set_ylim(*limits[1])
    axes[0, 0].set_ylabel(ylabel)
    if max(map(len, columns.values())) > 1:
        legend_above(figure, axes[0, 0])
    return figure
