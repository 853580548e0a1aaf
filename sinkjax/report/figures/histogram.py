"""How many of some things have a size: one outline for each kind, on a logarithmic scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.report.figures.style import COLOURS, legend_above, panels, plain_ticks, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS, HEIGHT = 90, 3.2  # bins along the axis; inches
DASHES = ("--", ":")


@styled
def histogram(kinds: Mapping[str, NDArray], marks: Mapping[str, float], xlabel: str, ylabel: str) -> Figure:
    """Draw how often sizes occur, with counts on a logarithmic axis, so that a single one is visible beside many.

    Args:
        kinds: Kind -> positive sizes, float[n]; kinds share their bins.
        marks: Name -> a size to compare with, drawn as a vertical line; at most two.
        xlabel: Name of the sizes.
        ylabel: Name of the counts.
    """
    from matplotlib.ticker import FuncFormatter

    figure, axes = panels(1, 1, HEIGHT)
    panel, every = axes[0, 0], np.concatenate([*kinds.values(), [*marks.values()]])
    edges = np.geomspace(every.min() * 0.9, every.max() * 1.1, BINS + 1)
    panel.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel)
    for (name, sizes), colour in zip(kinds.items(), COLOURS, strict=False):
        panel.hist(sizes, edges, histtype="stepfilled", color=colour, alpha=0.55, label=name)
    for (name, size), dash in zip(marks.items(), DASHES, strict=True):
        panel.axvline(size, color="black", linestyle=dash, linewidth=1.2, label=name)
    panel.set_ylim(0.7, None)  # a count of 1 has a height
    panel.yaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}" if count >= 1 else ""))
    plain_ticks(panel.xaxis)
    legend_above(figure, panel)
    return figure
