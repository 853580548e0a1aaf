"""Dots stand where their numbers are, on scales that panels share, and logarithmic axes have plain ticks."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.text import Text

from sinkjax.analysis.intervals import Interval
from sinkjax.report.figures import lines
from sinkjax.report.figures.scatter import Cloud, scatter
from sinkjax.report.figures.style import render

X, Y = np.array([0.01, 0.5, 20.0]), np.array([1.0, 30.0, 3.0])


def drawn(log: bool = True) -> Figure:
    clouds = [Cloud("the many", X, Y, faint=True), Cloud("few", X[:2], Y[:2], names=["a", "b"])]
    return scatter({"one": clouds, "other": clouds[:1]}, "width (m)", "height (m)", log)


def test_dots_stand_at_their_numbers_and_bear_their_names():
    first, second = drawn().axes
    many, few = first.collections
    np.testing.assert_array_equal(many.get_offsets(), np.stack([X, Y], axis=1))
    np.testing.assert_array_equal(few.get_offsets(), np.stack([X, Y], axis=1)[:2])
    assert [text.get_text() for text in first.texts] == ["a", "b"]
    assert first.get_xlim() == second.get_xlim()
    assert first.get_ylim() == second.get_ylim()
    assert (first.get_xlabel(), first.get_ylabel()) == ("width (m)", "height (m)")


def test_the_many_are_pixels_in_a_vector_file():
    faint, few = drawn().axes[0].collections
    (vocabulary,) = scatter({"": [Cloud("unused rows", *np.ones((2, 100_000)))]}, "x", "y").axes[0].collections
    assert faint.get_rasterized()
    assert vocabulary.get_rasterized()
    assert not few.get_rasterized()


def test_any_number_of_kinds_is_drawn():
    clouds = [Cloud(str(number), X, Y) for number in range(9)]
    assert len(scatter({"": clouds}, "x", "y").axes[0].collections) == 9


def test_one_kind_needs_no_legend():
    assert len(drawn().legends) == 1
    assert not scatter({"": [Cloud("all", X, Y)]}, "x", "y").legends


def test_logarithmic_axes_have_plain_ticks():
    figure = drawn()
    render(figure, "svg")
    ticks = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert {"0.01", "0.5", "20"} <= set(ticks)
    assert figure.axes[0].get_xscale() == figure.axes[0].get_yscale() == "log"


def test_lines_over_a_logarithmic_x():
    values = [Interval(value, value, value, 4, 0, 0.95, "BCa") for value in (1.0, 2.0)]
    (axes,) = lines.lines([[lines.Panel("", "y", [lines.Line("a", [1, 50], values)])]], "x", log_x=True).axes
    assert axes.get_xscale() == "log"
    assert axes.get_yscale() == "linear"


def test_the_same_numbers_give_the_same_file():
    assert render(drawn(), "svg") == render(drawn(), "svg")


def test_names_of_near_dots_do_not_cover_each_other():
    near = Cloud("few", np.array([1.0, 1.001, 1.002, 5.0]), np.array([1.0, 1.001, 1.002, 5.0]), names=list("abcd"))
    figure = scatter({"": [near]}, "x", "y")
    render(figure, "png")
    boxes = [Text.get_window_extent(text) for text in figure.axes[0].texts]
    assert not any(one.overlaps(other) for number, one in enumerate(boxes) for other in boxes[:number])
    assert [bool(text.arrow_patch) for text in figure.axes[0].texts] == [False, True, True, False]
