"""Figures as words, continued: heat maps, activations, attention, dots and maps of one prompt."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.report.section import Drawing
from sinkjax.studies.drawings import LAYERS, drawable, interval_of, names_of, place_label, series_of, titled, wrapped
from sinkjax.studies.folder import POSITIONS, TOKENS
from sinkjax.studies.grids import At
from sinkjax.studies.readings import Readings
from sinkjax.studies.scope import FigureWord, Measure
from sinkjax.studies.specs import map_name
from sinkjax.studies.words import F, as_tuple


def _short(label: str) -> str:
    """Shorten the layers of a place for a tick label."""
    return label.removeprefix("layers ").removeprefix("layer ").replace("the one in which", "where")


@FigureWord.define(axes=("axis",))
def heatmap(read: Readings, measures: Measure, over: str, axis: str) -> Drawing:
    """Heat maps of mean measures: places of a grid across, values of an axis upwards.

    Args:
        read: The stores.
        measures: One or several, each in its own row of maps.
        over: The grid.
        axis: The name of the vertical axis.
    """
    from sinkjax.report.figures import grid as picture

    points = read.points(over)
    ticks = list(dict.fromkeys(dict(point.bound)[axis] for point in points if point.bound))
    single: dict[str, list[int]] = {}
    several: dict[str, list[int]] = {}
    for row, point in enumerate(points):
        if point.place is not None:
            label = place_label(read, points, point.place)
            (single if label.startswith("layer ") else several).setdefault(_short(label), []).append(row)
    kinds = (("one edited layer", "layer (0-based)", single), ("several", "edited layers", several))
    columns = [(picture.Column(title, list(cells), xlabel), cells) for title, xlabel, cells in kinds if cells]
    shown = []
    for measure in as_tuple(measures):
        log = bool(measure.meaning.facts.get("log"))
        values = []
        for _, cells in columns:
            found = np.full((len(cells), len(ticks)), np.nan)
            for number, rows in enumerate(cells.values()):
                for place, tick in enumerate(ticks):
                    chosen = [row for row in rows if dict(points[row].bound)[axis] == tick]
                    if chosen:
                        found[number, place] = np.mean([read.value(measure, over, row) for row in chosen])
            values.append(found)
        limits = None if log else (0.0, max(1.0, *(float(np.nanmax(part)) for part in values)))
        shown.append(picture.Row(values, wrapped(read.name(measure)), limits, log))
    figure = picture.grids([column for column, _ in columns], shown, list(map(str, ticks)), axis)
    caption = f"{names_of(read, map(as_tuple, as_tuple(measures)))}, by edited layers and {axis}; means over prompts."
    return read.drawing(f"{over}-by-{axis}", figure, caption, over, bands=False)


@FigureWord.define()
def activations(read: Readings, conditions: At) -> Drawing:
    """Largest |h| by depth and position, without an edit and under some conditions."""
    from sinkjax.report.figures import layers as picture

    chosen = as_tuple(conditions)
    grids = [read.scope.get(one)[0] for one in chosen]
    few = slice(POSITIONS)
    shown = {"no edit": _largest(read, grids[0], 0)[..., few]}
    for one, grid in zip(chosen, grids, strict=True):
        for row in read.rows(one):
            shown[read.points(read.store(grid))[row].label] = _largest(read, grid, row)[..., few]
    figure = picture.activations(np.stack(list(shown.values())), list(shown))
    caption = f"""Largest absolute value of the residual stream by depth and position (at most the first {POSITIONS} positions),
        mean over prompts, on one logarithmic colour scale."""
    return read.drawing("largest-activation", figure, caption, *map(read.store, grids), bands=False)


def _largest(read: Readings, grid: str, row: int) -> NDArray:
    return read.results[read.store(grid)]["resid_max"].isel(edit=row).mean("prompt").values


@FigureWord.define()
def received(read: Readings, keys: object, over: str) -> Drawing:
    """Attention that keys receive in each layer (up), against the edited layers (across)."""
    from sinkjax.report.figures import layers as picture

    points, data = read.points(over), read.results[over]["attention_received"]
    series = drawable(points, over)
    L = data.sizes["layer"]

    def columns(key: int, rows: Sequence[int]) -> NDArray:
        """Make one column per layer, NaN where no condition ends."""
        found = np.full((L, L), np.nan)
        for row, values in zip(rows, data.isel(edit=rows).sel(key=key).mean(["prompt", "head"]).values, strict=True):
            found[points[row].x] = values
        return found

    grid = {
        f"attention to key {key}": {title: columns(key, rows) for title, rows in series.items()}
        for key in map(read.scope.get, as_tuple(keys))
    }
    caption = """Attention that keys receive in each layer, against the edited layers. In a masked layer the key receives none;
        the layers above it show the effect on later layers."""
    return read.drawing("attention-by-layer", picture.received(grid, LAYERS), caption, over, bands=False)


@FigureWord.define()
def dots(read: Readings, measures: Measure, over: str) -> Drawing:
    """Means of a grid's conditions side by side, with each control as its own mark."""
    from sinkjax.report.figures import points as picture

    store, drawn, columns = read.store(over), f"{over}-controls", {}
    points = read.points(store)
    for measure in as_tuple(measures):
        means = [interval_of(read, over, read.value(measure, over, row)[None])[0] for row in range(len(points))]
        found = [picture.Point(point.label, mean, "chosen") for point, mean in zip(points, means, strict=True)]
        if drawn in read.results:
            for number, control in enumerate(read.points(drawn)):
                if control.draw >= 0:
                    mean = read.raw(measure, drawn, over, control.bound)[number].mean()
                    found.append(picture.Point(str(control.budget), intervals.interval([mean]), "random, of the same size"))
        columns[read.name(measure)] = found
    units = {measure.meaning.facts.get("unit", "") for measure in as_tuple(measures)}
    figure = picture.points(columns, "mean over documents", shared=len(units) == 1)
    controls = ", and each of its random controls as one mark" if drawn in read.results else ""
    caption = titled(read, over, f"Means of each condition with 95% intervals{controls}.")
    return read.drawing(f"{over}-and-controls", figure, caption, store, bands=False)


@FigureWord.define()
def scatter(read: Readings, x: Measure, y: Measure, over: str) -> Drawing:
    """One measure against another, with a dot for the mean of each condition of a grid."""
    from sinkjax.report.figures import scatter as picture

    points = read.points(over)
    clouds = []
    for title, rows in series_of(points).items():
        across, up = (np.array([read.value(measure, over, row).mean() for row in rows]) for measure in (x, y))
        clouds.append(picture.Cloud(title, across, up))
    figure = picture.scatter({"": clouds}, read.name(x), read.name(y), log="y" if y.meaning.facts.get("log") else False)
    caption = f"Each condition: {read.name(x)} against {read.name(y)}, means over prompts."
    return read.drawing(f"{over}-scatter", figure, caption, over, bands=False)


@FigureWord.define()
def maps(read: Readings, conditions: At, layers: object = F.map_layers, tokens: int = TOKENS) -> list[Drawing]:
    """Attention maps of one prompt, without an edit and under some conditions; interactive on the page, with continuations.

    Args:
        read: The stores.
        conditions: The conditions to show.
        layers: The layers; empty for an early, a middle and a late one.
        tokens: Maximum number of tokens drawn.
    """
    from sinkjax.report.figures import attention
    from sinkjax.studies.views import map_data

    found = []
    for number, grid in enumerate(dict.fromkeys(read.scope.get(one)[0] for one in as_tuple(conditions))):
        store = map_name(grid, number)
        if store not in read.results:
            continue
        data = read.results[store]
        shown = map_data(data)
        drawn = drawn_layers(read.scope.get(layers), read.scope.architecture.layers)
        there = [layer for layer in drawn if layer in shown["layer"].values]
        texts = data.attrs["study"]["token_texts"][0][: min(tokens, shown.sizes["query"])]
        ticks = [text if text.isprintable() else repr(text)[1:-1] for text in texts]
        values = shown.isel(prompt=0).sel(layer=there).mean("head").values
        labels = [str(label).replace(" in ", "\nin ") for label in data["edit"].values]
        figure = attention.by_layer(values[0], there, ticks) if len(values) == 1 else attention.maps(values, labels, there, ticks)
        caption = f"""Attention maps of one prompt, mean over heads, at most the first {tokens} tokens, on one colour scale; grey:
            keys that a query cannot see. A bright column is a key that gets much attention."""
        found.append(read.drawing(f"attention-{store}", figure, caption, store, bands=False))
    return found


def drawn_layers(asked: tuple[int, ...], L: int) -> tuple[int, ...]:
    """Return the layers of maps: the requested ones, or an early, a middle and a late one."""
    return asked or tuple(sorted({0, L // 3, 2 * L // 3}))
