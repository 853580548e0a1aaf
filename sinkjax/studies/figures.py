"""The figures that studies share, each a function of the results; captions say what is drawn, and from which data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkjax.analysis.estimates import constant, present
from sinkjax.checkpoints.presets import named
from sinkjax.errors import SinkjaxError
from sinkjax.report.section import Drawing
from sinkjax.studies import folder
from sinkjax.studies.specs import SWEEP
from sinkjax.studies.study import Measure

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure as Picture

    from sinkjax.report.figures import layers
    from sinkjax.report.figures.layers import Line
    from sinkjax.report.figures.points import Point
    from sinkjax.studies.results import Results

Figure = Callable[["Results"], Drawing | None]
TOKENS, POSITIONS = 20, 24  # drawn of each prompt, so that a tick is legible and a column is visible


@dataclass(frozen=True)
class Panel:
    """Axes of lines along the x of conditions.

    curves: name in the legend -> (measure, labels of conditions). title: above it. ylabel: shared along a row. effect: whether
    effects are drawn instead of values. baseline: label of the condition drawn as a dashed line, once for each measure, "" for
    none. log: whether y is logarithmic. x: where the labels stand, None for the x of their conditions. published: name in the
    legend -> (x, numbers of a paper), drawn beside.
    """

    ylabel: str
    curves: Mapping[str, tuple[Measure, Sequence[str]]]
    title: str = ""
    effect: bool = False
    baseline: str = ""
    log: bool = False
    published: Mapping[str, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)
    x: Sequence[float] | None = None


def panels(ylabel: str, curves: Mapping[str, Measure], columns: Mapping[str, Sequence[str]], **options: Any) -> list[Panel]:
    """A row of panels with the same curves over conditions of their own.

    Args:
        ylabel: Of the y axis that the panels share.
        curves: Name in the legend -> measure.
        columns: Title of a panel -> labels of its conditions.
        **options: Further fields of each `Panel`.

    Returns:
        The panels, in the order of `columns`.
    """
    return [
        Panel(ylabel, {name: (measure, labels) for name, measure in curves.items()}, title, **options)
        for title, labels in columns.items()
    ]


def lines(
    name: str,
    xlabel: str,
    grid: Sequence[Sequence[Panel]],
    caption: str,
    store: str | Sequence[str] = SWEEP,
    **options: Any,
) -> Figure:
    """Measures along the x of conditions, with bands for their intervals; panels on a sweep that did not run are left out.

    Args:
        name, caption, store: As for `drawn`.
        xlabel: Of the x axis, which all panels share.
        grid: Rows of panels; those of one row share their y axis.
        **options: As for `report.figures.layers.lines`.

    Returns:
        The figure, for `Study.figures`.

    Raises:
        SinkjaxError: Panels of one row differ in their `ylabel`.
    """

    for row in grid:
        if len({panel.ylabel for panel in row}) > 1:
            labels = ", ".join(repr(panel.ylabel) for panel in row)
            raise SinkjaxError(f"figure {name}: panels of one row share their y axis, so they need one ylabel, not {labels}")

    def axes(panel: Panel, results: Results) -> layers.Panel:
        from sinkjax.report.figures import layers

        found = _curves(results, panel)
        found += [layers.Line(curve, x, list(map(constant, values))) for curve, (x, values) in panel.published.items()]
        return layers.Panel(panel.title, panel.ylabel, found, panel.log, signed=panel.effect)

    def picture(results: Results) -> Picture:
        from sinkjax.report.figures import layers

        return layers.lines([present([partial(axes, panel) for panel in row], results) for row in grid], xlabel, **options)

    return drawn(name, picture, caption, store)


def curves(
    name: str,
    xlabel: str,
    grid: Callable[[Results], Sequence[Sequence[layers.Panel]]],
    caption: str,
    store: str | Sequence[str] = SWEEP,
    bands: bool = True,
    over: str = "prompt",
    text: bool = True,
    **options: Any,
) -> Figure:
    """Panels of lines that a study computes itself (`Results.panel`, `ranges`).

    Args:
        name, caption, store, bands, over, text: As for `drawn`.
        xlabel: Of the x axis, which all panels share.
        grid: Results -> rows of panels; those of one row share their y axis.
        **options: As for `report.figures.layers.lines`.

    Returns:
        The figure, for `Study.figures`.
    """

    def picture(results: Results) -> Picture:
        from sinkjax.report.figures import layers

        return layers.lines(grid(results), xlabel, **options)

    return drawn(name, picture, caption, store, bands, text, over)


def points(
    name: str,
    xlabel: str,
    columns: Callable[[Results], Mapping[str, Sequence[Point]]],
    caption: str,
    store: str | Sequence[str] = SWEEP,
    limits: tuple[float, float] | None = None,
) -> Figure:
    """Single numbers side by side.

    Args:
        name, caption, store: As for `drawn`.
        xlabel: Of the x axis, which all panels share.
        columns: Results -> title of a panel -> its points.
        limits: The ends of the x axis; None: chosen from the numbers.

    Returns:
        The figure, for `Study.figures`.
    """

    def picture(results: Results) -> Picture:
        from sinkjax.report.figures.points import points

        return points(columns(results), xlabel, limits)

    return drawn(name, picture, caption, store)


def _curves(results: Results, panel: Panel) -> list[Line]:
    """The lines of a panel; the baseline of a measure belongs to the first that shows it."""
    dashed: set[str] = set()
    found = []
    for curve, (measure, labels) in panel.curves.items():
        baseline = "" if measure.name in dashed else panel.baseline
        found.append(results.line(curve, measure, labels, panel.effect, baseline, panel.x))
        dashed.add(measure.name)
    return found


def drawn(
    name: str,
    picture: Callable[[Results], Picture | None],
    caption: str,
    store: str | Sequence[str] = SWEEP,
    bands: bool = True,
    text: bool = True,
    over: str = "prompt",
) -> Figure:
    """A figure that a study draws itself.

    Args:
        name: Of its files, unique in a study.
        picture: Results -> the figure of matplotlib, or None where there is nothing to draw.
        caption: What it shows and how to read it. Intervals, prompts, model, precision, BOS and text are said after it.
        store: One or several, those that exist are drawn.
        bands: Whether it has intervals.
        text: Whether the numbers depend on a text.
        over: The dimension that intervals are over.

    Returns:
        The figure, for `Study.figures`: results -> drawing, or None where there is nothing to draw.
    """

    def draw(results: Results) -> Drawing | None:
        figure = picture(results)
        if figure is None:
            return None
        stores = [store] if isinstance(store, str) else [one for one in store if one not in results.absent]
        first, *others = (results[one] for one in stores)
        return Drawing(name, figure, f"{' '.join(caption.split())} {source(first, bands, others, text, over)}")

    return draw


def activations(
    name: str,
    labels: Callable[[Results], Mapping[str, str]],
    store: str | Sequence[str] = SWEEP,
    positions: int = POSITIONS,
) -> Figure:
    """The largest |h| at each depth and position.

    Args:
        name: As for `drawn`.
        labels: Results -> label of rows -> title of its panel.
        store: Those of the sweeps, as for `drawn`.
        positions: How many are drawn at most, from the first one on.

    Returns:
        The figure, for `Study.figures`; the probe must ask for `resid_max`.
    """

    def picture(results: Results) -> Picture:
        from sinkjax.report.figures import layers

        chosen = labels(results)
        places = [results.place(label) for label in chosen]
        found = [results[sweep]["resid_max"].isel(edit=number).mean("prompt").values[..., :positions] for sweep, number in places]
        return layers.activations(np.stack(found), list(chosen.values()))

    caption = (
        f"Largest absolute value of the residual stream by depth and position (first {positions} positions at most), mean over"
        " prompts, one logarithmic colour scale."
    )
    return drawn(name, picture, caption, store, bands=False)


def source(
    data: xarray.Dataset,
    bands: bool = True,
    others: Sequence[xarray.Dataset] = (),
    text: bool = True,
    over: str = "prompt",
) -> str:
    """The end of a caption: intervals, prompts, model, precision, BOS (unless the stores differ in it) and text.

    others: further stores that are drawn. text: whether the numbers depend on a text. over: dimension that intervals are over.
    """
    made, study = data.attrs["sweep"], data.attrs.get("study", {})  # a store that Python made states no study
    counts = dict.fromkeys(str(one.sizes[over]) for one in (data, *others) if over in one.sizes)
    texts = dict.fromkeys(one.attrs["study"]["text"].partition(", because")[0] for one in (data, *others) if "study" in one.attrs)
    bos = f", BOS {study['bos']}" if study and all(one.attrs["study"]["bos"] == study["bos"] for one in others) else ""
    units = folder.over((data, *others)) if over == "prompt" else f"{over}s"
    prompts = f"{' or '.join(counts)} {units}"
    said = f"Bands: 95 % intervals over {prompts}. " if bands and counts else f"{prompts}. " * bool(counts)
    read = f"{bos}, {'; '.join(texts)}" if text and texts else ""
    return f"{said}{named(made['model'])} in {made['dtype']}{read}."
