"""Figures need no display and no global state, and their panels can be compared."""

from __future__ import annotations

import os
import subprocess
import sys
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from sinkjax.analysis.intervals import Interval
from sinkjax.report.figures import activations as activation_maps
from sinkjax.report.figures import attention, grid
from sinkjax.report.figures.lines import Line, Panel, lines
from sinkjax.report.figures.style import render


def point(mean: float) -> Interval:
    return Interval(mean, mean - 1, mean + 1, 8, 0, 0.95, "BCa")


def maps(size: int = 4) -> Figure:
    values = np.tril(np.full((2, 3, size, size), 0.25))
    values[1, 2, 3, 0] = 0.9
    return attention.maps(values, ["no edit", "masked"], [0, 4, 9], ["The", " cat", "\n", "$x$"])


def line_panels() -> Figure:
    def panel(height: float, log: bool) -> Panel:
        series = Line("key 0", [0, 1, 2], [point(height), point(2 * height), point(height)], reference=height)
        return Panel("one layer", "share (%)", [series], log)

    return lines([[panel(10, False), panel(40, False)], [panel(100, True), panel(9000, True)]], "edited layer")


def received() -> Figure:
    columns = [grid.MapColumn(title, list("abc"), "edited layer") for title in ("one layer", "layers 0 to l")]
    rows = [grid.MapRow([np.full((3, 5), 0.1 + key), np.full((3, 5), 0.2)], "share", (0, 1)) for key in (0, 0.5)]
    return grid.grids(columns, rows, list("vwxyz"), "layer")


def activations(count: int = 4) -> Figure:
    values = np.geomspace(1, 1e4, count * 6 * 5).reshape(count, 6, 5)
    return activation_maps.activations(values, [f"arm {number}" for number in range(count)])


def by_layer() -> Figure:
    return attention.by_layer(np.tril(np.full((4, 4, 4), 0.25)), [0, 1, 2, 5], ["The", " cat", "\n", "$x$"])


def signed() -> Figure:
    values = np.where(np.tri(4, dtype=bool), np.linspace(-1, 3, 16).reshape(4, 4), np.nan)
    columns = [grid.MapColumn(title, list("abcd"), "j") for title in ("one", "two", "three")]
    row = grid.MapRow([values, -values / 2, values], "score", (-3, 3), signed=True)
    return grid.grids(columns, [row], list("abcd"), "i")


FIGURES = (maps, line_panels, received, activations, by_layer, signed)


def images(figure: Figure) -> list:
    return [image for axes in figure.axes for image in axes.get_images()]


@pytest.mark.parametrize("draw", FIGURES)
def test_a_figure_is_drawn_as_svg_and_png(draw):
    figure = draw()
    assert ElementTree.fromstring(render(figure, "svg")).tag.endswith("svg")
    assert render(figure, "png").startswith(b"\x89PNG")


@pytest.mark.parametrize("draw", FIGURES)
def test_the_same_numbers_give_the_same_file(draw):
    assert render(draw(), "svg") == render(draw(), "svg")


@pytest.mark.parametrize("draw", [maps, received, activations])
def test_all_panels_share_one_colour_scale(draw):
    figure = draw()
    assert len(images(figure)) >= 4
    assert len({(image.norm.vmin, image.norm.vmax) for image in images(figure)}) == 1


def test_depths_and_positions_are_whole_numbers():
    """Two layers and three positions leave room for ticks at halves."""
    panels = [axes for axes in activation_maps.activations(np.ones((1, 3, 3)), ["arm"]).axes if axes.images]
    ticks = [tick for panel in panels for tick in (*panel.get_xticks(), *panel.get_yticks())]
    assert ticks == [round(tick) for tick in ticks] != []


def test_the_panels_of_a_row_share_their_y_axis():
    axes = line_panels().axes
    assert axes[0].get_ylim() == axes[1].get_ylim() != axes[2].get_ylim() == axes[3].get_ylim()
    assert [panel.get_yscale() for panel in axes] == ["linear", "linear", "log", "log"]


def test_keys_that_a_query_cannot_see_are_no_zeros():
    shown = images(maps())[0].get_array()
    np.testing.assert_array_equal(np.ma.getmaskarray(shown), ~np.tri(4, dtype=bool))


def test_queries_go_down_and_keys_across():
    shown = images(maps())[5].get_array()
    assert shown[3, 0] == 0.9


def test_tokens_are_written_out_with_invisible_ones_made_visible():
    labels = [label.get_text() for label in maps().axes[0].get_yticklabels()]
    assert labels == ["The", "cat", "↵", "$x$"]  # which a figure draws as it is


def test_layers_go_up_and_edited_layers_across():
    values = np.arange(15.0).reshape(3, 5) / 20
    column, row = grid.MapColumn("one layer", list("abc"), "edited layer"), grid.MapRow([values], "share", (0, 1))
    shown = images(grid.grids([column], [row], list("vwxyz"), "layer"))[0]
    assert shown.origin == "lower"
    np.testing.assert_array_equal(shown.get_array(), values.T)


@pytest.mark.parametrize(("count", "panels"), [(1, 1), (4, 4), (5, 6), (9, 9)])
def test_every_arm_has_a_panel(count, panels):
    titles = [axes.get_title() for axes in activations(count).axes if axes.get_title()]
    assert titles == [f"arm {number}" for number in range(count)]
    assert len(activations(count).axes) == panels + 1


def test_the_lowest_panel_of_each_column_has_ticks():
    named = [any(tick.label1.get_visible() for tick in axes.xaxis.get_major_ticks()) for axes in activations(5).axes[:5]]
    assert named == [False, False, True, True, True]


@pytest.mark.parametrize("draw", FIGURES)
def test_the_settings_of_the_user_neither_matter_nor_change(draw):
    plain = render(draw(), "svg")
    with matplotlib.rc_context({"font.size": 31, "axes.facecolor": "red", "image.cmap": "jet"}):
        assert render(draw(), "svg") == plain
        assert matplotlib.rcParams["font.size"] == 31


def test_no_display_and_no_pyplot_are_needed():
    script = (
        "import sys, numpy as np\n"
        "from sinkjax.report.figures.activations import activations\n"
        "from sinkjax.report.figures.style import render\n"
        "render(activations(np.ones((1, 2, 3)), ['arm']), 'png')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY", "MPLBACKEND")}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)


def test_one_legend_can_stand_above_all_panels():
    panel = Panel("one layer", "share (%)", [Line("key 0", [0, 1], [point(2), point(3)])])
    figure = lines([[panel, panel]], "layer", "above")
    assert [[text.get_text() for text in legend.get_texts()] for legend in figure.legends] == [["key 0"]]
    assert not any(axes.get_legend() for axes in figure.axes)


def test_rows_of_panels_may_have_different_widths():
    panel = Panel("one layer", "share (%)", [Line("key 0", [0, 1], [point(2), point(3)])])
    for widths in ((1, 2), (2, 1)):
        figure = lines([[panel] * width for width in widths], "layer")
        empty = [not axes.axison for axes in figure.axes]
        assert empty == ([False, True, False, False] if widths == (1, 2) else [False, False, False, True])
        assert [axes.get_xlabel() for axes in figure.axes if axes.axison].count("layer") == 2
        render(figure, "png")


def test_no_panel_of_a_row_cuts_what_another_needs():
    def panel(height: float) -> Panel:
        return Panel("", "", [Line("key 0", [0, 1], [point(height), point(height)])])

    low, high = lines([[panel(10), panel(90)]], "layer").axes
    assert low.get_ylim() == high.get_ylim()
    assert low.get_ylim()[0] == 0 < 91 < low.get_ylim()[1]


def test_a_signed_panel_shows_what_lies_below_zero():
    line = Line("gap", [0, 1], [point(-4), point(3)])
    signed, plain = (lines([[Panel("", "", [line], signed=sign)]], "layer").axes[0] for sign in (True, False))
    assert signed.get_ylim()[0] < -4
    assert plain.get_ylim()[0] == 0


def test_maps_of_signed_numbers_are_white_at_0_on_one_scale():
    drawn = images(signed())
    assert len(drawn) == 3
    assert {image.get_clim() for image in drawn} == {(-3.0, 3.0)}


def test_layers_of_one_run_share_one_scale_and_fill_rows_of_three():
    figure = by_layer()
    assert {image.get_clim() for image in images(figure)} == {(0.0, 1.0)}
    assert [axes.get_title() for axes in figure.axes[:4]] == ["layer 0", "layer 1", "layer 2", "layer 5"]


def test_a_panel_reaches_the_top_that_it_is_given():
    line = Line("key 0", [0, 1], [point(0), point(0)])
    figure = lines([[Panel("", "share (%)", [line], top=10.0), Panel("", "share (%)", [line])]], "layer")
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim() == (0, 10)


@pytest.mark.parametrize(("high", "plain"), [(5000, True), (500_000, False)])
def test_a_short_logarithmic_axis_has_plain_numbers(high, plain):
    panel = Panel("", "largest |h|", [Line("key 0", [0, 1], [point(900), point(high)])], log=True)
    (axes,) = lines([[panel]], "layer").axes
    labels = [label for label in (tick.get_text() for tick in axes.get_yticklabels()) if label]
    assert all(label.replace(",", "").isdigit() for label in labels) == plain


def test_next_to_no_difference_looks_like_it():
    def limits(label: str, log: bool) -> tuple[float, float]:
        panel = Panel("", label, [Line("key 0", [0, 1], [point(5), point(5.2)])], log=log)
        return lines([[panel]], "layer").axes[0].get_ylim()

    low, high = limits("largest |h|", True)
    assert high / low == pytest.approx(10)
    assert limits("heads that sink (%)", False)[1] == 10
    assert limits("loss (nats)", False)[1] < 7


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (["key 0", "key t", "GPT2-XL, key 0", "GPT2-XL, key t"], 4),
        ([f"without neuron {number} of it" for number in range(5)], 3),
        ([f"away from the mean over prompts and positions {number}" for number in range(5)], 2),
        (["one line " * 10], 1),
    ],
)
def test_a_legend_above_has_as_many_columns_as_the_figure_is_wide(names, columns):
    shown = [Line(name, [0, 1], [point(2), point(3)]) for name in names]
    figure = lines([[Panel("", "", shown)]], "layer", "above")
    (legend,) = figure.legends
    assert legend._ncols == columns
    render(figure, "png")
    drawn = legend.get_window_extent()
    assert figure.bbox.x0 <= drawn.x0 <= drawn.x1 <= figure.bbox.x1


def test_an_interval_that_reaches_to_zero_does_not_fill_a_logarithmic_axis():
    wide = Interval(500, 1e-3, 2000, 8, 0, 0.95, "BCa")
    panel = Panel("", "largest |h|", [Line("key 0", [0, 1], [wide, point(9000)])], log=True)
    figure = lines([[panel]], "layer")
    assert figure.axes[0].get_ylim()[0] == pytest.approx(250)
