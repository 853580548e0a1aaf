"""One prompt in one figure: who attends to the first token, the strongest layer's map, and the largest activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.report.figures.heatmaps import short
from sinkjax.report.figures.style import COLOURS, canvas, draw_map, spaced_ticks, styled, wrapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE = 7.2, 7.0  # inches; with the letters below, legible when it is 400 pixels wide
LETTERS: Any = {"axes.titlesize": 11, "axes.labelsize": 11, "xtick.labelsize": 10, "ytick.labelsize": 10}  # points
LARGE = 10  # activations from here are written without decimals
LOGARITHMIC = 30  # ratio of the largest to the smallest activation from which their axis is logarithmic


@styled
def picture(attention: NDArray[Any], largest: NDArray[Any], tokens: Sequence[str], title: str) -> Figure:
    """Draw the attention to the first token by layer and head, one layer's map, and the largest activation of each token.

    Args:
        attention: float[layer, head, query, key], the weights.
        largest: float[position], the largest |h| of the residual stream in any layer.
        tokens: The text of each position.
        title: The figure's title.

    Returns:
        A matplotlib figure.
    """
    from matplotlib import rc_context
    from matplotlib.colors import Normalize

    to_first = attention[:, :, 1:, 0].mean(axis=-1)
    layer = int(to_first.mean(axis=1).argmax())
    mean = np.where(np.tri(len(tokens), dtype=bool), attention[layer].mean(axis=0), np.nan)
    figure, names, scale = canvas(*SIZE), [short(token) for token in tokens], Normalize(0, 1)
    with rc_context(LETTERS):
        grid = figure.add_gridspec(2, 2, height_ratios=(1.55, 1), width_ratios=(1, 1.25))
        heads, map_, sizes = (figure.add_subplot(place) for place in (grid[0, 0], grid[0, 1], grid[1, :]))
        figure.suptitle(wrapped(title, 58), fontsize=13, fontweight="bold")
        draw_map(heads, to_first, scale, aspect="auto", origin="lower")
        heads.set(title="attention to the first token", xlabel="head", ylabel="layer")
        for axis in (heads.xaxis, heads.yaxis):
            spaced_ticks(axis, 8, integer=True)
        heads.tick_params(length=2)
        image = draw_map(map_, mean, scale, aspect="auto")
        map_.set(title=f"layer {layer}, mean over heads", xlabel="key", ylabel="query")
        map_.set_yticks(range(len(names)), names, fontsize=9)
        figure.colorbar(image, ax=map_, pad=0.03, aspect=25).set_label("attention, both maps", fontsize=10)

        top = int(largest.argmax())
        sizes.bar(range(len(names)), largest, color=[COLOURS[int(place == top)] for place in range(len(names))])
        if largest.max() > LOGARITHMIC * largest.min():
            sizes.set_yscale("log")
        sizes.set(title="largest activation of each token, any layer", ylabel="max |h|", xlim=(-0.6, len(names) - 0.4))
        size = f"{largest[top]:,.0f}" if largest[top] >= LARGE else f"{largest[top]:.2g}"
        side, edge = {0: ("left", -0.4), len(names) - 1: ("right", top + 0.4)}.get(top, ("center", top))  # inside the panel
        sizes.annotate(size, (edge, largest[top]), (0, 2), textcoords="offset points", fontsize=10, ha=side)
        sizes.margins(y=0.12)
        for panel, points in ((map_, 9), (sizes, 10)):
            panel.set_xticks(range(len(names)), names, rotation=90, fontsize=points)
            panel.tick_params(axis="both" if panel is map_ else "x", length=0, pad=2)
    return figure
