"""Figures of sweeps: lines, heat maps, maps of one prompt. Titles, axes, legends and captions come from the drawn data.

Each takes the stores first and is omitted if its sweep did not run.
"""

from __future__ import annotations

import dataclasses
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
from sinkjax.study.layers import ALL, FIRST_LAYERS, ONE_LAYER, Layers, each
from sinkjax.study.measures import Measure
from sinkjax.study.numbers import CONTROLS, Numbers
from sinkjax.study.work import Condition, Selection, Sweep

FEWEST = 3  # minimum points of a line
FEW = 4  # maximum lines of a single panel whose legend stands in it
POSITIONS = 24  # positions drawn per prompt, so that columns are visible
LAYERS = "layer l (0-based)"
UNIT = re.compile(r" \([^()]*\)$")
JOINING = ("at", "from", "of", "on", "than", "the", "to")
wrapped = partial(textwrap.fill, width=30)
Measures = Measure | Sequence[Measure]


def together(measures: Measures) -> list[Measure]:
    """Return one or several measures as a list."""
    return [measures] if isinstance(measures, Measure) else list(measures)


def series_of(conditions: Sequence[Condition]) -> dict[str, list[Condition]]:
    """Group the edited conditions of a sweep into series that can be drawn as lines."""
    series: dict[str, list[Condition]] = {}
    for condition in conditions:
        if condition.case is not None:
            series.setdefault(condition.series, []).append(condition)
    return series


def drawable(numbers: Numbers, over: Sweep) -> dict[str, list[Layers]]:
    """Return the series of layers that make a line; prefixes go from the first layer to all. Raises Absent if there are none."""
    series = {
        name: [one.case for one in of if one.case] for name, of in series_of(numbers.conditions(numbers.store(over))).items()
    }
    if prefixes := series.get(FIRST_LAYERS, []):
        first = [case for case in series.get(ONE_LAYER, []) if case.x == 0 < prefixes[0].x]
        every = [dataclasses.replace(case, x=int(numbers.architecture.layers) - 1) for case in series.get(ALL.label, [])]
        series[FIRST_LAYERS] = first + prefixes + every
    lines = {name: cases for name, cases in series.items() if len(cases) >= FEWEST}
    if not lines:
        raise Absent(f"{over.name} has no {FEWEST} sets of layers that make a line")
    return lines


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


def short_names(measures: Sequence[Measure]) -> list[str]:
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


def _line(numbers: Numbers, measure: Measure, sweep: Sweep, by_x: dict[Any, list[Layers]], effect: bool, name: str = "") -> Line:
    """Draw a measure along conditions, as the mean of those at each x, with a dashed line for no edit."""

    def along(edited: bool) -> NDArray[Any]:
        values = ([numbers.value(measure, sweep, case, edited) for case in cases] for cases in by_x.values())
        return np.stack([np.mean(at_x, axis=0) for at_x in values])

    plain = along(edited=False)
    values = along(edited=True) - (plain if effect else 0)
    return Line(name or measure.name, [*by_x], [*numbers.intervals(sweep, values)], None if effect else float(plain.mean()))


def _panel(title: str, row: Sequence[Measure], drawn: list[Line], effect: bool) -> Panel:
    label = wrapped(("effect on " if effect else "") + row_label(row))
    return Panel(title, label, drawn, row[0].log and not effect, signed=effect)


def lines(numbers: Numbers, *rows: Measures, over: Sweep, effect: bool = False) -> Drawing:
    """Draw measures against the edited layers, with interval bands and a dashed line for no edit: a column for each series.

    Args:
        numbers: The stores.
        *rows: For each row of panels, one measure, or several that share it.
        over: The sweep.
        effect: Whether to draw differences from no edit.
    """
    panels: list[list[Panel]] = []
    for row in map(together, rows):
        panels.append([])
        for title, cases in drawable(numbers, over).items():
            by_x = {case.x: [case] for case in cases}
            names = zip(row, short_names(row), strict=True)
            panels[-1].append(_panel(title, row, [_line(numbers, one, over, by_x, effect, name) for one, name in names], effect))
    figure = line_panels.lines(panels, LAYERS)
    caption = f"{names_of(map(together, rows))}, against the edited layers. Dashed: no edit."
    return numbers.drawing(f"{over.name}-layers", figure, titled(over, caption), over.name)


def lines_along(
    numbers: Numbers, axis: str, *rows: Measures, over: Sweep, by: str = "", effect: bool = False, log_x: bool = False
) -> Drawing:
    """Draw measures against an axis of a sweep, with a line for each set of layers, and a dashed one for no edit.

    Args:
        numbers: The stores.
        axis: The axis.
        *rows: For each row of panels, one measure, or several that share it.
        over: The sweep.
        by: Another axis, with one line per value; lines are means over all other axes.
        effect: Whether to draw differences from no edit.
        log_x: Whether the x axis is logarithmic.
    """
    groups: dict[tuple[str, object], dict[Any, list[Layers]]] = {}
    for condition in numbers.conditions(numbers.store(over)):
        if (case := condition.case) is not None:
            groups.setdefault((case.label, dict(case.axes).get(by)), {}).setdefault(case[axis], []).append(case)
    several = len({label for label, _ in groups}) > 1
    panels: list[list[Panel]] = []
    for row in map(together, rows):
        drawn: dict[str, list[Line]] = {}  # by the title of their panel
        for measure in row:
            title = measure.name if len(groups) > 1 and len(row) > 1 else ""
            for (label, value), by_x in groups.items():
                name = ", ".join([f"{by} {value}"] * bool(by) + [label] * several)
                ordered = by_x if any(isinstance(x, str) for x in by_x) else dict(sorted(by_x.items()))
                drawn.setdefault(title, []).append(_line(numbers, measure, over, ordered, effect, name))
        panels.append([_panel(title, row, of, effect) for title, of in drawn.items()])
    figure = line_panels.lines(panels, axis, "above" if len(panels) > 1 or len(groups) > FEW else "first", log_x)
    caption = f"{names_of(map(together, rows))}, against {axis}. Dashed: no edit."
    return numbers.drawing(f"{over.name}-{axis}", figure, titled(over, caption), over.name)


def by_layer(
    numbers: Numbers,
    *rows: Callable[..., Measure] | Sequence[Callable[..., Measure]],
    conditions: Sequence[Selection],
    unedited: bool = True,
) -> Drawing:
    """Draw measures in each layer, with and without edits, averaged over the axes of a sweep.

    Args:
        numbers: The stores.
        *rows: For each row, a function from `layers` to a measure, in one panel with a line for each condition; or
            several such functions, with a panel for each condition.
        conditions: The conditions.
        unedited: Whether to include the unedited model.
    """
    titles = {"no edit": (conditions[0], False)} if unedited else {}
    titles |= {one.text: (one, True) for one in conditions}

    def line(name: str, make: Callable[..., Measure], selection: Selection, edited: bool) -> Line:
        measures, sweep = [make(layers=one) for one in each(int(numbers.architecture.layers))], selection.sweep
        means = [np.mean([numbers.value(one, sweep, case, edited) for case in selection.cases], axis=0) for one in measures]
        return Line(name, range(len(measures)), [*numbers.intervals(sweep, np.stack(means))])

    panels, named = [], []
    for row in rows:
        makes = [row] if callable(row) else list(row)
        measures = [make(layers=ALL) for make in makes]
        named.append(measures)
        drawn: dict[str, list[Line]] = {}
        for title, case in titles.items():
            for make, measure in zip(makes, measures, strict=True):
                short = measure.name.removeprefix(shared_words([one.name for one in measures])).strip(", ")
                panel, name = ("", title) if len(makes) == 1 else (title if len(titles) > 1 else "", short)
                drawn.setdefault(panel, []).append(line(name, make, *case))
        means = [one.mean for curves in drawn.values() for curve in curves for one in curve.values]
        signed = any(mean is not None and mean < 0 for mean in means)
        label = wrapped(row_label(measures))
        panels.append([Panel(panel, label, curves, measures[0].log, signed) for panel, curves in drawn.items()])
    legends = {tuple(one.name for one in row[0].lines) for row in panels}
    figure = line_panels.lines(panels, "layer (0-based)", "above" if len(legends) == 1 else "first")
    first = re.sub(r"\W+", "-", UNIT.sub("", named[0][0].name)).strip("-").lower()
    stores = [numbers.store(one.sweep) for one in conditions]
    return numbers.drawing(f"{stores[0]}-by-layer-{first}", figure, f"{names_of(named)}, in each layer.", *stores)


def heatmap(numbers: Numbers, *measures: Measure, over: Sweep, axis: str) -> Drawing:
    """Draw heat maps of mean measures, one row each: layers of a sweep across, values of an axis upwards."""
    cases = [one.case for one in numbers.conditions(over.name) if one.case is not None]
    ticks = list(dict.fromkeys(case[axis] for case in cases))
    single: dict[str, list[Layers]] = {}
    several: dict[str, list[Layers]] = {}
    for case in cases:
        short = case.label.removeprefix("layers ").removeprefix("layer ").replace("the one in which", "where")
        (single if case.label.startswith("layer ") else several).setdefault(short, []).append(case)
    kinds = (("one edited layer", "layer (0-based)", single), ("several", "edited layers", several))
    columns = [(heatmaps.MapColumn(title, list(cells), xlabel), cells) for title, xlabel, cells in kinds if cells]

    def mean(measure: Measure, cell: list[Layers], tick: object) -> float:
        values = [numbers.value(measure, over, case) for case in cell if case[axis] == tick]
        return float(np.mean(values)) if values else np.nan

    shown = []
    for measure in measures:
        values = [np.array([[mean(measure, cell, tick) for tick in ticks] for cell in cells.values()]) for _, cells in columns]
        limits = None if measure.log else (0.0, max(1.0, *(float(np.nanmax(part)) for part in values)))
        shown.append(heatmaps.MapRow(values, wrapped(measure.name), limits, measure.log))
    figure = heatmaps.grids([column for column, _ in columns], shown, list(map(str, ticks)), axis)
    caption = f"{names_of([one] for one in measures)}, by edited layers and {axis}; means over prompts."
    return numbers.drawing(f"{over.name}-by-{axis}", figure, caption, over.name, bands=False)


def activations(numbers: Numbers, *conditions: Selection) -> Drawing:
    """Draw the largest |h| by depth and position, under the baseline of a sweep and some conditions."""
    shown: dict[str, NDArray[Any]] = {}
    stores = [numbers.store(one.sweep) for one in conditions]
    for selection, store in zip(conditions, stores, strict=True):
        rows, sizes = numbers.rows(store), numbers[store]["resid_max"]
        for row in [0] * (not shown) + [rows[case] for case in selection.cases]:
            shown[numbers.conditions(store)[row].label] = sizes.isel(edit=row).mean("prompt").values[..., :POSITIONS]
    figure = heatmaps.activations(np.stack(list(shown.values())), list(shown))
    caption = f"""Largest absolute value of the residual stream by depth and position (at most the first {POSITIONS} positions),
        mean over prompts, on one logarithmic colour scale."""
    return numbers.drawing("largest-activation", figure, caption, *stores, bands=False)


def dots(numbers: Numbers, *measures: Measure, over: Sweep) -> Drawing:
    """Draw means of a sweep's conditions side by side, with each control as its own mark."""
    store, columns = numbers.store(over), {}
    controlled = f"{over.name}{CONTROLS}" in numbers
    for measure in measures:
        marks = []
        for condition in numbers.conditions(store):
            mean = numbers.intervals(over, numbers.value(measure, over, condition.case)[None])[0]
            marks.append(dot_figures.Mark(condition.label, mean, "chosen"))
        for case in over.edits if controlled else ():
            drawn = numbers.drawn(measure, over, case)
            means = [] if drawn is None else [intervals.interval([one.mean()]) for one in drawn]
            marks += [dot_figures.Mark(over.label(case), mean, "random, of the same size") for mean in means]
        columns[measure.name] = marks
    figure = dot_figures.points(columns, "mean over documents", shared=len({measure.unit for measure in measures}) == 1)
    controls = ", and each of its random controls as one mark" if controlled else ""
    caption = titled(over, f"Means of each condition with 95% intervals{controls}.")
    return numbers.drawing(f"{over.name}-and-controls", figure, caption, store, bands=False)
