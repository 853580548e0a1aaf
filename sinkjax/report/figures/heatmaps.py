"""Quantities over two axes, one small map per condition."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.report.figures.style import draw_map, panels, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT, WIDEST = 7.6, 3.0  # inches: total width of the maps, and the maximum for one
TITLE_WIDTH = 110  # characters over all maps


@styled
def signed(values: NDArray, titles: Sequence[str], labels: tuple[str, str, str]) -> Figure:
    """Draw maps of a signed quantity side by side, on one symmetric colour scale that is white at 0.

    values: float[map, y, x], NaN where there is nothing (grey). labels: for x, y and colour.
    """
    from matplotlib.colors import Normalize

    limit = float(np.nanmax(np.abs(values)))
    figure, axes = panels(1, len(titles), min(HEIGHT / len(titles), WIDEST) + 0.3, sharex=True, sharey=True)
    for panel, title, array in zip(axes[0], titles, values, strict=True):
        image = draw_map(panel, array, Normalize(-limit, limit), signed=True)
        panel.set_title(textwrap.fill(title, TITLE_WIDTH // len(titles)), fontsize=9)
    x, y, colour = labels
    axes[0, 0].set_ylabel(y)
    figure.supxlabel(x, fontsize=10)
    figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02).set_label(colour)
    return figure
