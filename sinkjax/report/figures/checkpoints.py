"""Measures against the training step, or next to each other for several models, with a line or points per edit."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sinkjax.report.figures.style import COLOURS, MARKERS, legend_above, panels, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sinkjax.analysis.intervals import Interval

HEIGHT, LETTERS = 3.2, 38  # inches; of a title's line
Series = Mapping[str, Sequence["Interval"]]  # condition -> its mean at each checkpoint


@styled
def checkpoints(measures: Mapping[str, Series], places: Sequence[float] | Sequence[str]) -> Figure:
    """Draw one panel per measure.

    Args:
        measures: Measure (with unit) -> condition -> means with intervals; the first condition, without an edit, is black.
        places: Steps, which are connected by lines, or names of models, which are not.
    """
    figure, axes = panels(1, len(measures), HEIGHT)
    named = isinstance(places[0], str)
    for panel, (measure, series) in zip(axes[0], measures.items(), strict=True):
        for number, (condition, means) in enumerate(series.items()):
            x = np.arange(len(places)) + 0.09 * (number - (len(series) - 1) / 2) if named else np.array(places, np.float64)
            middle = np.array([np.nan if one.mean is None else one.mean for one in means])
            ends = [(one.mean, one.mean) if one.low is None else (one.low, one.high) for one in means]
            low, high = np.array([[np.nan if end is None else end for end in pair] for pair in ends], np.float64).T
            colour = "black" if number == 0 else COLOURS[(number - 1) % (len(COLOURS) - 1)]
            style = {"color": colour, "marker": MARKERS[number % len(MARKERS)], "linestyle": "none" if named else "-"}
            panel.plot(x, middle, label=condition, **style)
            if named:
                panel.vlines(x, low, high, color=colour, linewidth=1)
            else:
                panel.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        if named:
            panel.set_xticks(range(len(places)), list(map(str, places)))
        else:
            panel.set_xlabel("step")
        panel.set_title(textwrap.fill(measure, LETTERS), loc="left")
    legend_above(figure, axes[0, 0])
    return figure
