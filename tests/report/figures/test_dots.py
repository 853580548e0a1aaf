"""Dots stand where their numbers are, on the line of their name, and explanations show the numbers they are given."""

from __future__ import annotations

import numpy as np
import pytest
import xarray
from matplotlib.figure import Figure

from sinkjax import SinkjaxError, draw_attribution, draw_parts
from sinkjax.analysis.intervals import Interval
from sinkjax.report.figures.dots import Cloud, Mark, points, scatter
from sinkjax.report.figures.style import render

X, Y = np.array([0.01, 0.5, 20.0]), np.array([1.0, 30.0, 3.0])


def clouds() -> Figure:
    both = [Cloud("the many", X, Y, faint=True), Cloud("few", X[:2], Y[:2], names=["a", "b"])]
    return scatter({"one": both, "other": both[:1]}, "width (m)", "height (m)", True)


def test_dots_stand_at_their_numbers_and_bear_their_names():
    figure = clouds()
    first, second = figure.axes
    many, few = first.collections
    np.testing.assert_array_equal(many.get_offsets(), np.stack([X, Y], axis=1))
    np.testing.assert_array_equal(few.get_offsets(), np.stack([X, Y], axis=1)[:2])
    assert [text.get_text() for text in first.texts] == ["a", "b"]
    assert (first.get_xlim(), first.get_ylim()) == (second.get_xlim(), second.get_ylim())
    render(figure, "svg")
    assert {"0.01", "0.5", "20"} <= {label.get_text() for label in first.get_xticklabels()}
    assert (many.get_rasterized(), few.get_rasterized()) == (True, False)  # as elements, many dots make a file of megabytes
    (vocabulary,) = scatter({"": [Cloud("unused rows", *np.ones((2, 100_000)))]}, "x", "y").axes[0].collections
    assert vocabulary.get_rasterized()


def mark(name: str, mean: float | None, kind: str = "here") -> Mark:
    return Mark(name, Interval(mean, mean, mean, 4, 0, 0.95, "BCa"), kind)


def places(axes) -> list[tuple[float, float]]:
    drawn = [line for line in axes.lines if line.get_linestyle() == "None" and len(line.get_xdata())]
    return [(line.get_xdata()[0], line.get_ydata()[0]) for line in drawn]


def test_a_point_stands_on_the_line_of_its_name():
    columns = {
        "natural text": [mark("a", 70.0), mark("b", 90.0, "paper")],
        "repeated": [mark("b", 0.0, "paper"), mark("a", None)],
    }
    figure = points(columns, "heads (%)", limits=(0, 100))
    first, second = figure.axes
    assert [label.get_text() for label in first.get_yticklabels()] == ["a", "b"]
    assert first.get_ylim() == second.get_ylim() == (1.5, -0.5)
    assert (places(first), places(second)) == ([(70, 0), (90, 1)], [(0, 1)])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["here", "paper"]


def test_points_of_one_name_do_not_hide_each_other_and_stay_near_its_line():
    heights = [height for _, height in places(points({"": [mark("a", 0.0)] * 20 + [mark("b", 3.0)]}, "x").axes[0])]
    assert len(set(heights)) == 21
    assert max(map(abs, heights[:20])) < 0.5
    assert heights[20] == 1
    assert points({"": [mark("a", 0.0)]}, "heads that sink (%)").axes[0].get_xlim()[1] == 10  # nearly none look like it


NODES = ["attention 0", "MLP 0", "attention 1", "MLP 1"]


def attribution(checked: int = 4) -> xarray.Dataset:
    estimate = np.array([[0.1, 0.3], [0.0, 0.0], [-0.1, -0.1], [0.2, 0.2]])
    exact = np.array([[0.2, 0.2], [-0.5, -0.3], [-0.1, -0.1], [0.5, 0.5]])
    exact[checked:] = np.nan
    variables = {name: (("node", "prompt"), array) for name, array in {"estimate": estimate, "exact": exact}.items()}
    return xarray.Dataset(variables, {"node": NODES}, {"method": "first-order", "steps": 1, "spearman": 0.4, "pearson": -0.2})


def test_the_largest_checked_nodes_have_their_means_beside_each_other():
    (axes,) = draw_attribution(attribution(), names=2).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["MLP 1", "MLP 0"]
    shown = {line.get_label(): line.get_xdata() for line in axes.lines if not line.get_label().startswith("_")}
    assert list(shown) == ["exact effect", "first-order estimate"]
    np.testing.assert_allclose([*shown.values()], [[0.5, -0.4], [0.2, 0]])
    assert axes.get_title() == "all 4 nodes: Spearman 0.40, Pearson -0.20"
    found = attribution(checked=3).assign_attrs(method="integrated", steps=16, completeness_gap=0.0123)
    (axes,) = draw_attribution(found).axes
    assert axes.get_title() == "all 3 nodes: Spearman 0.40, Pearson -0.20, completeness gap 1.2%"


def score() -> xarray.Dataset:
    contribution = np.array([[[[1.0, -4.0, 0.5, 0.1]]], [[[3.0, -2.0, 0.5, 0.3]]]])
    axes = ("prompt", "layer", "head")
    parts = {"part": ["embedding", "head 0.0", "MLP 0", "bias"], "layer": [5], "head": [2], "prompt": [0, 1]}
    return xarray.Dataset({"contribution": ((*axes, "part"), contribution), "score": (axes, contribution.sum(-1))}, parts)


def test_a_waterfall_goes_from_0_to_the_whole():
    axes = draw_parts(score(), layer=5, head=2, count=2).axes[0]
    bars = [(bar.get_x(), bar.get_width()) for bar in axes.patches]
    np.testing.assert_allclose(bars, [(0, 2), (2, -3), (-1, 0.7), (0, -0.3)], atol=1e-12)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["embedding", "head 0.0", "2 others", "whole"]
    one = draw_parts(score(), layer=5, head=2, prompt=1, count=4).axes[0]
    np.testing.assert_allclose([bar.get_width() for bar in one.patches], [3, -2, 0.5, 0.3, 1.8])


def test_anything_else_is_refused():
    for draw in (draw_attribution, draw_parts):
        with pytest.raises(SinkjaxError, match=f"{draw.__name__} takes"):
            draw(xarray.Dataset({"nll": ("prompt", [1.0])}))
    with pytest.raises(SinkjaxError, match=r"no node .*checked"):
        draw_attribution(attribution(checked=0))
    with pytest.raises(SinkjaxError, match=r"layer None; .* 5"):
        draw_parts(score())
