"""Quantities over two axes, one small map for each condition."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.report.figures.style import MISSING, leave_empty, panels, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIGNED = "RdBu_r"  # blue below zero, red above, white at it
HEIGHT, WIDEST = 7.6, 3.0  # inches: width to share among the columns, and the most that a map takes
TITLE_WIDTH = 110  # characters over all columns


@styled
def signed(
    values: NDArray, titles: Sequence[str], labels: tuple[str, str, str], columns: int = 3, limit: float | None = None
) -> Figure:
    """Maps of a quantity of either sign, on one colour scale that is white at 0 and as wide on both sides.

    values: float[map, y, x], NaN where there is nothing (grey). labels: for x, y and colour. columns: maps side by side. limit:
    the largest absolute value of the scale, by default the values' largest.
    """
    from matplotlib import colormaps

    columns = min(columns, len(titles))
    rows = math.ceil(len(titles) / columns)
    limit = float(np.nanmax(np.abs(values))) if limit is None else limit
    figure, axes = panels(rows, columns, min(HEIGHT / columns, WIDEST) + 0.3, sharex=True, sharey=True)
    colours = colormaps[SIGNED].with_extremes(bad=MISSING)
    for panel, title, array in zip(axes.flat, titles, values, strict=False):
        image = panel.imshow(array, cmap=colours, vmin=-limit, vmax=limit, interpolation="nearest")
        panel.set_title(textwrap.fill(title, TITLE_WIDTH // columns), fontsize=9)
        panel.spines[:].set_visible(False)
    leave_empty(axes, len(titles))
    x, y, colour = labels
    if rows == 1:
        axes[0, 0].set_ylabel(y)
    else:
        figure.supylabel(y, fontsize=10)
    figure.supxlabel(x, fontsize=10)
    figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02).set_label(colour)
    return figure
