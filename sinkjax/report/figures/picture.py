"""One prompt in one figure: who attends to the first token, the strongest layer's map, and the largest activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.report.figures.attention import short
from sinkjax.report.figures.style import COLOURS, canvas, draw_map, styled, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = 7.2, 7.0  # inches; with the letters below, legible when it is 400 pixels wide
TITLE, NAME, TICK, SMALL = 13, 11, 10, 9  # points
TITLE_WIDTH = 58  # characters
MOST_TICKS = 8  # of layers or heads
LARGE = 10  # activations from here are written without decimals
LOGARITHMIC = 30  # ratio of the largest to the smallest activation from which their axis is logarithmic


@styled
def picture(attention: NDArray, largest: NDArray, tokens: Sequence[str], title: str) -> Figure:
    """Draw the attention to the first token by layer and head, one layer's map, and the largest activation of each token.

    Args:
        attention: float[layer, head, query, key], the weights.
        largest: float[position], the largest |h| of the residual stream in any layer.
        tokens: The text of each position.
        title: The figure's title.

    Returns:
        A matplotlib figure.
    """
    from matplotlib.colors import Normalize

    to_first = attention[:, :, 1:, 0].mean(axis=-1)
    layer = int(to_first.mean(axis=1).argmax())
    figure = canvas(*SIZE)
    grid = figure.add_gridspec(2, 2, height_ratios=(1.55, 1), width_ratios=(1, 1.25))
    heads, map_, sizes = (figure.add_subplot(place) for place in (grid[0, 0], grid[0, 1], grid[1, :]))
    figure.suptitle(wrapped(title, TITLE_WIDTH), fontsize=TITLE, fontweight="bold")
    scale = Normalize(0, 1)

    draw_map(heads, to_first, scale, aspect="auto", origin="lower")
    heads.set_title("attention to the first token", fontsize=NAME)
    heads.set_xlabel("head", fontsize=NAME)
    heads.set_ylabel("layer", fontsize=NAME)
    for ticks, count in ((heads.set_xticks, to_first.shape[1]), (heads.set_yticks, to_first.shape[0])):
        ticks(np.arange(0, count, -(-count // MOST_TICKS)))
    heads.tick_params(labelsize=TICK, length=2)

    mean = np.where(np.tri(len(tokens), dtype=bool), attention[layer].mean(axis=0), np.nan)
    image = draw_map(map_, mean, scale, aspect="auto")
    map_.set_title(f"layer {layer}, mean over heads", fontsize=NAME)
    map_.set_ylabel("query", fontsize=NAME)
    map_.set_xlabel("key", fontsize=NAME)
    _name(map_, tokens, "xy")
    bar = figure.colorbar(image, ax=map_, pad=0.03, aspect=25)
    bar.set_label("attention, both maps", fontsize=TICK)
    bar.ax.tick_params(labelsize=TICK)

    top = int(largest.argmax())
    sizes.bar(range(len(tokens)), largest, color=[COLOURS[int(place == top)] for place in range(len(tokens))])
    if largest.max() > LOGARITHMIC * largest.min():
        sizes.set_yscale("log")
    sizes.set_title("largest activation of each token, any layer", fontsize=NAME)
    sizes.set_ylabel("max |h|", fontsize=NAME)
    sizes.set_xlim(-0.6, len(tokens) - 0.4)
    size = f"{largest[top]:,.0f}" if largest[top] >= LARGE else f"{largest[top]:.2g}"
    side = {0: "left", len(tokens) - 1: "right"}.get(top, "center")  # inside the panel
    edge = top + {"left": -0.4, "right": 0.4}.get(side, 0.0)
    sizes.annotate(size, (edge, largest[top]), (0, 2), textcoords="offset points", fontsize=TICK, ha=side)
    sizes.margins(y=0.12)
    _name(sizes, tokens, "x", TICK)
    sizes.tick_params(axis="y", labelsize=TICK)
    return figure


def _name(panel: Axes, tokens: Sequence[str], axes: str, size: int = SMALL) -> None:
    """Write tokens at the ticks of the axes "x" or "xy"."""
    names = [short(token) for token in tokens]
    panel.set_xticks(range(len(names)), names, rotation=90, fontsize=size)
    if "y" in axes:
        panel.set_yticks(range(len(names)), names, fontsize=size)
    panel.tick_params(axis="both" if "y" in axes else "x", length=0, pad=2)
