"""Attention maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.report.figures.style import MAP, MISSING, MOST_COLUMNS, leave_empty, panels, styled, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

GAMMA = 0.5  # exponent of the colour scale
TICK = 8  # size of a token in points
NAME_WIDTH = 26  # characters of a run's name beside its maps


@styled
def maps(values: NDArray, rows: Sequence[str], layers: Sequence[int], tokens: Sequence[str]) -> Figure:
    """Attention of queries (down) to keys (across), one panel for each run and layer, on one colour scale.

    Args:
        values: float[row, layer, query, key], averaged over heads.
        rows: The names of the runs.
        layers: 0-based.
        tokens: The text of each position; as many as are to be drawn, at most the size of `values`.

    Returns:
        A matplotlib figure.
    """
    scale = _scale(values, len(tokens))
    figure, axes = panels(len(rows), len(layers), 2.75, sharex=True, sharey=True)
    for row, name in enumerate(rows):
        for column, layer in enumerate(layers):
            panel = axes[row, column]
            image = _map(panel, values[row, column], scale, tokens)
            panel.set_title(f"layer {layer}" if row == 0 else "")
        axes[row, 0].set_ylabel(wrapped(name, NAME_WIDTH), fontweight="bold")
    _name_axes(figure, axes, image)
    return figure


@styled
def by_layer(values: NDArray, layers: Sequence[int], tokens: Sequence[str]) -> Figure:
    """Attention of queries (down) to keys (across) in some layers of one run, at most three in a row, on one colour scale.

    Args:
        values: float[layer, query, key], averaged over heads.
        layers: 0-based.
        tokens: The text of each position; as many as are to be drawn.

    Returns:
        A matplotlib figure.
    """
    rows = math.ceil(len(layers) / MOST_COLUMNS)
    scale = _scale(values, len(tokens))
    figure, axes = panels(rows, math.ceil(len(layers) / rows), 2.75, sharex=True, sharey=True)
    for panel, layer, array in zip(axes.flat, layers, values, strict=False):
        image = _map(panel, array, scale, tokens)
        panel.set_title(f"layer {layer}")
    leave_empty(axes, len(layers))
    _name_axes(figure, axes, image)
    return figure


def _scale(values: NDArray, size: int) -> PowerNorm:
    """One colour scale for all maps; their first `size` positions are drawn."""
    from matplotlib.colors import PowerNorm

    causal = np.tri(size, dtype=bool)
    return PowerNorm(GAMMA, vmin=0, vmax=max(float(np.nanmax(values[..., :size, :size][..., causal])), 1.0))


def _map(panel: Axes, values: NDArray, scale: PowerNorm, tokens: Sequence[str]) -> AxesImage:
    """One map of float[query, key], with the tokens as ticks; keys that a query cannot see are grey."""
    from matplotlib import colormaps

    size, names = len(tokens), [_short(token) for token in tokens]
    shown = np.where(np.tri(size, dtype=bool), values[:size, :size], np.nan)
    image = panel.imshow(shown, norm=scale, cmap=colormaps[MAP].with_extremes(bad=MISSING), interpolation="nearest")
    panel.spines[:].set_visible(False)
    panel.set_xticks(range(size), names, rotation=90, fontsize=TICK)
    panel.set_yticks(range(size), names, fontsize=TICK)
    panel.tick_params(length=0, pad=2)
    return image


def _name_axes(figure: Figure, axes: Any, image: AxesImage) -> None:
    figure.supxlabel("key token", fontsize=10)
    figure.supylabel("query token", fontsize=10)
    bar = figure.colorbar(image, ax=axes, shrink=0.6, pad=0.02, aspect=30)
    bar.set_label("attention, mean over heads\n(square-root scale)")


def _short(token: str, length: int = 9) -> str:
    """A token as a tick: line breaks and spaces made visible, cut to `length` characters, dollars kept from mathtext."""
    text = token.replace("\n", "↵").replace(" ", "·", 1) if token.strip() == "" else token.strip()
    text = text if len(text) <= length else f"{text[: length - 1]}…"
    return text.replace("$", r"\$")
