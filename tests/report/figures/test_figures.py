"""Figures need no display and no global state, draw every text as it is, and show their numbers where their names say."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from sinkjax import plot
from sinkjax.analysis.intervals import Interval
from sinkjax.plot import Line, Panel, lines
from sinkjax.report.figures import dots, heatmaps
from sinkjax.report.figures import lines as line_figures
from sinkjax.report.figures.style import render

HOSTILE = ["$$", "$x$ $", "\\frac{_^%", "a_{$^$", "\x00\t中e\u0301\u202e\ud800", "$" * 60]
N = len(HOSTILE)
MAPS = np.tril(np.full((N, 2, N, N), 0.25))
SIZES = np.geomspace(1, 1e4, N)


def point(mean: float, spread: float = 1) -> Interval:
    return Interval(mean, mean - spread, mean + spread, 8, 0, 0.95, "BCa")


LINES = [Line(text, [0, 1], [point(2), point(2)], reference=2.5, compared=text) for text in HOSTILE]
BUNDLES = [
    plot.Bundle(text, SIZES[None], SIZES[None], kind=kind)
    for text, kind in zip(HOSTILE, 2 * ["runs", "line", "dots"], strict=True)
]
FIGURES: dict[str, Callable[[], Figure]] = {
    "activations": lambda: plot.activations(np.full((N, 3, 4), SIZES[:, None, None]), HOSTILE),
    "maps": lambda: plot.maps(MAPS, HOSTILE, [0, 1], HOSTILE),
    "by_layer": lambda: plot.by_layer(MAPS[0], [0, 1], HOSTILE),
    "causal": lambda: plot.causal(MAPS, HOSTILE, HOSTILE[1:3], HOSTILE[0], marked=1),
    "curves": lambda: plot.curves([[plot.Axis(*HOSTILE[1:4], BUNDLES, "xy")]]),
    "lines": lambda: lines([[Panel(HOSTILE[1], HOSTILE[2], LINES, log=True)]], HOSTILE[3]),
    "picture": lambda: plot.picture(MAPS[0, :, None].repeat(2, axis=1), SIZES, HOSTILE, HOSTILE[1]),
    "gallery": lambda: heatmaps.gallery(MAPS[:, 0], HOSTILE, HOSTILE[1], marked=1),
    "grids": lambda: heatmaps.grids(
        [heatmaps.MapColumn(HOSTILE[1], HOSTILE, HOSTILE[2])], [heatmaps.MapRow([MAPS[0, 0]], HOSTILE[3])], HOSTILE, HOSTILE[1]
    ),
    "heads": lambda: heatmaps.heads(MAPS[0, 0], *HOSTILE[1:3]),
    "dumbbells": lambda: dots.dumbbells(HOSTILE, {HOSTILE[1]: SIZES, HOSTILE[2]: -SIZES}, HOSTILE[3], HOSTILE[1]),
    "waterfall": lambda: dots.waterfall([(text, 1.0) for text in HOSTILE], 3.0, *HOSTILE[1:3]),
    "histogram": lambda: line_figures.histogram(dict.fromkeys(HOSTILE, SIZES), dict.fromkeys(HOSTILE[:2], 3.0), *HOSTILE[1:3]),
    "points": lambda: dots.points({HOSTILE[1]: [dots.Mark(text, point(2), text) for text in HOSTILE]}, HOSTILE[2], least=0.1),
    "scatter": lambda: dots.scatter({HOSTILE[1]: [dots.Cloud(HOSTILE[2], SIZES, SIZES, HOSTILE)]}, *HOSTILE[1:3], log=True),
}


@pytest.mark.filterwarnings("ignore:.*onstrained_layout")  # sixty dollars leave no room
@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_the_same_file_whatever_its_texts_and_the_settings_of_the_user(name):
    assert {public for public in plot.__all__ if inspect.isfunction(getattr(plot, public))} <= FIGURES.keys()
    plain = render(FIGURES[name](), "svg")
    assert ElementTree.fromstring(plain).tag.endswith("svg")
    with matplotlib.rc_context({"font.size": 31, "axes.facecolor": "red", "image.cmap": "jet"}):
        assert render(FIGURES[name](), "svg") == plain
        assert matplotlib.rcParams["font.size"] == 31
    assert render(FIGURES[name](), "png").startswith(b"\x89PNG")


def test_no_display_and_no_pyplot_are_needed():
    script = (
        "import sys, numpy as np\n"
        "from sinkjax.plot import activations\n"
        "from sinkjax.report.figures.style import render\n"
        "render(activations(np.ones((1, 2, 3)), ['arm']), 'png')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY", "MPLBACKEND")}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)


# Heat maps


def maps(size: int = 4) -> Figure:
    values = np.tril(np.full((2, 3, size, size), 0.25))
    values[1, 2, 3, 0] = 0.9
    return plot.maps(values, ["no edit", "masked"], [0, 4, 9], ["The", " cat", "\n", "$x$"])


def images(figure: Figure) -> list:
    return [image for axes in figure.axes for image in axes.get_images()]


def test_queries_go_down_keys_across_and_unseen_keys_are_no_zeros():
    shown = images(maps())
    assert shown[5].get_array()[3, 0] == 0.9
    assert shown[5].origin == "upper"
    np.testing.assert_array_equal(np.ma.getmaskarray(shown[0].get_array()), ~np.tri(4, dtype=bool))
    assert {image.get_clim() for image in shown} == {(0.0, 1.0)}
    assert [label.get_text() for label in maps().axes[0].get_yticklabels()] == ["The", "cat", "↵", "$x$"]


@pytest.mark.parametrize("count", [1, 4, 5, 9])
def test_every_run_has_a_panel_on_one_scale_and_the_lowest_panels_have_ticks(count):
    values = np.geomspace(1, 1e4, count * 6 * 5).reshape(count, 6, 5)
    figure = plot.activations(values, [f"arm {number}" for number in range(count)])
    panels = [axes for axes in figure.axes if axes.get_images()]
    assert [axes.get_title() for axes in panels] == [f"arm {number}" for number in range(count)]
    assert {image.get_clim() for image in images(figure)} == {(1.0, 1e4)}
    for panel, array in zip(panels, values, strict=True):
        np.testing.assert_array_equal(panel.get_images()[0].get_array(), array)
        assert panel.get_images()[0].origin == "lower"
        assert all(tick == round(tick) for tick in (*panel.get_xticks(), *panel.get_yticks()))
    named = [any(tick.label1.get_visible() for tick in axes.xaxis.get_major_ticks()) for axes in panels]
    columns = -(-count // -(-count // 3))
    assert named == [place >= count - columns for place in range(count)]


WIDE, NARROW = np.linspace(0, 30, 60).reshape(20, 3), np.array([[50.0, np.nan, 70.0], [1.0, 2.0, 3.0]])


def two_choices(limits: tuple[float, float] | None = None) -> Figure:
    columns = [
        heatmaps.MapColumn("in one layer", [str(number) for number in range(20)], "edited layer"),
        heatmaps.MapColumn("in several", ["none", "all layers"], "edited layers"),
    ]
    rows = [
        heatmaps.MapRow([WIDE, NARROW], "share (%)", limits=limits),
        heatmaps.MapRow([10 ** (WIDE / 10), 10 ** (NARROW / 20)], "largest |h|", log=True),
    ]
    return heatmaps.grids(columns, rows, ["1", "4", "9"], "position")


def test_cells_are_where_their_names_say_and_a_row_shares_one_scale():
    for limits, ends in ((None, (0, 70)), ((0, 100), (0, 100))):
        assert [image.get_clim() for image in images(two_choices(limits))[:2]] == [ends, ends]
    drawn = two_choices()
    shown = images(drawn)[1]
    assert shown.origin == "lower"
    np.testing.assert_array_equal(np.ma.getmaskarray(shown.get_array()), np.isnan(NARROW.T))
    assert shown.get_array()[2, 0] == 70
    assert images(drawn)[3].norm.vmax == pytest.approx(10**3.5)
    ticks = [[tick.get_text() for tick in labels] for axes in drawn.axes for labels in (axes.get_xticklabels(),)]
    assert ticks[2:4] == [[str(number) for number in range(0, 20, 2)], ["none", "all layers"]]
    assert [tick.get_text() for tick in drawn.axes[0].get_yticklabels()] == ["1", "4", "9"]
    widths = drawn.axes[0].get_subplotspec().get_gridspec().get_width_ratios()
    assert widths[0] > 3 * widths[1]


# Lines


def panel(height: float, log: bool = False) -> Panel:
    return Panel("one layer", "share (%)", [Line("key 0", [0, 1, 2], [point(height)] * 3, reference=height)], log)


def test_the_panels_of_a_row_share_their_y_axis_and_cut_nothing():
    axes = lines([[panel(10), panel(90)], [panel(100, True), panel(9000, True)]], "layer").axes
    assert axes[0].get_ylim() == axes[1].get_ylim() != axes[2].get_ylim() == axes[3].get_ylim()
    assert axes[0].get_ylim()[0] == 0 < 91 < axes[0].get_ylim()[1]
    assert [drawn.get_yscale() for drawn in axes] == ["linear", "linear", "log", "log"]
    low, _, mean = axes[1].collections[0].get_paths()[0].vertices[:, 1].min(), None, axes[1].lines[0].get_ydata()
    assert (low, mean.tolist()) == (89, [90, 90, 90])


@pytest.mark.parametrize("widths", [(1, 2), (2, 1)])
def test_rows_of_panels_may_have_different_widths(widths):
    figure = lines([[panel(2)] * width for width in widths], "layer")
    assert [place for place, axes in enumerate(figure.axes) if not axes.axison] == [1 if widths == (1, 2) else 3]
    assert [axes.get_xlabel() for axes in figure.axes if axes.axison].count("layer") == 2
    render(figure, "png")


def test_an_axis_shows_what_lies_below_zero_only_if_signed_and_its_top_if_given():
    line = Line("gap", [0, 1], [point(-4), point(3)])
    signed, plain, topped, shares = (
        lines([[made]], "layer").axes[0].get_ylim()
        for made in (
            Panel("", "", [line], signed=True),
            Panel("", "", [line]),
            Panel("", "", [line], top=50.0),
            Panel("", "heads that sink (%)", [line]),
        )
    )
    assert signed[0] < -4
    assert plain[0] == 0
    assert (topped[1], shares[1]) == (50, 10)


@pytest.mark.parametrize(("ends", "low", "ratio"), [((5, 5.2), None, 10), ((500, 9000), 250, None)])
def test_a_logarithmic_axis_spans_a_power_of_ten_and_no_interval_that_reaches_to_zero(ends, low, ratio):
    wide = Interval(ends[0], 1e-3 if low else 4.9, 2 * ends[0], 8, 0, 0.95, "BCa")
    made = Panel("", "largest |h|", [Line("key 0", [0, 1], [wide, point(ends[1], 0.1)])], log=True)
    found = lines([[made]], "layer").axes[0].get_ylim()
    assert found[0] == pytest.approx(low) if low else found[1] / found[0] == pytest.approx(ratio, rel=0.05)
