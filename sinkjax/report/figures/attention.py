"""Attention maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.report.figures.style import MOST_COLUMNS, WIDTH, draw_map, leave_empty, panels, styled, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

GAMMA = 0.5  # exponent of the colour scale
TICK, LONGEST = 8, 9  # font size of a token in points, and its maximum characters
SPACING, LETTER = 1.25, 0.095  # height of a tick in its font size, and inches of a letter of a run's name
MARGIN, TITLE = 1.6, 0.4  # inches of a figure's width without maps, and of a row's height


@styled
def maps(values: NDArray, rows: Sequence[str], layers: Sequence[int], tokens: Sequence[str], count_from: int = 0) -> Figure:
    """Draw attention of queries (down) to keys (across), one panel per run and layer, on one colour scale.

    Args:
        values: float[row, layer, query, key], averaged over heads.
        rows: The names of the runs.
        layers: Layer indices, from 0.
        tokens: The text of each position to draw, at most the size of `values`.
        count_from: The number of the first layer in titles.

    Returns:
        A matplotlib figure.
    """
    scale, side = _scale(values, len(tokens)), _side(len(layers))
    figure, axes = panels(len(rows), len(layers), side + TITLE, sharex=True, sharey=True)
    for row, name in enumerate(rows):
        for panel, layer, array in zip(axes[row], layers, values[row], strict=True):
            image = _map(panel, array, scale, tokens, side)
            panel.set_title(f"layer {layer + count_from}" if row == 0 else "")
        axes[row, 0].set_ylabel(wrapped(name, int(side / LETTER)), fontweight="bold")
    _name_axes(figure, axes, image)
    return figure


@styled
def by_layer(values: NDArray, layers: Sequence[int], tokens: Sequence[str], count_from: int = 0) -> Figure:
    """Draw attention of queries (down) to keys (across) in some layers of one run, at most three per row.

    Args:
        values: float[layer, query, key], averaged over heads.
        layers: Layer indices, from 0.
        tokens: The text of each position to draw.
        count_from: The number of the first layer in titles.

    Returns:
        A matplotlib figure.
    """
    rows = math.ceil(len(layers) / MOST_COLUMNS)
    columns = math.ceil(len(layers) / rows)
    scale, side = _scale(values, len(tokens)), _side(columns)
    figure, axes = panels(rows, columns, side + TITLE, sharex=True, sharey=True)
    for panel, layer, array in zip(axes.flat, layers, values, strict=False):
        image = _map(panel, array, scale, tokens, side)
        panel.set_title(f"layer {layer + count_from}")
    leave_empty(axes, len(layers))
    _name_axes(figure, axes, image)
    return figure


def _scale(values: NDArray, size: int) -> PowerNorm:
    """Make one colour scale for the first `size` positions of all maps."""
    from matplotlib.colors import PowerNorm

    causal = np.tri(size, dtype=bool)
    return PowerNorm(GAMMA, vmin=0, vmax=max(float(np.nanmax(values[..., :size, :size][..., causal])), 1.0))


def _side(columns: int) -> float:
    """Return the side of a map in inches, for so many in a row."""
    return min((WIDTH - MARGIN) / columns, 2.75)


def _map(panel: Axes, values: NDArray, scale: PowerNorm, tokens: Sequence[str], side: float) -> AxesImage:
    """Draw one map of float[query, key] with tokens as ticks, as many as fit; keys that a query cannot see are grey."""
    size, names = len(tokens), [short(token) for token in tokens]
    step = math.ceil(size * TICK * SPACING / 72 / side)
    image = draw_map(panel, np.where(np.tri(size, dtype=bool), values[:size, :size], np.nan), scale)
    panel.set_xticks(range(0, size, step), names[::step], rotation=90, fontsize=TICK)
    panel.set_yticks(range(0, size, step), names[::step], fontsize=TICK)
    panel.tick_params(length=0, pad=2)
    return image


def _name_axes(figure: Figure, axes: Any, image: AxesImage) -> None:
    figure.supxlabel("key token", fontsize=10)
    figure.supylabel("query token", fontsize=10)
    bar = figure.colorbar(image, ax=axes, shrink=0.6, pad=0.02, aspect=30)
    bar.set_label("attention, mean over heads\n(square-root scale)")


def short(token: str) -> str:
    """Format a token as a tick: make line breaks and spaces visible, and cut it to LONGEST characters."""
    text = token.replace("\n", "↵").replace(" ", "·", 1) if token.strip() == "" else token.strip()
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
