"""Points stand on the line of their name, in the panel of their condition."""

from __future__ import annotations

from matplotlib.figure import Figure

from sinkjax.analysis.intervals import Interval
from sinkjax.report.figures.points import Mark, points
from sinkjax.report.figures.style import render


def point(name: str, mean: float | None, kind: str = "here") -> Mark:
    return Mark(name, Interval(mean, mean, mean, 4, 0, 0.95, "BCa"), kind)


def drawn() -> Figure:
    columns = {"natural text\neps 0.3": [point("a", 70.0), point("b", 90.0, "paper")], "repeated": [point("b", 0.0, "paper")]}
    return points(columns, "heads (%)", limits=(0, 100))


def test_names_go_down_in_their_order_and_share_one_scale():
    first, second = drawn().axes
    assert [label.get_text() for label in first.get_yticklabels()] == ["a", "b"]
    assert first.get_ylim() == second.get_ylim() == (1.5, -0.5)
    assert first.get_xlim() == second.get_xlim() == (0, 100)
    assert first.get_title() == "natural text\neps 0.3"


def test_a_point_stands_on_the_line_of_its_name():
    first, second = (
        [line for line in axes.lines if line.get_linestyle() == "None" and len(line.get_xdata())] for axes in drawn().axes
    )
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in first] == [(70, 0), (90, 1)]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in second] == [(0, 1)]


def test_the_legend_names_each_kind_once():
    (legend,) = drawn().legends
    assert [text.get_text() for text in legend.get_texts()] == ["here", "paper"]


def test_a_number_that_does_not_exist_has_no_point():
    (axes,) = points({"one": [point("a", None)]}, "x").axes
    assert not [line for line in axes.lines if len(line.get_xdata())]


def test_the_same_numbers_give_the_same_file():
    assert render(drawn(), "svg") == render(drawn(), "svg")


def test_points_of_one_name_do_not_hide_each_other():
    (axes,) = points({"one": [point("a", 0.0, "key 0"), point("a", 0.0, "key 1"), point("b", 0.0, "key 0")]}, "x").axes
    heights = [line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == "None" and len(line.get_xdata())]
    assert heights[0] < 0 < heights[1] == -heights[0]
    assert heights[2] == 1


def test_many_points_of_one_name_stay_on_its_line():
    column = [point("one", float(value)) for value in range(20)] + [point("two", 3.0)]
    panel = points({"all": column}, "x").axes[0]
    heights = [line.get_ydata()[0] for line in panel.lines if len(line.get_xdata()) == 1]
    assert len(set(heights[:20])) == 20
    assert all(abs(height) < 0.5 for height in heights[:20])


def test_equal_points_of_one_name_stand_side_by_side():
    (axes,) = points({"one": [point("a", 0.0) for _ in range(4)]}, "x").axes
    places = [float(line.get_ydata()[0]) for line in axes.lines if line.get_linestyle() == "None" and len(line.get_xdata())]
    assert len(set(places)) == 4


def test_next_to_no_heads_look_like_it():
    (shares,) = points({"one": [point("a", 0.0)]}, "heads that sink (%)").axes
    (others,) = points({"one": [point("a", 0.0)]}, "loss (nats)").axes
    assert shares.get_xlim()[1] == 10
    assert others.get_xlim()[1] < 1
