"""Figures as words. Titles, axes, legends and captions come from the drawn data; a study only names measures and grids.

Figures are drawn from the stores; a figure is omitted if its grid did not run.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import Absent
from sinkjax.report.section import Drawing
from sinkjax.studies.grids import SERIES, At, Point
from sinkjax.studies.readings import Readings
from sinkjax.studies.readouts import label_of
from sinkjax.studies.scope import FigureWord, Measure
from sinkjax.studies.words import Field, as_tuple

if TYPE_CHECKING:
    from sinkjax.analysis.intervals import Intervals
    from sinkjax.report.figures.layers import Line

FEWEST = 3  # minimum points of a line
LAYERS = "last edited layer (0-based)"
UNIT = re.compile(r" \([^()]*\)$")
JOINING = ("at", "from", "of", "on", "than", "the", "to")
wrapped = partial(textwrap.fill, width=30)


def series_of(points: Sequence[Point]) -> dict[str, list[int]]:
    """Group the conditions of a grid into series that can be drawn as lines."""
    found: dict[str, list[int]] = {}
    for row, point in enumerate(points):
        if point.place is not None:
            found.setdefault(point.series, []).append(row)
    return found


def drawable(points: Sequence[Point], over: str) -> dict[str, list[int]]:
    """Return the series of layers that make a line; prefixes go from the first layer to all. Raises Absent if there are none."""
    series = series_of(points)
    if prefixes := series.get(SERIES["prefixes"], []):
        first = [row for row in series.get(SERIES["each"], []) if points[row].x == 0 < points[prefixes[0]].x]
        series[SERIES["prefixes"]] = first + prefixes + series.get(SERIES["all"], [])
    found = {name: rows for name, rows in series.items() if len(rows) >= FEWEST}
    if not found:
        raise Absent(f"{over} has no {FEWEST} sets of layers that make a line")
    return found


def interval_of(read: Readings, grid: str, values: NDArray) -> Intervals:
    clusters = read.results.clusters(values.shape[-1], read.store(grid))
    return intervals.intervals(values, seed=read.scope.config.seed, clusters=clusters)


def row_label(read: Readings, measures: Sequence[Measure]) -> str:
    """Return the y label of measures that share a panel: the common part of their names."""
    names = [read.name(measure) for measure in measures]
    if len(names) == 1:
        return names[0]
    unit = names[0][names[0].rindex("(") :] if names[0].endswith(")") else ""
    return f"{shared_words(names).rstrip(', ')} {unit}".strip() or names[0]


def shared_words(names: Sequence[str]) -> str:
    """Return the leading words that all names share, without a trailing preposition or article."""
    head = names[0].split()
    while head and not (all(f"{name} ".startswith(f"{' '.join(head)} ") for name in names) and head[-1] not in JOINING):
        head.pop()
    return " ".join(head)


def own_words(names: Sequence[str]) -> list[str]:
    """Shorten series names on a shared axis by the words of its label, such as "key 0" for "heads that sink on key 0 (%)"."""
    shared = shared_words(names)
    if not shared or len(names) == 1:
        return list(names)
    return [f"{shared.split()[-1]} {UNIT.sub('', name.removeprefix(shared)).strip(', ')}".strip() for name in names]


def names_of(read: Readings, rows: Iterable[Sequence[Measure]]) -> str:
    """Name the measures of a figure, for the start of its caption."""
    what = "; ".join(", ".join(read.name(measure) for measure in row) for row in rows)
    return f"{what[0].upper()}{what[1:]}"


def titled(read: Readings, grid: str, caption: str) -> str:
    """Prepend the grid's title, if any, to a caption."""
    title = read.results.sweeps[grid].prefix
    return f"{title[0].upper()}{title[1:]}: {caption[0].lower()}{caption[1:]}" if title else caption


def hyphens(measure: Measure) -> str:
    """Return a measure's name for use in a file name."""
    return measure.word.replace("_", "-")


@FigureWord.define(axes=("x", "by"))
def lines(
    read: Readings, measures: Measure, over: str, x: str = "layers", effect: bool = False, log_x: bool = False, by: str = ""
) -> Drawing:
    """Measures along the conditions of a grid, with interval bands and a dashed line for no edit.

    Args:
        read: The stores.
        measures: One per row of panels, or a tuple of measures that share a row (or a panel, along an axis in a single place).
        over: The grid.
        x: "layers" (one column of panels per series of layers) or an axis (one line per place).
        effect: Whether to draw differences from no edit.
        log_x: Whether the x axis is logarithmic.
        by: Another axis, with one line per value; lines are means over all other axes.
    """
    from sinkjax.report.figures import layers as picture

    points = read.points(over)
    rows = [as_tuple(row) for row in as_tuple(measures)]
    series = drawable(points, over) if x == "layers" else {}
    grid: list[list[picture.Panel]] = []
    for row in rows:
        panels = []
        log = bool(row[0].meaning.facts.get("log")) and not effect
        label = wrapped(("effect on " if effect else "") + row_label(read, row))
        if x == "layers":
            for title, chosen in series.items():
                xs = [points[number].x for number in chosen]
                names = own_words([read.name(measure) for measure in row])
                cells = [[number] for number in chosen]
                found = [_line(read, measure, over, cells, xs, effect, name) for measure, name in zip(row, names, strict=True)]
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
                    named = ([f"{by} {value}"] if by else []) + ([place_label(read, points, place)] if several else [])
                    xs = list(by_x) if any(isinstance(one, str) for one in by_x) else sorted(by_x)
                    found.append(_line(read, measure, over, [by_x[one] for one in xs], xs, effect, ", ".join(named)))
                if len(groups) > 1 or measure == row[-1]:
                    title = read.name(measure) if len(groups) > 1 and len(row) > 1 else ""
                    panels.append(picture.Panel(title, label, found, log, signed=effect))
        grid.append(panels)
    figure = picture.lines(grid, LAYERS if x == "layers" else x, log_x=log_x, legend_above=x != "layers" and len(grid) > 1)
    caption = f"{names_of(read, rows)}, against {'the edited layers' if x == 'layers' else x}. Dashed: no edit."
    return read.drawing(f"{over}-{x}", figure, titled(read, over, caption), over)


def place_label(read: Readings, points: Sequence[Point], place: object) -> str:
    return next((point.where for point in points if point.place == place), str(place))


def _line(
    read: Readings, measure: Measure, grid: str, rows: Sequence[Sequence[int]], x: Sequence[Any], effect: bool, name: str = ""
) -> Line:
    """Draw a measure along conditions, as the mean of the rows at each x, with a dashed line for no edit."""
    from sinkjax.report.figures.layers import Line

    def along(edited: bool) -> NDArray:
        return np.stack([np.mean([read.value(measure, grid, row, edited) for row in there], axis=0) for there in rows])

    plain = along(edited=False)
    values = along(edited=True) - (plain if effect else 0)
    return Line(name or read.name(measure), list(x), [*interval_of(read, grid, values)], None if effect else float(plain.mean()))


@FigureWord.define()
def by_layer(read: Readings, measures: Measure, conditions: At, unedited: bool = True) -> Drawing:
    """Measures in each layer, with and without edits, averaged over the axes of a grid.

    Args:
        read: The stores.
        measures: Measures with an argument `layers`, a panel each; or tuples of several measures, a row of panels each, with
            a panel for each condition.
        conditions: One line, or one panel, each.
        unedited: Whether no edit is one of them.
    """
    from sinkjax.report.figures import layers as picture
    from sinkjax.studies.places import layer

    chosen, rows = as_tuple(conditions), [as_tuple(row) for row in as_tuple(measures)]
    grids = [read.scope.get(one)[0] for one in chosen]
    cases = [(one, grid, True) for one, grid in zip(chosen, grids, strict=True)]
    cases = [(*cases[0][:2], False), *cases] if unedited else cases
    titles = [read.where(one) if edited else "no edit" for one, _, edited in cases]

    def line(name: str, measure: Measure, one: At, grid: str, edited: bool) -> picture.Line:
        each = [measure.but(layers=layer(number)) for number in range(read.scope.architecture.layers)]
        matched = read.rows(one)
        means = [np.mean([read.value(part, grid, point, edited) for point in matched], axis=0) for part in each]
        return picture.Line(name, range(len(each)), [*interval_of(read, grid, np.stack(means))])

    panels = []
    for row in rows:
        if len(row) == 1:  # one panel, a line for each condition
            found = {"": [line(title, row[0], *case) for title, case in zip(titles, cases, strict=True)]}
        else:  # a panel for each condition, a line for each measure
            shared = shared_words(list(map(read.name, row)))
            names = [read.name(measure).removeprefix(shared).strip(", ") for measure in row]
            found = {
                title if len(cases) > 1 else "": [line(name, measure, *case) for name, measure in zip(names, row, strict=True)]
                for title, case in zip(titles, cases, strict=True)
            }
        means = [one.mean for drawn in found.values() for each in drawn for one in each.values]
        signed = any(mean is not None and mean < 0 for mean in means)
        log = bool(row[0].meaning.facts.get("log"))
        label = wrapped(row_label(read, row))
        panels.append([picture.Panel(title, label, drawn, log, signed) for title, drawn in found.items()])
    legends = {tuple(line.name for line in row[0].lines) for row in panels}
    figure = picture.lines(panels, "layer (0-based)", legend_above=len(legends) == 1)
    caption = f"{names_of(read, rows)}, in each layer."
    return read.drawing(f"{grids[0]}-by-layer-{hyphens(rows[0][0])}", figure, caption, *map(read.store, grids))


@FigureWord.define()
def along(read: Readings, measure: Measure, argument: str, values: object, conditions: At) -> Drawing:
    """A measure against one of its own arguments, such as a key or a threshold: with one line per choice of conditions.

    Args:
        read: The stores.
        measure: The measure.
        argument: The name of its argument.
        values: The argument's values.
        conditions: One line each.
    """
    from sinkjax.report.figures import layers as picture

    chosen, xs = as_tuple(conditions), read.scope.get(values)
    grids = [read.scope.get(one)[0] for one in chosen]
    found = []
    for one, grid in zip(chosen, grids, strict=True):
        matched = read.rows(one)
        each = [measure.but(**{argument: x}) for x in xs]
        means = np.stack([np.mean([read.value(part, grid, row) for row in matched], axis=0) for part in each])
        found.append(picture.Line(read.where(one), list(xs), [*interval_of(read, grid, means)]))
    name = label_of(measure.but(**{argument: Field(argument)}), read.scope.at({argument: f"[{argument}]"}))
    figure = picture.lines([[picture.Panel("", wrapped(name), found)]], argument, legend_above=True)
    caption = f"{name[0].upper()}{name[1:]}, against {argument}."
    return read.drawing(f"{grids[0]}-along-{argument}-{hyphens(measure)}", figure, caption, *map(read.store, grids))
