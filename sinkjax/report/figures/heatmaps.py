"""Heat maps: one builder for attention, activations and any quantity over two choices. Layers and depths count upwards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
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
class Colours:
    """A colour scale. label: of its bar. limits: its ends. kind: its form. signed: whether colours diverge at its middle."""

    label: str
    limits: tuple[float, float]
    kind: Literal["linear", "root", "log"] = "linear"
    signed: bool = False


@dataclass(frozen=True)
class MapColumn:
    """A column of maps. title: above it. x: names of its cells, from left to right. xlabel: below it."""

    title: str
    x: Sequence[str]
    xlabel: str


@dataclass(frozen=True)
class MapRow:
    """The maps of one quantity on one colour scale.

    values: for each column float[x, y], NaN if missing. label: label of the colour bar. limits: ends of the scale, by default the
    values' range. log: whether it is logarithmic. signed: whether colours diverge at the middle of the scale. title: before
    the name of y.
    """

    values: Sequence[NDArray[Any]]
    label: str
    limits: tuple[float, float] | None = None
    log: bool = False
    signed: bool = False
    title: str = ""


@styled
def heatmaps(
    rows: Sequence[Sequence[NDArray[Any]] | NDArray[Any]],
    colours: Sequence[Colours],
    size: tuple[float, float],
    titles: Sequence[str] = (),
    labels: tuple[str, str] = ("", ""),
    xlabels: Sequence[str] = (),
    ylabels: Sequence[str] = (),
    x: Sequence[Sequence[str]] = ((),),
    y: Sequence[str] = (),
    square: bool = True,
    widths: Sequence[float] | None = None,
    marked: int | None = None,
) -> Figure:
    """Draw maps [row][column] with colour bars; only the last row may be shorter.

    Args:
        rows: The maps, float[y, x], NaN (grey) if missing.
        colours: One colour scale for all maps, or one for each row.
        size: Width and height of the figure, in inches.
        titles: Titles of the maps, row by row; maps without one have none.
        labels: The names of x and y for all maps.
        xlabels: The names of x below each column.
        ylabels: The names of y next to each row.
        x: The names of the cells from left to right, for all maps or for each column; by default cells are counted from 0.
        y: The names of all maps' cells.
        square: Whether cells are squares, with the first row of a map at the top; otherwise y counts upwards.
        widths: Relative widths of the columns.
        marked: A row that is marked by an arrow on each map.

    Returns:
        A matplotlib figure.
    """
    from matplotlib.colors import LogNorm, Normalize, PowerNorm

    figure, columns, title_of = canvas(*size), len(rows[0]), iter(titles)
    axes = figure.subplots(len(rows), columns, squeeze=False, sharex="col", sharey=True, width_ratios=widths)
    form: dict[str, Any] = {"origin": "upper", "aspect": "equal"} if square else {"origin": "lower", "aspect": "auto"}
    norms: dict[str, Any] = {"linear": Normalize, "log": LogNorm, "root": lambda low, high: PowerNorm(0.5, low, high)}
    for number, row in enumerate(rows):
        scale = colours[number % len(colours)]
        norm = norms[scale.kind](*scale.limits)
        for column, (panel, values) in enumerate(zip(axes[number], row, strict=False)):
            image = draw_map(panel, values, norm, scale.signed, **form)
            panel.set_title(next(title_of, ""))
            share = widths[column] / sum(widths) if widths else 1 / columns
            inches = min(share * (size[0] - MARGIN), size[1] / len(rows) - TITLE if square else math.inf)
            _name_cells(panel, "x", x[column % len(x)], inches, square)
            _name_cells(panel, "y", y, inches, square)
            if marked is not None:  # on the grey side of the map, which has no keys
                start, end = (marked + 0.7 + len(values) / 6, marked), (marked + 0.7, marked)
                panel.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": COLOURS[1], "lw": 1.6})
        if number == len(rows) - 1 or len(colours) > 1:
            place: dict[str, Any] = {"ax": list(axes[number])} if len(colours) > 1 else {"ax": axes, "shrink": 0.8}
            bar = figure.colorbar(image, **place, pad=0.02, aspect=24)
            bar.set_label(wrapped(scale.label, int(size[1] / len(colours) * LABEL_WIDTH)))
            if scale.kind == "log":
                plain_ticks(bar.ax.yaxis)
    leave_empty(axes, sum(map(len, rows)))
    for panel, label in zip(axes[-1], xlabels, strict=False):
        panel.set_xlabel(label)
    for panel, label in zip(axes[:, 0], ylabels, strict=False):
        panel.set_ylabel(label, fontweight="bold" if labels[1] else None)
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
    colours = []
    for row in rows:
        finite = np.concatenate([values[np.isfinite(values)] for values in row.values])
        limits = row.limits or (float(finite.min()), float(finite.max()))
        colours.append(Colours(row.label, limits, "log" if row.log else "linear", row.signed))
    return heatmaps(
        [[values.T for values in row.values] for row in rows],
        colours,
        (WIDTH, height * len(rows)),
        [wrapped(column.title, max(int(width / sum(widths) * 72), 12)) for column, width in zip(columns, widths, strict=True)],
        xlabels=[column.xlabel for column in columns],
        ylabels=[f"{row.title}\n{ylabel}".strip() for row in rows],
        x=[column.x for column in columns],
        y=y,
        square=False,
        widths=widths,
    )


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
    return heatmaps([[values]], [Colours(label, (0, 1))], HALF, [title], xlabels=["head"], ylabels=["layer"], square=False)


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
    rows = in_rows(values, MOST_COLUMNS)
    colours = Colours("largest |h|, mean over prompts (log scale)", limits or colour_limits(values), "log")
    labels = "position", f"depth (0: embedding, {'l' if count_from else 'l + 1'}: after layer l)"
    named = [wrapped(title, 36) for title in titles]
    return heatmaps(rows, [colours], (WIDTH, 3.2 * len(rows)), named, labels, square=False)


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
    return _attention(in_rows(values, MOST_COLUMNS), [layer + count_from for layer in layers], tokens, ())


def _side(columns: int) -> float:
    """Return the side of a map of attention in inches, for so many in a row."""
    return min((WIDTH - MARGIN) / columns, 2.75)


def _attention(rows: Sequence[Any], layers: Sequence[int], tokens: Sequence[str], runs: Sequence[str]) -> Figure:
    """Draw attention between the first tokens on one colour scale, with tokens as ticks, as many as fit."""
    rows = [causally(np.asarray(row)[..., : len(tokens), : len(tokens)]) for row in rows]
    top = max(float(np.nanmax(row)) for row in rows)
    colours = Colours("attention, mean over heads\n(square-root scale)", (0, max(top, 1.0)), "root")
    size, names = (WIDTH, len(rows) * (_side(len(rows[0])) + TITLE)), [short(token) for token in tokens]
    titles, labels = [f"layer {layer}" for layer in layers], ("key token", "query token")
    return heatmaps(rows, [colours], size, titles, labels, ylabels=runs, x=[names], y=names)


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
    colours = Colours(label, (0, max(float(np.nanmax(shown)), np.finfo(float).tiny)))
    names: dict[str, Any] = {"xlabels": ["key"] * len(columns), "ylabels": [f"{title}\nquery".strip() for title in rows]}
    return heatmaps([*shown], [colours], _causal_size([*shown]), titles, **names, marked=marked)


def gallery(values: NDArray[Any], titles: Sequence[str], label: str, marked: int) -> Figure:
    """Draw titled causal maps, at most five per row, on a scale from 0 to 1. values: float[map, query, key]; see `causal`."""
    rows = in_rows(causally(values), 5)
    named = [wrapped(title, TITLES // len(rows[0])) for title in titles]
    return heatmaps(rows, [Colours(label, (0, 1))], _causal_size(rows), named, ("key", "query"), marked=marked)


def _causal_size(rows: Sequence[Any]) -> tuple[float, float]:
    columns = len(rows[0])
    side = min((WIDTH - BAR) / columns, WIDEST)
    return columns * side + BAR, len(rows) * (side - LABELS / columns) + HEAD


def short(token: str) -> str:
    """Format a token as a tick: make line breaks and spaces visible, and cut it to LONGEST characters."""
    text = token.replace("\n", "↵").replace(" ", "·", 1) if token.strip() == "" else token.strip()
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
