"""Every figure writes its texts as they are: tokens and labels may contain mathtext, control characters, or any script."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from sinkjax import plot
from sinkjax.analysis.intervals import Interval
from sinkjax.report.figures import causal, explained, frontier, grid, histogram, points, scatter

HOSTILE = ["$$", "$x$ $", "\\frac{_^%", "a_{$^$", "\x00\t中e\u0301\u202e\ud800", "$" * 60]
N = len(HOSTILE)
MAPS = np.tril(np.full((N, 2, N, N), 0.25))
SIZES = np.geomspace(1, 1e4, N)
VALUE = Interval(2, 1, 3, 8, 0, 0.95, "BCa")
LINES = [plot.Line(text, [0, 1], [VALUE, VALUE], reference=2.5, compared=text) for text in HOSTILE]

FIGURES: dict[str, Callable[[], Figure]] = {
    "activations": lambda: plot.activations(np.full((N, 3, 4), SIZES[:, None, None]), HOSTILE),
    "maps": lambda: plot.maps(MAPS, HOSTILE, [0, 1], HOSTILE),
    "by_layer": lambda: plot.by_layer(MAPS[0], [0, 1], HOSTILE),
    "causal": lambda: plot.causal(MAPS, HOSTILE, HOSTILE[1:3], HOSTILE[0], marked=1),
    "curves": lambda: plot.curves(
        [[plot.Axis(HOSTILE[1], HOSTILE[2], HOSTILE[3], [plot.Bundle(t, SIZES[None], SIZES[None]) for t in HOSTILE], "xy")]]
    ),
    "lines": lambda: plot.lines([[plot.Panel(HOSTILE[1], HOSTILE[2], LINES, log=True)]], HOSTILE[3]),
    "picture": lambda: plot.picture(MAPS[0, :, None].repeat(2, axis=1), SIZES, HOSTILE, HOSTILE[1]),
    "gallery": lambda: causal.gallery(MAPS[:, 0], HOSTILE, HOSTILE[1], marked=1),
    "dumbbells": lambda: explained.dumbbells(HOSTILE, {HOSTILE[1]: SIZES, HOSTILE[2]: -SIZES}, HOSTILE[3], HOSTILE[1]),
    "waterfall": lambda: explained.waterfall([(text, 1.0) for text in HOSTILE], 3.0, HOSTILE[1], HOSTILE[2]),
    "frontier": lambda: frontier.frontier(
        [frontier.FrontierPanel(*HOSTILE[1:4], [frontier.Curve(text, SIZES, SIZES) for text in HOSTILE], [])]
    ),
    "grids": lambda: grid.grids(
        [grid.MapColumn(HOSTILE[1], HOSTILE, HOSTILE[2])], [grid.MapRow([MAPS[0, 0]], HOSTILE[3])], HOSTILE, HOSTILE[1]
    ),
    "histogram": lambda: histogram.histogram(dict.fromkeys(HOSTILE, SIZES), dict.fromkeys(HOSTILE[:2], 3.0), *HOSTILE[1:3]),
    "points": lambda: points.points({HOSTILE[1]: [points.Mark(text, VALUE, text) for text in HOSTILE]}, HOSTILE[2], least=0.1),
    "scatter": lambda: scatter.scatter({HOSTILE[1]: [scatter.Cloud(HOSTILE[2], SIZES, SIZES, HOSTILE)]}, *HOSTILE[1:3], log=True),
}


def test_every_public_function_is_tried():
    assert {name for name in plot.__all__ if inspect.isfunction(getattr(plot, name))} <= FIGURES.keys()


@pytest.mark.filterwarnings("ignore:.*onstrained_layout")  # sixty dollars leave no room
@pytest.mark.parametrize("name", FIGURES)
def test_texts_are_drawn_as_they_are_without_a_warning(name):
    figure = FIGURES[name]()
    with io.BytesIO() as svg:
        figure.savefig(svg, format="svg", dpi=20)  # matplotlib's own, outside of the style
        assert ElementTree.fromstring(svg.getvalue()).tag.endswith("svg")


def test_powers_of_ten_stay_formulas():
    axes = FIGURES["curves"]().axes[0]
    axes.figure.savefig(io.BytesIO(), format="svg")
    ticks = [label for label in axes.get_yticklabels() if label.get_text()]
    assert ticks
    assert all(label.get_parse_math() and label.get_text().startswith("$\\mathdefault{10^{") for label in ticks)
