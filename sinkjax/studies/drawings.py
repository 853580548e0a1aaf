"""Figures as words. Titles, axes, legends and captions come from the drawn data; a study names measures and grids.

Figures are drawn from the stores, and one whose grid did not run is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import Absent
from sinkjax.report.section import Drawing
from sinkjax.studies.contrasts import Readings
from sinkjax.studies.figures import POSITIONS, TOKENS
from sinkjax.studies.grids import SERIES, At, Point, matching
from sinkjax.studies.readouts import label_of
from sinkjax.studies.scope import FigureWord, Measure
from sinkjax.studies.specs import map_name
from sinkjax.studies.words import F, Field

if TYPE_CHECKING:
    from sinkjax.analysis.intervals import Intervals
    from sinkjax.report.figures.layers import Line

__all__ = ["activations", "along", "by_layer", "dots", "heatmap", "lines", "maps", "received", "scatter"]
FEWEST = 3  # points of a line
LAYERS = "last edited layer (0-based)"
JOINING = ("at", "from", "of", "on", "than", "the", "to")


def _tuple(value: object) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _series(points: Sequence[Point]) -> dict[str, list[int]]:
    """The series of a grid that can be drawn as lines, and their conditions."""
    found: dict[str, list[int]] = {}
    for row, point in enumerate(points):
        if point.place is not None:
            found.setdefault(point.series, []).append(row)
    return found


def _drawable(series: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """The series that make a line; prefixes of layers end with all of them."""
    whole = {name: rows + series.get(SERIES["all"], []) * (name == SERIES["prefixes"]) for name, rows in series.items()}
    return {name: rows for name, rows in whole.items() if len(rows) >= FEWEST}


def _interval(read: Readings, grid: str, values: NDArray) -> Intervals:
    return intervals.intervals(
        values, seed=read.scope.config.seed, clusters=read.results.clusters(values.shape[-1], read.store(grid))
    )


def _row_label(read: Readings, measures: Sequence[Measure]) -> str:
    """The y axis of measures that share a panel: the common part of their names."""
    names = [read.name(measure) for measure in measures]
    if len(names) == 1:
        return names[0]
    unit = names[0][names[0].rindex("(") :] if names[0].endswith(")") else ""
    return f"{_shared(names).rstrip(', ')} {unit}".strip() or names[0]


def _shared(names: Sequence[str]) -> str:
    """The first words that all names share, without a trailing preposition or article."""
    head = names[0].split()
    while head and not (all(f"{name} ".startswith(f"{' '.join(head)} ") for name in names) and head[-1] not in JOINING):
        head.pop()
    return " ".join(head)


def _named(read: Readings, rows: Iterable[Sequence[Measure]]) -> str:
    """The measures of a figure, as its caption begins."""
    what = "; ".join(", ".join(read.name(measure) for measure in row) for row in rows)
    return f"{what[0].upper()}{what[1:]}"


def _hyphens(measure: Measure) -> str:
    """A measure's name in the name of a file."""
    return measure.word.replace("_", "-")


def _wrapped(text: str, width: int = 30) -> str:
    import textwrap

    return textwrap.fill(text, width)


@FigureWord.define(axes=("x", "by"))
def lines(
    read: Readings,
    measures: Measure,
    over: str,
    x: str = "layers",
    effect: bool = False,
    log_x: bool = False,
    by: str = "",
) -> Drawing:
    """Measures along the conditions of a grid, with bands for their intervals; dashed: no edit.

    Args:
        read: The stores.
        measures: One for each row of panels, or a tuple of measures that share a row (along an axis, and in one place: a panel).
        over: The grid.
        x: "layers" (one column of panels for each series of layers) or an axis (one line for each place).
        effect: Whether differences from no edit are drawn.
        log_x: Whether the x axis is logarithmic.
        by: Another axis, with a line for each value; lines are means over all further axes.
    """
    from sinkjax.report.figures import layers as picture

    points = read.points(over)
    rows = [_tuple(row) for row in _tuple(measures)]
    series = _drawable(_series(points))
    if x == "layers" and not series:
        raise Absent(f"{over} has no {FEWEST} sets of layers that make a line")
    grid: list[list[picture.Panel]] = []
    for row in rows:
        panels = []
        log = bool(row[0].meaning.facts.get("log")) and not effect
        label = _wrapped(("effect on " if effect else "") + _row_label(read, row))
        if x == "layers":
            for title, chosen in series.items():
                xs = [points[number].x for number in chosen]
                found = [_line(read, measure, over, [[number] for number in chosen], xs, effect) for measure in row]
                panels.append(picture.Panel(title, label, found, log, signed=effect))
        else:
            groups: dict[tuple[object, object], dict[Any, list[int]]] = {}
            for number, point in enumerate(points):
                if point.place is not None:
                    bound = dict(point.bound)
                    groups.setdefault((point.place, bound.get(by)), {}).setdefault(bound[x], []).append(number)
            several = len({place for place, _ in groups}) > 1
            shared: list[Line] = []
            for measure in row:
                found = shared if len(groups) == 1 else []
                for (place, value), by_x in groups.items():
                    name = ", ".join(
                        [*([f"{by} {value}"] if by else []), *([_place_label(read, points, place)] if several else [])]
                    )
                    xs = sorted(by_x)
                    found.append(_line(read, measure, over, [by_x[one] for one in xs], xs, effect, name))
                if len(groups) > 1 or measure == row[-1]:
                    title = read.name(measure) if len(groups) > 1 and len(row) > 1 else ""
                    panels.append(picture.Panel(title, label, found, log, signed=effect))
        grid.append(panels)
    figure = picture.lines(grid, LAYERS if x == "layers" else x, log_x=log_x, legend_above=x != "layers" and len(grid) > 1)
    caption = f"{_named(read, rows)}, against {'the edited layers' if x == 'layers' else x}. Dashed: no edit."
    return read.drawing(f"{over}-{x}", figure, caption, over)


def _short(label: str) -> str:
    """The layers of a place, as a tick shows them."""
    return label.removeprefix("layers ").removeprefix("layer ").replace("the one in which", "where")


def _place_label(read: Readings, points: Sequence[Point], place: object) -> str:
    return next((point.where for point in points if point.place == place), str(place))


def _line(
    read: Readings, measure: Measure, grid: str, rows: Sequence[Sequence[int]], x: Sequence[Any], effect: bool, name: str = ""
) -> Line:
    """A measure along some conditions, at each x the mean of its rows, with the value of no edit as a dashed line."""
    from sinkjax.report.figures.layers import Line

    def along(edited: bool) -> NDArray:
        return np.stack([np.mean([read.value(measure, grid, row, edited) for row in there], axis=0) for there in rows])

    plain = along(edited=False)
    values = along(edited=True) - (plain if effect else 0)
    reference = None if effect else float(plain.mean())
    return Line(name or read.name(measure), list(x), [*_interval(read, grid, values)], reference)


@FigureWord.define(axes=("axis",))
def heatmap(read: Readings, measures: Measure, over: str, axis: str) -> Drawing:
    """Means of measures over the places of a grid (across) and the values of an axis (up).

    Args:
        read: The stores.
        measures: One or several, one row of maps each.
        over: The grid.
        axis: The name of the axis.
    """
    from sinkjax.report.figures import grid as picture

    points = read.points(over)
    ticks = list(dict.fromkeys(dict(point.bound)[axis] for point in points if point.bound))
    single: dict[str, list[int]] = {}
    several: dict[str, list[int]] = {}
    for row, point in enumerate(points):
        if point.place is not None:
            label = _place_label(read, points, point.place)
            one = label.startswith("layer ")
            (single if one else several).setdefault(_short(label), []).append(row)
    columns, shown = [], []
    for title, xlabel, cells in (("one edited layer", "layer (0-based)", single), ("several", "edited layers", several)):
        if cells:
            columns.append((picture.Column(title, list(cells), xlabel), cells))
    for measure in _tuple(measures):
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
        shown.append(picture.Row(values, _wrapped(read.name(measure)), limits, log))
    figure = picture.grids([column for column, _ in columns], shown, list(map(str, ticks)), axis)
    caption = f"{_named(read, map(_tuple, _tuple(measures)))}, by edited layers and {axis}; means over prompts."
    return read.drawing(f"{over}-by-{axis}", figure, caption, over, bands=False)


@FigureWord.define()
def by_layer(read: Readings, measures: Measure, conditions: At, unedited: bool = True) -> Drawing:
    """Measures in each layer under some conditions, means over the axes of a grid, and without an edit.

    Args:
        read: The stores.
        measures: Measures with an argument `layers`, one row of panels each; or a tuple of measures that share a row.
        conditions: One line each.
        unedited: Whether no edit is a line too.
    """
    from sinkjax.report.figures import layers as picture
    from sinkjax.studies.places import layer

    chosen = _tuple(conditions)
    rows = [_tuple(row) for row in _tuple(measures)]
    grids = [read.scope.get(one)[0] for one in chosen]
    panels = []
    for row in rows:
        found = []
        for measure in row:
            named = dict(measure.arguments)
            each = [
                type(measure)(measure.word, tuple({**named, "layers": layer(number)}.items()))
                for number in range(read.scope.architecture.layers)
            ]
            for number, (one, grid) in enumerate(zip(chosen, grids, strict=True)):
                matched = matching(read.points(read.store(grid)), one, read.scope)
                for edited in (False, True) if unedited and number == 0 else (True,):
                    values = np.stack(
                        [np.mean([read.value(part, grid, row, edited) for row in matched], axis=0) for part in each]
                    )
                    title = read.where(one) if edited else "no edit"
                    if len(row) > 1:
                        own = read.name(measure).removeprefix(_shared(list(map(read.name, row)))).strip(", ")
                        title = own if len(chosen) == 1 and not unedited else f"{own}, {title}"
                    found.append(picture.Line(title, range(len(each)), [*_interval(read, grid, values)]))
        signed = any(interval.mean is not None and interval.mean < 0 for line in found for interval in line.values)
        log = bool(row[0].meaning.facts.get("log"))
        panels.append([picture.Panel("", _wrapped(_row_label(read, row)), found, log, signed=signed)])
    figure = picture.lines(panels, "layer (0-based)", legend_above=True)
    caption = f"{_named(read, rows)}, in each layer."
    return read.drawing(f"{grids[0]}-by-layer-{_hyphens(rows[0][0])}", figure, caption, *map(read.store, grids))


@FigureWord.define()
def along(read: Readings, measure: Measure, argument: str, values: object, conditions: At) -> Drawing:
    """A measure against one of its own arguments, such as a key or a threshold: a line for each choice of conditions.

    Args:
        read: The stores.
        measure: The measure.
        argument: The name of its argument.
        values: The argument's values.
        conditions: One line each.
    """
    from sinkjax.report.figures import layers as picture

    chosen, xs = _tuple(conditions), read.scope.get(values)
    grids = [read.scope.get(one)[0] for one in chosen]
    other, free = {name: entry for name, entry in measure.arguments if name != argument}, Field(argument)

    def given(value: object) -> Measure:
        return type(measure)(measure.word, tuple({**other, argument: value}.items()))

    found = []
    for one, grid in zip(chosen, grids, strict=True):
        matched = matching(read.points(read.store(grid)), one, read.scope)
        means = np.stack([np.mean([read.value(given(x), grid, row) for row in matched], axis=0) for x in xs])
        found.append(picture.Line(read.where(one), list(xs), [*_interval(read, grid, means)]))
    name = label_of(given(free), read.scope.at({argument: f"[{argument}]"}))
    figure = picture.lines([[picture.Panel("", _wrapped(name), found)]], argument, legend_above=True)
    caption = f"{name[0].upper()}{name[1:]}, against {argument}."
    return read.drawing(f"{grids[0]}-along-{argument}-{_hyphens(measure)}", figure, caption, *map(read.store, grids))


@FigureWord.define()
def activations(read: Readings, conditions: At) -> Drawing:
    """Largest |h| by depth and position: no edit, and some conditions."""
    from sinkjax.report.figures import layers as picture

    chosen = _tuple(conditions)
    grids = [read.scope.get(one)[0] for one in chosen]
    few = slice(POSITIONS)
    shown = {"no edit": _largest(read, grids[0], 0)[..., few]}
    for one, grid in zip(chosen, grids, strict=True):
        for row in matching(read.points(read.store(grid)), one, read.scope):
            shown[read.points(read.store(grid))[row].label] = _largest(read, grid, row)[..., few]
    figure = picture.activations(np.stack(list(shown.values())), list(shown))
    caption = f"""Largest absolute value of the residual stream by depth and position (at most the first {POSITIONS} positions),
        mean over prompts, on one logarithmic colour scale."""
    return read.drawing("largest-activation", figure, caption, *map(read.store, grids), bands=False)


def _largest(read: Readings, grid: str, row: int) -> NDArray:
    found: NDArray = read.results[read.store(grid)]["resid_max"].isel(edit=row).mean("prompt").values
    return found


@FigureWord.define()
def received(read: Readings, keys: object, over: str) -> Drawing:
    """Attention that keys receive in each layer (up), against the edited layers (across)."""
    from sinkjax.report.figures import layers as picture

    points, data = read.points(over), read.results[over]["attention_received"]
    series = _drawable(_series(points))
    L = data.sizes["layer"]

    def columns(key: int, rows: Sequence[int]) -> NDArray:
        """A column for each layer, which is NaN where no condition ends."""
        found = np.full((L, L), np.nan)
        for row, values in zip(rows, data.isel(edit=rows).sel(key=key).mean(["prompt", "head"]).values, strict=True):
            found[points[row].x] = values
        return found

    grid = {
        f"attention to key {key}": {title: columns(key, rows) for title, rows in series.items()}
        for key in map(read.scope.get, _tuple(keys))
    }
    caption = """Attention that keys receive in each layer, against the edited layers. In a masked layer the key receives none;
        the layers above it show the effect on later layers."""
    return read.drawing("attention-by-layer", picture.received(grid, LAYERS), caption, over, bands=False)


@FigureWord.define()
def dots(read: Readings, measures: Measure, over: str) -> Drawing:
    """Means of the conditions of a grid side by side, and each of their controls as a mark of its own."""
    from sinkjax.report.figures.points import Point as Mark
    from sinkjax.report.figures.points import points as picture

    store, columns = read.store(over), {}
    points = read.points(store)
    for measure in _tuple(measures):
        found = []
        for row, point in enumerate(points):
            found.append(Mark(point.label, _interval(read, over, read.value(measure, over, row)[None])[0], "chosen"))
        drawn = f"{over}-controls"
        if drawn in read.results:
            for number, control in enumerate(read.points(drawn)):
                if control.draw >= 0:
                    mean = read.raw(measure, drawn, over, control.bound)[number].mean()
                    found.append(Mark(str(control.budget), intervals.interval([mean]), "random, of the same size"))
        columns[read.name(measure)] = found
    units = {measure.meaning.facts.get("unit", "") for measure in _tuple(measures)}
    figure = picture(columns, "mean over documents", shared=len(units) == 1)
    caption = "Means of each condition with 95% intervals, and each of its random controls as one mark."
    return read.drawing(f"{over}-and-controls", figure, caption, store)


@FigureWord.define()
def scatter(read: Readings, x: Measure, y: Measure, over: str) -> Drawing:
    """One measure against another: a dot for the mean of each condition of a grid."""
    from sinkjax.report.figures.scatter import Cloud
    from sinkjax.report.figures.scatter import scatter as picture

    points = read.points(over)
    clouds = []
    for title, rows in _series(points).items():
        across, up = (np.array([read.value(measure, over, row).mean() for row in rows]) for measure in (x, y))
        clouds.append(Cloud(title, across, up))
    figure = picture({"": clouds}, read.name(x), read.name(y), log="y" if y.meaning.facts.get("log") else False)
    caption = f"Each condition: {read.name(x)} against {read.name(y)}, means over prompts."
    return read.drawing(f"{over}-scatter", figure, caption, over, bands=False)


@FigureWord.define()
def maps(read: Readings, conditions: At, layers: object = F.map_layers, tokens: int = TOKENS) -> list[Drawing]:
    """Attention maps of one prompt: no edit, and some conditions; the page has them to step through, with continuations.

    Args:
        read: The stores.
        conditions: The conditions to show.
        layers: Which layers; none: an early, a middle and a late one.
        tokens: How many are drawn at most.
    """
    from sinkjax.report.figures import attention
    from sinkjax.studies.views import map_data

    found = []
    grids = list(dict.fromkeys(read.scope.get(one)[0] for one in _tuple(conditions)))
    for number, grid in enumerate(grids):
        store = map_name(grid, number)
        if store not in read.results:
            continue
        data = read.results[store]
        shown = map_data(data)
        there = [
            layer
            for layer in drawn_layers(read.scope.get(layers), read.scope.architecture.layers)
            if layer in shown["layer"].values
        ]
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
    """The layers of maps: those asked for, or an early, a middle and a late one."""
    return asked or tuple(sorted({0, L // 3, 2 * L // 3}))
