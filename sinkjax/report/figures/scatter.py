"""One quantity against another: one dot per head, neuron or dim."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from sinkjax.report.figures.style import form, legend_above, logarithmic, panels, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE_WIDTH = 44
HEIGHT = 3.4  # inches
DRAWN = 2000  # most dots that are elements of an SVG file
NAME = (42.0, 8.5)  # width and height of a name, in points


@dataclass(frozen=True)
class Cloud:
    """Dots of one kind.

    x, y: float[dot]. names: text next to each dot, or None. faint: small and grey, for the many.
    """

    name: str
    x: NDArray
    y: NDArray
    names: Sequence[str] | None = None
    faint: bool = False

    @property
    def pixels(self) -> bool:
        """Whether its dots are pixels in an SVG file, where each would otherwise be an element: 28 MB for a vocabulary."""
        return self.faint or len(self.x) > DRAWN


@styled
def scatter(
    columns: Mapping[str, Sequence[Cloud]],
    xlabel: str,
    ylabel: str,
    log: bool | Literal["x", "y"] = False,
    limits: tuple[tuple[float, float] | None, tuple[float, float] | None] = (None, None),
) -> Figure:
    """Draw panels side by side on the same scales.

    log: the logarithmic axes, one or both. limits: ends of x and of y, by default the dots' range.
    """
    figure, axes = panels(1, len(columns), HEIGHT, sharex=True, sharey=True)
    for panel, (title, clouds) in zip(axes[0], columns.items(), strict=True):
        bright = 0
        for cloud in clouds:
            if cloud.faint:
                style = {"color": "#999999", "marker": ".", "s": 9, "alpha": 0.45}
            else:
                style = dict(zip(("color", "marker"), form(bright), strict=True)) | {"s": 20, "alpha": 0.7}
                bright += 1
            panel.scatter(cloud.x, cloud.y, label=cloud.name, linewidths=0, rasterized=cloud.pixels, **style)
            if cloud.names:
                panel.margins(x=0.1)  # space for them
        panel.set(title=textwrap.fill(title, TITLE_WIDTH), xlabel=xlabel)
        for axis in ("x", "y"):
            if log in (True, axis):
                logarithmic(panel, axis)
        if limits[0]:
            panel.set_xlim(*limits[0])
        if limits[1]:
            panel.set_ylim(*limits[1])
        for cloud in clouds:
            _write_names(panel, cloud)
    axes[0, 0].set_ylabel(ylabel)
    if max(map(len, columns.values())) > 1:
        legend_above(figure, axes[0, 0])
    return figure


def _write_names(panel: Axes, cloud: Cloud) -> None:
    """Write names next to their dots, from bottom to top; a name whose place is taken moves up, with a line to its dot."""
    points = panel.transData.transform(np.column_stack([cloud.x, cloud.y])) * 72 / panel.figure.dpi
    written: list[tuple[float, float]] = []
    for number in np.argsort(points[:, 1]) if cloud.names else ():
        assert cloud.names
        x, y = points[number]
        up = max([0.0, *(other + NAME[1] - y for place, other in written if abs(place - x) < NAME[0])])
        written.append((x, y + up))
        at = (float(cloud.x[number]), float(cloud.y[number]))
        thread = (
            {"arrowstyle": "-", "linewidth": 0.5, "color": "#666666", "shrinkA": 0, "shrinkB": 2} if up > NAME[1] / 2 else None
        )
        panel.annotate(
            cloud.names[number], at, xytext=(5, up), textcoords="offset points", fontsize=7.5, va="center", arrowprops=thread
        )
