"""Figures of sweeps: lines, heat maps, maps of one prompt. Titles, axes, legends and captions come from what is drawn.

Each takes the stores first and is omitted if its sweep did not run.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import Absent
from sinkjax.report.figures import dots as dot_figures
from sinkjax.report.figures import heatmaps
from sinkjax.report.figures import lines as line_panels
from sinkjax.report.figures.lines import Line, Panel
from sinkjax.report.section import Drawing
from sinkjax.study.measures import Measure
from sinkjax.study.numbers import CONTROLS, Stored
from sinkjax.study.places import ALL, FIRST_LAYERS, ONE_LAYER, Place, each
from sinkjax.study.work import Point, Sweep, Where

FEWEST = 3  # minimum points of a line
POSITIONS = 24  # positions drawn per prompt, so that columns are visible
LAYERS = "layer l (0-based)"
UNIT = re.compile(r" \([^()]*\)$")
JOINING = ("at", "from", "of", "on", "than", "the", "to")
wrapped = partial(textwrap.fill, width=30)
Measures = Measure | Sequence[Measure]


def together(measures: Measures) -> list[Measure]:
    """Return one or several measures as a list."""
    return [measures] if isinstance(measures, Measure) else list(measures)


def series_of(chosen: Sequence[Point]) -> dict[str, list[Point]]:
    """Group the conditions of a sweep into series that can be drawn as lines."""
    found: dict[str, list[Point]] = {}
    for point in chosen:
        if point.case is not None:
            found.setdefault(point.series, []).append(point)
    return found


def drawable(chosen: Sequence[Point], sweep: Sweep) -> dict[str, list[Point]]:
    """Return the series of layers that make a line; prefixes go from the first layer to all. Raises Absent if there are none."""
    series = series_of(chosen)
    if prefixes := series.get(FIRST_LAYERS, []):
        first = [point for point in series.get(ONE_LAYER, []) if point.x == 0 < prefixes[0].x]
        series[FIRST_LAYERS] = first + prefixes + series.get(ALL.label, [])
    found = {name: rows for name, rows in series.items() if len(rows) >= FEWEST}
    if not found:
        raise Absent(f"{sweep.name} has no {FEWEST} sets of layers that make a line")
    return found


def shared_words(names: Sequence[str]) -> str:
    """Return the leading words that all names share, without a trailing preposition or article."""
    head = names[0].split()
    while head and not (all(f"{name} ".startswith(f"{' '.join(head)} ") for name in names) and head[-1] not in JOINING):
        head.pop()
    return " ".join(head)


def row_label(measures: Sequence[Measure]) -> str:
    """Return the y label of measures that share a panel: the common part of their names."""
    names = [measure.name for measure in measures]
    if len(names) == 1:
        return names[0]
    unit = names[0][names[0].rindex("(") :] if names[0].endswith(")") else ""
    return f"{shared_words(names).rstrip(', ')} {unit}".strip() or names[0]


def own_words(measures: Sequence[Measure]) -> list[str]:
    """Shorten names on a shared axis by the words of its label, such as "key 0" for "heads that sink on key 0 (%)"."""
    names = [measure.name for measure in measures]
    shared = shared_words(names)
    if not shared or len(names) == 1:
        return names
    return [f"{shared.split()[-1]} {UNIT.sub('', name.removeprefix(shared)).strip(', ')}".strip() for name in names]


def names_of(rows: Iterable[Sequence[Measure]]) -> str:
    """Name the measures of a figure, for the start of its caption."""
    what = "; ".join(", ".join(measure.name for measure in row) for row in rows)
    return f"{what[0].upper()}{what[1:]}"


def titled(sweep: Sweep, caption: str) -> str:
    """Put a sweep's title, if any, before a caption."""
    title = sweep.title
    return f"{title[0].upper()}{title[1:]}: {caption[0].lower()}{caption[1:]}" if title else caption


def file_name(measure: Measure) -> str:
    """Return a measure's name for use in a file name."""
    return re.sub(r"\W+", "-", UNIT.sub("", measure.name)).strip("-").lower()


def _line(
    read: Stored, measure: Measure, sweep: Sweep, rows: Sequence[Sequence[Point]], x: Sequence[Any], effect: bool, name: str = ""
) -> Line:
    """Draw a measure along conditions, as the mean of those at each x, with a dashed line for no edit."""

    def along(edited: bool) -> NDArray[Any]:
        return np.stack([np.mean([read.value(measure, sweep, one.case, edited) for one in there], axis=0) for there in rows])

    plain = along(edited=False)
    values = along(edited=True) - (plain if effect else 0)
    return Line(name or measure.name, list(x), [*read.intervals(sweep, values)], None if effect else float(plain.mean()))


def lines(read: Stored, *rows: Measures, over: Sweep, effect: bool = False) -> Drawing:
    """Draw measures against the edited layers, with interval bands and a dashed line for no edit: a column for each series.

    Args:
        read: The stores.
        *rows: For each row of panels, one measure, or several that share it.
        over: The sweep.
        effect: Whether to draw differences from no edit.
    """
    panels: list[list[Panel]] = []
    series = drawable(read.points(read.store(over)), over)
    for row in map(together, rows):
        label, log = wrapped(("effect on " if effect else "") + row_label(row)), row[0].log and not effect
        panels.append([])
        for title, chosen in series.items():
            xs, cells = [point.x for point in chosen], [[point] for point in chosen]
            found = [_line(read, one, over, cells, xs, effect, name) for one, name in zip(row, own_words(row), strict=True)]
            panels[-1].append(Panel(title, label, found, log, signed=effect))
    figure = line_panels.lines(panels, LAYERS)
    caption = f"{names_of(map(together, rows))}, against the edited layers. Dashed: no edit."
    return read.drawing(f"{over.name}-layers", figure, titled(over, caption), over.name)


def lines_along(
    read: Stored, axis: str, *rows: Measures, over: Sweep, by: str = "", effect: bool = False, log_x: bool = False
) -> Drawing:
    """Draw measures against an axis of a sweep, with a line for each place, and a dashed one for no edit.

    Args:
        read: The stores.
        axis: The axis.
        *rows: For each row of panels, one measure, or several that share it.
        over: The sweep.
        by: Another axis, with one line per value; lines are means over all other axes.
        effect: Whether to draw differences from no edit.
        log_x: Whether the x axis is logarithmic.
    """
    panels: list[list[Panel]] = []
    groups: dict[tuple[Place, object], dict[Any, list[Point]]] = {}
    for point in read.points(read.store(over)):
        if point.case is not None:
            bound = dict(point.case.axes)
            groups.setdefault((point.case.place, bound.get(by)), {}).setdefault(bound[axis], []).append(point)
    several = len({place for place, _ in groups}) > 1
    for row in map(together, rows):
        label, log = wrapped(("effect on " if effect else "") + row_label(row)), row[0].log and not effect
        shared: list[Line] = []
        panels.append([])
        for measure in row:
            found = shared if len(groups) == 1 else []
            for (place, value), by_x in groups.items():
                named = ([f"{by} {value}"] if by else []) + ([place.label] if several else [])
                xs = list(by_x) if any(isinstance(one, str) for one in by_x) else sorted(by_x)
                found.append(_line(read, measure, over, [by_x[one] for one in xs], xs, effect, ", ".join(named)))
            if len(groups) > 1 or measure == row[-1]:
                title = measure.name if len(groups) > 1 and len(row) > 1 else ""
                panels[-1].append(Panel(title, label, found, log, signed=effect))
    figure = line_panels.lines(panels, axis, "above" if len(panels) > 1 else "first", log_x)
    caption = f"{names_of(map(together, rows))}, against {axis}. Dashed: no edit."
    return read.drawing(f"{over.name}-{axis}", figure, titled(over, caption), over.name)


def by_layer(
    read: Stored,
    *rows: Callable[..., Measure] | Sequence[Callable[..., Measure]],
    conditions: Sequence[Where],
    unedited: bool = True,
) -> Drawing:
    """Draw measures in each layer, with and without edits, averaged over the axes of a sweep.

    Args:
        read: The stores.
        *rows: For each row, a function from `layers` to a measure, in one panel with a line for each condition; or several, with
            a panel for each condition.
        conditions: The conditions.
        unedited: Whether no edit is one of them.
    """
    cases = [(one, True) for one in conditions]
    cases = [(conditions[0], False), *cases] if unedited else cases
    titles = [one.text if edited else "no edit" for one, edited in cases]

    def line(name: str, make: Callable[..., Measure], one: Where, edited: bool) -> Line:
        measures = [make(layers=place) for place in each(int(read.architecture.layers))]
        means = [np.mean([read.value(part, one.sweep, case, edited) for case in one.cases], axis=0) for part in measures]
        return Line(name, range(len(measures)), [*read.intervals(one.sweep, np.stack(means))])

    panels, named = [], []
    for row in rows:
        makes = [row] if callable(row) else list(row)
        measures = [make(layers=ALL) for make in makes]
        named.append(measures)
        if len(makes) == 1:
            found = {"": [line(title, makes[0], *case) for title, case in zip(titles, cases, strict=True)]}
        else:
            shared = shared_words([measure.name for measure in measures])
            names = [measure.name.removeprefix(shared).strip(", ") for measure in measures]
            found = {
                title if len(cases) > 1 else "": [line(name, make, *case) for name, make in zip(names, makes, strict=True)]
                for title, case in zip(titles, cases, strict=True)
            }
        means = [one.mean for drawn in found.values() for curve in drawn for one in curve.values]
        signed = any(mean is not None and mean < 0 for mean in means)
        label = wrapped(row_label(measures))
        panels.append([Panel(title, label, drawn, measures[0].log, signed) for title, drawn in found.items()])
    legends = {tuple(one.name for one in row[0].lines) for row in panels}
    figure = line_panels.lines(panels, "layer (0-based)", "above" if len(legends) == 1 else "first")
    stores = [read.store(one.sweep) for one in conditions]
    name = f"{conditions[0].sweep.name}-by-layer-{file_name(named[0][0])}"
    return read.drawing(name, figure, f"{names_of(named)}, in each layer.", *stores)


def heatmap(read: Stored, *measures: Measure, over: Sweep, axis: str) -> Drawing:
    """Draw heat maps of mean measures, one row each: places of a sweep across, values of an axis upwards."""
    chosen = [(point, point.case) for point in read.points(over.name) if point.case is not None]
    ticks = list(dict.fromkeys(dict(case.axes)[axis] for _, case in chosen))
    single: dict[str, list[Any]] = {}
    several: dict[str, list[Any]] = {}
    for _, case in chosen:
        label = case.place.label
        (single if label.startswith("layer ") else several).setdefault(_short(label), []).append(case)
    kinds = (("one edited layer", "layer (0-based)", single), ("several", "edited layers", several))
    columns = [(heatmaps.MapColumn(title, list(cells), xlabel), cells) for title, xlabel, cells in kinds if cells]
    shown = []
    for measure in measures:
        values = []
        for _, cells in columns:
            found = np.full((len(cells), len(ticks)), np.nan)
            for number, cases in enumerate(cells.values()):
                for place, tick in enumerate(ticks):
                    there = [read.value(measure, over, case) for case in cases if dict(case.axes)[axis] == tick]
                    if there:
                        found[number, place] = np.mean(there)
            values.append(found)
        limits = None if measure.log else (0.0, max(1.0, *(float(np.nanmax(part)) for part in values)))
        shown.append(heatmaps.MapRow(values, wrapped(measure.name), limits, measure.log))
    figure = heatmaps.grids([column for column, _ in columns], shown, list(map(str, ticks)), axis)
    caption = f"{names_of([one] for one in measures)}, by edited layers and {axis}; means over prompts."
    return read.drawing(f"{over.name}-by-{axis}", figure, caption, over.name, bands=False)


def _short(label: str) -> str:
    """Shorten the layers of a place for a tick label."""
    return label.removeprefix("layers ").removeprefix("layer ").replace("the one in which", "where")


def activations(read: Stored, *conditions: Where) -> Drawing:
    """Draw the largest |h| by depth and position, under the baseline of a sweep and some conditions."""
    few = slice(POSITIONS)

    def sizes(store: str, row: int) -> NDArray[Any]:
        return np.asarray(read[store]["resid_max"].isel(edit=row).mean("prompt").values[..., few])

    stores = [read.store(one.sweep) for one in conditions]
    shown = {read.points(stores[0])[0].label: sizes(stores[0], 0)}
    for one, store in zip(conditions, stores, strict=True):
        rows = read.rows(store)
        shown |= {read.points(store)[rows[case]].label: sizes(store, rows[case]) for case in one.cases}
    figure = heatmaps.activations(np.stack(list(shown.values())), list(shown))
    caption = f"""Largest absolute value of the residual stream by depth and position (at most the first {POSITIONS} positions),
        mean over prompts, on one logarithmic colour scale."""
    return read.drawing("largest-activation", figure, caption, *stores, bands=False)


def dots(read: Stored, *measures: Measure, over: Sweep) -> Drawing:
    """Draw means of a sweep's conditions side by side, with each control as its own mark."""
    store, drawn, columns = read.store(over), f"{over.name}{CONTROLS}", {}
    there = drawn in read
    for measure in measures:
        values = [read.value(measure, over, point.case) for point in read.points(store)]
        means = [read.intervals(over, one[None])[0] for one in values]
        found = [dot_figures.Mark(one.label, mean, "chosen") for one, mean in zip(read.points(store), means, strict=True)]
        for case in over.edits if there else ():
            label, random = over.label(case), read.drawn(measure, over, case)
            found += [
                dot_figures.Mark(label, intervals.interval([one.mean()]), "random, of the same size")
                for one in (() if random is None else random)
            ]
        columns[measure.name] = found
    figure = dot_figures.points(columns, "mean over documents", shared=len({measure.unit for measure in measures}) == 1)
    controls = ", and each of its random controls as one mark" if there else ""
    caption = titled(over, f"Means of each condition with 95% intervals{controls}.")
    return read.drawing(f"{over.name}-and-controls", figure, caption, store, bands=False)
