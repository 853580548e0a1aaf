"""Grids of small maps over queries (down) and keys (across), on one colour scale."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.report.figures.style import WIDTH, canvas, draw_map, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

WIDEST, BAR, HEAD = 3.4, 1.0, 0.8  # inches: maximum size of a map, the colour bar, the space above and below maps
LABELS = 0.8  # inches of the maps' widths used by labels
COLUMNS, TITLE = 5, 0.36  # maps in a row of a gallery, and inches above each of them
TITLE_WIDTH = 100  # characters over all columns
MOST_TICKS = 8  # for a wide map


@styled
def causal(
    values: NDArray,
    rows: Sequence[str],
    columns: Sequence[str],
    label: str,
    marked: int | None = None,
) -> Figure:
    """Draw causal maps, one panel per row and column, on a scale from 0; keys that a query cannot see are grey.

    Args:
        values: float[row, column, query, key].
        rows: The titles of the rows.
        columns: The titles of the columns.
        label: The colours' name, with their unit.
        marked: A query whose row is marked by an arrow on each map.

    Returns:
        A matplotlib figure.
    """
    from matplotlib.colors import Normalize

    side = min((WIDTH - BAR) / len(columns), WIDEST)
    figure, axes = _panels(len(rows), len(columns), side, side - LABELS / len(columns))
    seen = values[..., np.tri(values.shape[-1], dtype=bool)]
    scale = Normalize(0, max(float(np.nanmax(seen)), np.finfo(float).tiny))
    for row, row_title in enumerate(rows):
        for column, title in enumerate(columns):
            image = _draw(axes[row, column], values[row, column], scale, side, marked)
            if row == 0:
                axes[row, column].set_title(textwrap.fill(title, TITLE_WIDTH // len(columns)))
        axes[row, 0].set_ylabel(f"{row_title}\nquery" if row_title else "query")
    for panel in axes[-1]:
        panel.set_xlabel("key")
    _bar(figure, axes, image, label)
    return figure


@styled
def gallery(values: NDArray, titles: Sequence[str], label: str, marked: int) -> Figure:
    """Draw titled causal maps, at most COLUMNS per row, on a scale from 0 to 1. values: float[map, query, key]; see `causal`."""
    from matplotlib.colors import Normalize

    columns = min(COLUMNS, len(titles))
    side = min((WIDTH - BAR) / columns, WIDEST)
    figure, axes = _panels(math.ceil(len(titles) / columns), columns, side, side - LABELS / columns + TITLE)
    for panel, title, array in zip(axes.flat, titles, values, strict=False):
        image = _draw(panel, array, Normalize(0, 1), side, marked)
        panel.set_title(textwrap.fill(title, TITLE_WIDTH // columns), fontsize=9)
    for panel in list(axes.flat)[len(titles) :]:
        panel.set_axis_off()
    figure.supylabel("query", fontsize=10)
    figure.supxlabel("key", fontsize=10)
    _bar(figure, axes, image, label)
    return figure


def _panels(rows: int, columns: int, width: float, height: float) -> tuple[Figure, Any]:
    figure = canvas(columns * width + BAR, rows * height + HEAD)
    return figure, figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)


def _draw(panel: Axes, values: NDArray, scale: Normalize, side: float, marked: int | None) -> AxesImage:
    T = len(values)
    image = draw_map(panel, np.where(np.tri(T, dtype=bool), values, np.nan), scale)
    step = math.ceil(T / (MOST_TICKS if side > WIDEST / 2 else MOST_TICKS // 2))
    panel.set(xticks=range(0, T, step), yticks=range(0, T, step))
    panel.tick_params(length=2, labelsize=8)
    if marked is not None:  # on the grey side of the map, which has no keys
        start, end = (marked + 0.7 + T / 6, marked), (marked + 0.7, marked)
        panel.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": "#D55E00", "lw": 1.6})
    return image


def _bar(figure: Figure, axes: Any, image: AxesImage, label: str) -> None:
    figure.colorbar(image, ax=axes, shrink=0.9, pad=0.02, aspect=24).set_label(label)
