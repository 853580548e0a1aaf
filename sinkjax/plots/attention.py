"""Attention maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.plots.style import MAP, MISSING, panels, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAMMA = 0.5


@styled
def maps(values: NDArray, rows: Sequence[str], layers: Sequence[int], tokens: Sequence[str]) -> Figure:
    """Attention of queries (down) to keys (across), one panel for each arm and layer, on one colour scale.

    values: float[row, layer, query, key], averaged over heads. rows: the arms. layers: 0-based. tokens: text of each position;
    as many as are to be drawn, at most those of `values`.
    """
    from matplotlib import colormaps
    from matplotlib.colors import PowerNorm

    size = len(tokens)
    shown = np.where(np.tri(size, dtype=bool), values[..., :size, :size], np.nan)
    colours = colormaps[MAP].with_extremes(bad=MISSING)
    scale = PowerNorm(GAMMA, vmin=0, vmax=max(float(np.nanmax(shown)), 1.0))
    figure, axes = panels(len(rows), len(layers), 2.75, sharex=True, sharey=True)
    names = [_short(token) for token in tokens]
    for row, name in enumerate(rows):
        for column, layer in enumerate(layers):
            panel = axes[row, column]
            image = panel.imshow(shown[row, column], norm=scale, cmap=colours, interpolation="nearest")
            panel.set_title(f"read at layer {layer}" if row == 0 else "")
            panel.spines[:].set_visible(False)
            panel.set_xticks(range(size), names, rotation=90, fontsize=6.5)
            panel.set_yticks(range(size), names, fontsize=6.5)
            panel.tick_params(length=0, pad=2)
        axes[row, 0].set_ylabel(f"{name}\nquery token")
    figure.supxlabel("key token", fontsize=10)
    bar = figure.colorbar(image, ax=axes, shrink=0.6, pad=0.02)
    bar.set_label("attention, mean over heads (square-root scale)")
    return figure


def _short(token: str, length: int = 9) -> str:
    """A token as a tick: line breaks and spaces made visible, cut to `length` characters, dollars kept from mathtext."""
    text = token.replace("\n", "↵").replace(" ", "·", 1) if token.strip() == "" else token.strip()
    text = text if len(text) <= length else f"{text[: length - 1]}…"
    return text.replace("$", r"\$")
