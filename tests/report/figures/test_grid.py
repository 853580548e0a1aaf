"""Heat maps over two choices: one scale a row, columns as wide as they have cells, every cell where its names say."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from sinkjax.report.figures import grid
from sinkjax.report.figures.style import render

WIDE, NARROW = np.linspace(0, 30, 60).reshape(20, 3), np.array([[50.0, np.nan, 70.0], [1.0, 2.0, 3.0]])


def figure(limits: tuple[float, float] | None = None) -> Figure:
    columns = [
        grid.MapColumn("in one layer", [str(number) for number in range(20)], "edited layer"),
        grid.MapColumn("in several", ["none", "all layers"], "edited layers"),
    ]
    rows = [
        grid.MapRow([WIDE, NARROW], "share (%)", limits=limits),
        grid.MapRow([10 ** (WIDE / 10), 10 ** (NARROW / 20)], "largest |h|", log=True),
    ]
    return grid.grids(columns, rows, ["1", "4", "9"], "position")


def image(figure: Figure, row: int, column: int):
    return figure.axes[2 * row + column].get_images()[0]


def test_the_maps_of_a_row_share_one_scale_that_holds_all_values():
    for limits, ends in ((None, (0, 70)), ((0, 100), (0, 100))):
        drawn = figure(limits)
        assert {(image(drawn, 0, column).norm.vmin, image(drawn, 0, column).norm.vmax) for column in (0, 1)} == {ends}
    assert image(drawn, 1, 0).norm.vmin == pytest.approx(1)
    assert image(drawn, 1, 1).norm.vmax == pytest.approx(10**3.5)


def test_cells_are_where_their_names_say():
    drawn = figure()
    shown = image(drawn, 0, 1)
    assert shown.origin == "lower"
    np.testing.assert_array_equal(np.ma.getmaskarray(shown.get_array()), np.isnan(NARROW.T))
    assert shown.get_array()[2, 0] == 70
    assert [tick.get_text() for tick in drawn.axes[3].get_xticklabels()] == ["none", "all layers"]
    assert [tick.get_text() for tick in drawn.axes[0].get_yticklabels()] == ["1", "4", "9"]


def test_a_cell_without_a_value_differs_from_no_effect_and_a_long_label_stays_beside_its_map():
    label = "effect on the logarithm of the largest activation at the first position"
    maps = [np.array([[0.0, np.nan], [1.0, -1.0]])]
    drawn = grid.grids([grid.MapColumn("", ["a", "b"], "")], [grid.MapRow(maps, label, (-1, 1), signed=True)] * 2, ["c", "d"], "")
    colours = image(drawn, 0, 0).cmap
    assert np.abs(np.subtract(colours.get_bad(), colours(0.5))).max() > 0.1
    drawn.draw_without_rendering()
    bar, panel = drawn.axes[2], drawn.axes[0]
    assert bar.yaxis.label.get_window_extent().height <= 1.1 * panel.get_window_extent().height


def test_many_cells_have_fewer_names_and_a_wider_panel():
    drawn = figure()
    assert [tick.get_text() for tick in drawn.axes[2].get_xticklabels()] == [str(number) for number in range(0, 20, 2)]
    wide, narrow = (drawn.axes[number].get_subplotspec().get_gridspec().get_width_ratios() for number in (0, 1))
    assert wide == narrow
    assert wide[0] > 3 * wide[1] >= 3 * grid.NARROWEST


def test_the_same_numbers_give_the_same_file():
    assert render(figure(), "svg") == render(figure(), "svg")
