"""Heat maps: one builder for attention, activations and any quantity over two choices. Layers and depths count upwards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sinkjax.errors import SinkjaxError
from sinkjax.report.figures.style import (
    COLOURS,
    HALF,
    MOST_COLUMNS,
    WIDTH,
    canvas,
    draw_map,
    leave_empty,
    plain_ticks,
    spaced_ticks,
    styled,
    wrapped,
)

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

DECADES = 1e4  # the range of a logarithmic colour scale; smaller values share the darkest colour
TICK, LONGEST = 8, 9  # font size of a token in points, and its maximum characters
SPACING, LETTER = 1.25, 0.095  # height of a tick in its font size, and inches of a letter of a run's name
MARGIN, TITLE = 1.6, 0.4  # inches of a figure's width without maps, and of a row's height
WIDEST, BAR, HEAD, LABELS = 3.4, 1.0, 0.8, 0.8  # inches: a causal map, the colour bar, the space above maps, and their labels
TITLES, LETTERS = 100, 12  # characters of causal maps' titles over the width of a figure, and of cells' names in an inch
LABEL_WIDTH = 11  # characters per inch of the label of a colour bar
NARROWEST = 0.22  # as a share of the widest column
MOST_TICKS = 16  # along one axis of a map


@dataclass(frozen=True)
class MapColumn:
    """A column of maps. title: above it. x: names of its cells, from left to right. xlabel: below it."""

    title: str
    x: Sequence[str]
    xlabel: str


@dataclass(frozen=True)
class MapRow:
    """The maps of one quantity on one colour scale.

    values: the maps, NaN if missing; for `grids` float[x, y] of each column. label: label of the colour bar. limits: ends of the
    scale, by default the values' range. log: whether it is logarithmic. signed: whether colours diverge at the middle of the
    scale. title: before the name of y. root: whether the scale is that of square roots.
    """

    values: Sequence[NDArray[Any]] | NDArray[Any]
    label: str
    limits: tuple[float, float] | None = None
    log: bool = False
    signed: bool = False
    title: str = ""
    root: bool = False

    def scale(self) -> Normalize:
        """Return matplotlib's scale of these maps."""
        from matplotlib.colors import LogNorm, Normalize, PowerNorm

        finite = np.concatenate([values[np.isfinite(values)] for values in self.values])
        low, high = self.limits or (float(finite.min()), float(finite.max()))
        return PowerNorm(0.5, low, high) if self.root else (LogNorm if self.log else Normalize)(low, high)


@styled
def heatmaps(
    rows: Sequence[MapRow],
    size: tuple[float, float],
    titles: Sequence[str],
    labels: tuple[str, str] = ("", ""),
    xlabels: Sequence[str] = (),
    ylabel: str = "",
    x: Sequence[Sequence[str]] = ((),),
    y: Sequence[str] = (),
    square: bool = True,
    widths: Sequence[float] | None = None,
    marked: int | None = None,
) -> Figure:
    """Draw maps [row][column] float[y, x], NaN is grey; only the last row may be shorter. Rows of one label share a colour bar.

    Args:
        rows: The maps.
        size: Width and height of the figure, in inches.
        titles: Titles of the maps, row by row; maps without one have none.
        labels: The names of x and y for all maps.
        xlabels: The names of x below each column.
        ylabel: The name of y next to each row, below the row's title.
        x: The names of the cells from left to right, for all maps or for each column; by default cells are counted from 0.
        y: The names of all maps' cells.
        square: Whether cells are squares, with the first row of a map at the top; otherwise y counts upwards.
        widths: Relative widths of the columns.
        marked: A row that is marked by an arrow on each map.

    Returns:
        A matplotlib figure.
    """
    figure, columns, title_of = canvas(*size), len(rows[0].values), iter(titles)
    axes = figure.subplots(len(rows), columns, squeeze=False, sharex="col", sharey=True, width_ratios=widths)
    form: dict[str, Any] = {"origin": "upper", "aspect": "equal"} if square else {"origin": "lower", "aspect": "auto"}
    bars = len({row.label for row in rows})
    for line, row in zip(axes, rows, strict=True):
        scale = row.scale()
        for column, (panel, values) in enumerate(zip(line, row.values, strict=False)):
            image = draw_map(panel, values, scale, row.signed, **form)
            panel.set_title(next(title_of, ""))
            share = widths[column] / sum(widths) if widths else 1 / columns
            inches = min(share * (size[0] - MARGIN), size[1] / len(rows) - TITLE if square else math.inf)
            _name_cells(panel, "x", x[column % len(x)], inches, square)
            _name_cells(panel, "y", y, inches, square)
            if marked is not None:  # on the grey side of the map, which has no keys
                start, end = (marked + 0.7 + len(values) / 6, marked), (marked + 0.7, marked)
                panel.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": COLOURS[1], "lw": 1.6})
        line[0].set_ylabel(f"{row.title}\n{ylabel}".strip(), fontweight="bold" if labels[1] else None)
        if bars > 1 or row is rows[-1]:
            place: dict[str, Any] = {"ax": list(line)} if bars > 1 else {"ax": axes, "shrink": 0.8}
            bar = figure.colorbar(image, **place, pad=0.02, aspect=24)
            bar.set_label(wrapped(row.label, int(size[1] / bars * LABEL_WIDTH)))
            if row.log:
                plain_ticks(bar.ax.yaxis)
    leave_empty(axes, sum(len(row.values) for row in rows))
    for panel, label in zip(axes[-1], xlabels, strict=False):
        panel.set_xlabel(label)
    figure.supxlabel(labels[0], fontsize=10)
    figure.supylabel(labels[1], fontsize=10)
    return figure


def _name_cells(panel: Axes, axis: Literal["x", "y"], names: Sequence[str], inches: float, square: bool) -> None:
    """Label the cells of a map that is so many inches wide, as many as fit; by default with integers.

    Names across that are too long are vertical, as tokens always are.
    """
    panel.tick_params(axis=axis, length=0 if names and square else 2, labelsize=TICK if square else None)
    if not names:
        spaced_ticks(panel.xaxis if axis == "x" else panel.yaxis, 8 if inches > 1.7 else 4, integer=True)
        return
    longest, room, fit = max(map(len, names)), inches * LETTERS, inches * 72 / TICK / SPACING if square else MOST_TICKS
    if not square and axis == "x" and all(name.isdigit() for name in names):  # readers can fill in the numbers between
        fit = max(2, min(MOST_TICKS, int(room / (longest + 1))))
    places = range(0, len(names), math.ceil(len(names) / fit))
    upright = square or longest > 3 or (longest == 3 and len(places) * (longest + 1) > room)
    set_ticks = panel.set_xticks if axis == "x" else panel.set_yticks
    set_ticks(places, [names[place] for place in places], rotation=90 if upright and axis == "x" else 0)


def in_rows(items: NDArray[Any], most: int) -> list[NDArray[Any]]:
    """Divide maps into rows of equal length, except the last, of at most so many."""
    columns = math.ceil(len(items) / math.ceil(len(items) / most))
    return [items[start : start + columns] for start in range(0, len(items), columns)]


def grids(columns: Sequence[MapColumn], rows: Sequence[MapRow], y: Sequence[str], ylabel: str, height: float = 2.9) -> Figure:
    """Draw heat maps [row, column]: y is shared and upwards, columns are as wide as their cells, each row has a colour bar.

    y: names of the cells from bottom to top.
    """
    most = max(len(column.x) for column in columns)
    widths = [max(len(column.x) / most, NARROWEST) for column in columns]
    letters = [max(int(width / sum(widths) * 72), 12) for width in widths]
    titles = [wrapped(column.title, width) for column, width in zip(columns, letters, strict=True)]
    upright = [replace(row, values=[values.T for values in row.values]) for row in rows]
    x, xlabels, size = [column.x for column in columns], [column.xlabel for column in columns], (WIDTH, height * len(rows))
    return heatmaps(upright, size, titles, xlabels=xlabels, ylabel=ylabel, x=x, y=y, square=False, widths=widths)


def draw_patch(found: xarray.Dataset, tokens: Sequence[str] = ()) -> Figure:
    """Draw the share of the answer that each patch restores, mean over prompts.

    Args:
        found: The result of `sinkjax.patch`.
        tokens: Text of each position, for its axis.

    Returns:
        A matplotlib figure.

    Raises:
        SinkjaxError: `found` is not such a result.
    """
    if "restored" not in found:
        raise SinkjaxError("draw_patch takes the result of sinkjax.patch")
    values = found["restored"].mean("prompt")
    layers, cells = ([str(each) for each in values[axis].values] for axis in values.dims)
    names = [short(tokens[int(cell)]) for cell in cells] if tokens else cells
    size = max(1.0, float(np.nanmax(np.abs(values.values))))
    column = MapColumn(f"{found.attrs['site']}, patched", names, str(values.dims[1]))
    row = MapRow([values.values.T], "share of the logit difference restored", (-size, size), signed=True)
    return grids([column], [row], layers, "layer")


def heads(values: NDArray[Any], title: str, label: str) -> Figure:
    """Draw float[layer, head] from 0 to 1, as half of a page's line: layers count upwards, heads go across."""
    return heatmaps([MapRow([values], label, (0, 1))], HALF, [title], xlabels=["head"], ylabel="layer", square=False)


def activations(
    values: NDArray[Any], titles: Sequence[str], limits: tuple[float, float] | None = None, count_from: int = 0
) -> Figure:
    """Draw the largest |h| by position (across) and depth (up), one panel per run, on one logarithmic colour scale.

    Args:
        values: float[run, depth, position], positive. Depth 0 is the embedding, depth l + 1 the stream after block l.
        titles: The names of the runs.
        limits: Lowest and highest value of the colour scale; None for those of `values`, down to DECADES below the highest.
        count_from: The number of the first layer.

    Returns:
        A matplotlib figure.
    """
    label, limits = "largest |h|, mean over prompts (log scale)", limits or colour_limits(values)
    rows = [MapRow(row, label, limits, log=True) for row in in_rows(values, MOST_COLUMNS)]
    labels = "position", f"depth (0: embedding, {'l' if count_from else 'l + 1'}: after layer l)"
    return heatmaps(rows, (WIDTH, 3.2 * len(rows)), [wrapped(title, 36) for title in titles], labels, square=False)


def colour_limits(values: NDArray[Any]) -> tuple[float, float]:
    """Return least and largest value of a colour scale for activations of any shape."""
    largest = float(np.nanmax(values))
    return max(float(np.nanmin(values)), largest / DECADES), largest


def maps(values: NDArray[Any], rows: Sequence[str], layers: Sequence[int], tokens: Sequence[str], count_from: int = 0) -> Figure:
    """Draw attention of queries (down) to keys (across), one panel per run and layer, on one colour scale.

    Args:
        values: float[row, layer, query, key], averaged over heads.
        rows: The names of the runs.
        layers: Layer indices, from 0.
        tokens: The text of each position to draw, at most the size of `values`.
        count_from: The number of the first layer in titles.

    Returns:
        A matplotlib figure.
    """
    width = int(_side(len(layers)) / LETTER)
    return _attention([*values], [layer + count_from for layer in layers], tokens, [wrapped(name, width) for name in rows])


def by_layer(values: NDArray[Any], layers: Sequence[int], tokens: Sequence[str], count_from: int = 0) -> Figure:
    """Draw attention of queries (down) to keys (across) in some layers of one run, at most three per row.

    Args:
        values: float[layer, query, key], averaged over heads.
        layers: Layer indices, from 0.
        tokens: The text of each position to draw.
        count_from: The number of the first layer in titles.

    Returns:
        A matplotlib figure.
    """
    return _attention(in_rows(values, MOST_COLUMNS), [layer + count_from for layer in layers], tokens)


def _side(columns: int) -> float:
    """Return the side of a map of attention in inches, for so many in a row."""
    return min((WIDTH - MARGIN) / columns, 2.75)


def _attention(rows: Sequence[Any], layers: Sequence[int], tokens: Sequence[str], runs: Sequence[str] = ()) -> Figure:
    """Draw attention between the first tokens on one colour scale, with tokens as ticks, as many as fit."""
    shown = [causally(np.asarray(row)[..., : len(tokens), : len(tokens)]) for row in rows]
    label, limits = "attention, mean over heads\n(square-root scale)", (0, max(1.0, *(float(np.nanmax(row)) for row in shown)))
    maps = [MapRow(row, label, limits, title=run, root=True) for row, run in zip(shown, runs or [""] * len(shown), strict=True)]
    size, names = (WIDTH, len(maps) * (_side(len(maps[0].values)) + TITLE)), [short(token) for token in tokens]
    return heatmaps(maps, size, [f"layer {layer}" for layer in layers], ("key token", "query token"), x=[names], y=names)


def causally(values: NDArray[Any]) -> NDArray[Any]:
    """Replace the keys that a query cannot see by NaN: float[..., query, key]."""
    return np.where(np.tri(values.shape[-1], dtype=bool), values, np.nan)


def causal(
    values: NDArray[Any],
    rows: Sequence[str],
    columns: Sequence[str],
    label: str,
    marked: int | None = None,
) -> Figure:
    """Draw causal maps, one panel per row and column, on a scale from 0; keys that a query cannot see are grey.

    Args:
        values: float[row, column, query, key].
        rows: The titles of the rows.
        columns: The titles of the columns.
        label: Name of the quantity, with its unit, for the colour bar.
        marked: A query whose row an arrow marks on each map.

    Returns:
        A matplotlib figure.
    """
    titles, shown = [wrapped(title, TITLES // len(columns)) for title in columns], causally(values)
    limits = 0, max(float(np.nanmax(shown)), np.finfo(float).tiny)
    maps = [MapRow(row, label, limits, title=title) for row, title in zip(shown, rows, strict=True)]
    return heatmaps(maps, _causal_size(maps), titles, xlabels=["key"] * len(columns), ylabel="query", marked=marked)


def gallery(values: NDArray[Any], titles: Sequence[str], label: str, marked: int) -> Figure:
    """Draw titled causal maps, at most five per row, on a scale from 0 to 1. values: float[map, query, key]; see `causal`."""
    rows = [MapRow(row, label, (0, 1)) for row in in_rows(causally(values), 5)]
    named = [wrapped(title, TITLES // len(rows[0].values)) for title in titles]
    return heatmaps(rows, _causal_size(rows), named, ("key", "query"), marked=marked)


def _causal_size(rows: Sequence[MapRow]) -> tuple[float, float]:
    columns = len(rows[0].values)
    side = min((WIDTH - BAR) / columns, WIDEST)
    return columns * side + BAR, len(rows) * (side - LABELS / columns) + HEAD


def short(token: str) -> str:
    """Format a token as a tick: make line breaks and spaces visible, and cut it to LONGEST characters."""
    text = token.replace("\n", "↵").replace(" ", "·", 1) if token.strip() == "" else token.strip()
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
