"""The largest activations by position and depth."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.report.figures.style import MOST_COLUMNS, draw_map, leave_empty, panels, plain_ticks, spaced_ticks, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE_WIDTH = 36  # maximum characters of a title's line above one of three columns
DECADES = 1e4  # the range of a logarithmic colour scale; smaller values share the darkest colour


@styled
def activations(values: NDArray, titles: Sequence[str], limits: tuple[float, float] | None = None, count_from: int = 0) -> Figure:
    """Draw the largest |h| by position (across) and depth (up), one panel per run, on one logarithmic colour scale.

    Args:
        values: float[run, depth, position], positive. Depth 0 is the embedding, depth l + 1 the stream after block l.
        titles: The names of the runs.
        limits: Least and largest value of the colour scale; None for those of `values`, down to DECADES below the largest.
        count_from: The number of the first layer.

    Returns:
        A matplotlib figure.
    """
    from matplotlib.colors import LogNorm

    rows = math.ceil(len(titles) / MOST_COLUMNS)
    figure, axes = panels(rows, math.ceil(len(titles) / rows), 3.2, sharex=True, sharey=True)
    scale = LogNorm(*(limits or colour_limits(values)))
    for panel, title, array in zip(axes.flat, titles, values, strict=False):
        for axis in (panel.xaxis, panel.yaxis):
            spaced_ticks(axis, integer=True)
        image = draw_map(panel, array, scale, origin="lower", aspect="auto")
        panel.set_title(textwrap.fill(title, TITLE_WIDTH), fontsize=9)
    leave_empty(axes, len(titles))
    figure.supxlabel("position", fontsize=10)
    after = "l + 1" if count_from == 0 else "l"
    figure.supylabel(f"depth (0: embedding, {after}: after layer l)", fontsize=10)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02)
    bar.set_label("largest |h|, mean over prompts (log scale)")
    plain_ticks(bar.ax.yaxis)
    return figure


def colour_limits(values: NDArray) -> tuple[float, float]:
    """Return least and largest value of a colour scale for activations of any shape."""
    largest = float(np.nanmax(values))
    return max(float(np.nanmin(values)), largest / DECADES), largest
