"""The figures that studies share, each a function of the results; captions say what is drawn, of how many prompts and whence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.report.section import Drawing
from sinkjax.studies.specs import MAPS, SWEEP
from sinkjax.studies.study import Measure

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure as Picture

    from sinkjax.studies.results import Results

Figure = Callable[["Results"], Drawing | None]
Stores = str | Sequence[str]
TOKENS, POSITIONS = 20, 24  # drawn of each prompt, so that a tick is legible and a column is visible
ALONG_LAYERS = "edited layer l (0-based)"


@dataclass(frozen=True)
class Panel:
    """Axes of lines along the x of conditions.

    curves: name in the legend -> (measure, labels of conditions). title: above it. ylabel: shared along a row. effect: whether
    effects are drawn instead of values. baseline: label of the condition drawn as a dashed line, "" for none. log: whether y is
    logarithmic.
    """

    ylabel: str
    curves: Mapping[str, tuple[Measure, Sequence[str]]]
    title: str = ""
    effect: bool = False
    baseline: str = ""
    log: bool = False


@dataclass(frozen=True)
class Profiles:
    """Axes of curves along an axis of a store, such as its layers.

    curves: name in the legend -> function of the dataset, to float[prompt, x] (or of another axis that intervals are over).
    title: above it. ylabel: shared along a row. store: whose dataset. log: whether y is logarithmic. signed: whether it goes
    below 0.
    """

    ylabel: str
    curves: Mapping[str, Callable[[xarray.Dataset], NDArray]]
    title: str = ""
    store: str = SWEEP
    log: bool = False
    signed: bool = False


def lines(
    name: str, xlabel: str, grid: Sequence[Sequence[Panel]], caption: str, *, store: Stores = SWEEP, **options: Any
) -> Figure:
    """Measures along the x of conditions, with bands for their intervals; panels of a sweep that did not run are left out.

    store: of the sweeps. options: as for `report.figures.layers.lines`.
    """

    def picture(results: Results) -> Picture:
        from sinkjax.report.figures import layers

        drawn = [
            [
                layers.Panel(
                    panel.title,
                    panel.ylabel,
                    [
                        results.line(curve, measure, labels, panel.effect, panel.baseline)
                        for curve, (measure, labels) in panel.curves.items()
                    ],
                    panel.log,
                    signed=panel.effect,
                )
                for panel in _present(row, results)
            ]
            for row in grid
        ]
        return layers.lines(drawn, xlabel, **options)

    return drawn(name, picture, caption, store)


def _present(panels: Sequence[Panel], results: Results) -> list[Panel]:
    """The panels of sweeps that ran."""
    there = {label for label, _ in results.table}
    if not results.absent:
        return list(panels)
    return [panel for panel in panels if all(there.issuperset(labels) for _, labels in panel.curves.values())]


def profiles(
    name: str,
    xlabel: str,
    grid: Sequence[Sequence[Profiles]],
    caption: str,
    *,
    x: Callable[[int], Sequence[int]] = range,
    over: str = "prompt",
    text: bool = True,
    **options: Any,
) -> Figure:
    """Curves along an axis of the stores, with bands for their intervals; panels of a sweep that did not run are left out.

    Args:
        name: of the figure.
        xlabel: the axis, which counts from 0.
        grid: rows of panels.
        caption: what is drawn.
        x: length of the axis -> the points drawn.
        over: dimension that the intervals are over.
        text: whether the numbers depend on a text.
        options: as for `report.figures.layers.lines`.
    """

    def picture(results: Results) -> Picture:
        from sinkjax.report.figures import layers

        def curve(title: str, values: NDArray) -> layers.Line:
            points = list(x(values.shape[-1]))
            return results.curve(title, points, values[:, points])

        drawn = [
            [
                layers.Panel(
                    panel.title,
                    panel.ylabel,
                    [curve(title, values(results[panel.store])) for title, values in panel.curves.items()],
                    panel.log,
                    panel.signed,
                )
                for panel in row
                if panel.store in results
            ]
            for row in grid
        ]
        return layers.lines(drawn, xlabel, **options)

    stores = tuple(dict.fromkeys(panel.store for row in grid for panel in row))
    return drawn(name, picture, caption, stores, over=over, text=text)


def along(
    name: str,
    xlabel: str,
    ylabel: str,
    values: Callable[[xarray.Dataset], NDArray],
    curves: Mapping[str, str],
    caption: str,
    *,
    baseline: str = "",
    bins: int = 1,
    store: str = SWEEP,
) -> Figure:
    """A quantity along an axis of a store (layers, depths, positions), one line with its interval for each condition.

    Args:
        name: of the figure.
        xlabel: the axis, which counts from 0.
        ylabel: the quantity, with its unit.
        values: dataset -> float[condition, prompt, x].
        curves: name in the legend -> label of the condition.
        caption: what is drawn.
        baseline: label of the condition that is subtracted, prompt by prompt; "" for none.
        bins: entries of x that share a point; those of the last, incomplete bin are left out.
        store: which sweep.
    """

    def picture(results: Results) -> Picture:
        from sinkjax.report.figures import layers

        found, labels = values(results[store]), results.labels(store)
        if baseline:
            found = found - found[labels.index(baseline)]
        count = found.shape[-1] // bins
        found = found[..., : count * bins].reshape(*found.shape[:2], count, bins).mean(axis=-1)
        x = (np.arange(count) * bins + (bins - 1) / 2).tolist() if bins > 1 else list(range(count))
        drawn_curves = [results.curve(curve, x, found[labels.index(label)]) for curve, label in curves.items()]
        return layers.lines([[layers.Panel("", ylabel, drawn_curves, signed=bool(baseline))]], xlabel)

    return drawn(name, picture, caption, store)


def drawn(
    name: str,
    picture: Callable[[Results], Picture | None],
    caption: str,
    store: Stores = SWEEP,
    bands: bool = True,
    over: str = "prompt",
    text: bool = True,
) -> Figure:
    """A figure that a study draws itself.

    picture: None where there is nothing to draw. store: one or several, of which those that are there are drawn. bands: whether
    it has intervals. over: dimension that they are over. text: whether the numbers depend on a text.
    """

    def draw(results: Results) -> Drawing | None:
        figure = picture(results)
        if figure is None:
            return None
        stores = [store] if isinstance(store, str) else [name for name in store if name in results]
        origin = source(*(results[name] for name in stores), bands=bands, over=over, text=text)
        return Drawing(name, figure, f"{' '.join(caption.split())} {origin}")

    return draw


def activations(
    name: str, labels: Callable[[Results], Mapping[str, str]], store: Stores = SWEEP, positions: int = POSITIONS
) -> Figure:
    """The largest |h| at each depth and position, the first ones. labels: results -> label of rows -> title of its panel."""

    def picture(results: Results) -> Picture:
        from sinkjax.report.figures import layers

        chosen = labels(results)
        places = [results.place(label) for label in chosen]
        means = [results[sweep]["resid_max"].sel(edit=label).mean("prompt").values[..., :positions] for sweep, label in places]
        return layers.activations(np.stack(means), list(chosen.values()))

    caption = (
        f"Largest absolute value of the residual stream by depth and position (first {positions} positions at most), mean over"
        " prompts, one logarithmic colour scale."
    )
    return drawn(name, picture, caption, store, bands=False)


def attention_maps(
    name: str,
    layers: Sequence[int],
    titles: Callable[[str], str] = str,
    store: str = MAPS,
    tokens: int = TOKENS,
    about: str = "",
) -> Figure:
    """Attention maps of the first prompt under the conditions of a maps' store.

    titles: label -> title of its row. tokens: how many are drawn at most. about: how to read them, a sentence for the caption.
    """

    def picture(results: Results) -> Picture:
        from sinkjax.report.figures import attention

        data = results[store]
        shown = map_data(data)
        there = [layer for layer in layers if layer in shown["layer"].values]
        ticks = data.attrs["study"]["token_texts"][0][: min(tokens, shown.sizes["query"])]
        values = shown.isel(prompt=0).sel(layer=there).mean("head").values
        if len(values) == 1:
            return attention.by_layer(values[0], there, ticks)
        return attention.maps(values, [titles(str(label)) for label in data["edit"].values], there, ticks)

    caption = (
        f"Attention maps of one prompt, mean over heads, first {tokens} tokens at most, on one colour scale; grey: keys that a"
        f" query cannot see. A bright column is a sink. {about}"
    )
    return drawn(name, picture, caption, store, bands=False)


def map_data(data: xarray.Dataset) -> xarray.DataArray:
    """The attention of a maps' store with plain names of its axes: [edit, prompt, layer, head, query, key]."""
    renamed = {f"attention_{axis}": axis for axis in ("layer", "query") if f"attention_{axis}" in data["attention"].dims}
    maps = data["attention"].drop_vars("layer", errors="ignore") if "layer" in renamed.values() else data["attention"]
    return maps.rename(renamed)


def attention_received(
    name: str, keys: Mapping[str, int], columns: Mapping[str, Sequence[str]], caption: str, xlabel: str = ALONG_LAYERS
) -> Figure:
    """Attention that keys receive in each layer (up), against the x of conditions (across).

    keys: title of a row -> key. columns: title -> labels of conditions along x.
    """

    def picture(results: Results) -> Picture:
        from sinkjax.report.figures import layers

        def received(labels: Sequence[str], key: int) -> np.ndarray:
            found = results.data["attention_received"].sel(edit=list(labels), key=key)
            return found.mean(["prompt", "head"]).values

        grid = {row: {title: received(column, key) for title, column in columns.items()} for row, key in keys.items()}
        return layers.received(grid, xlabel)

    return drawn(name, picture, caption, bands=False)


def dots(
    name: str,
    xlabel: str,
    columns: Mapping[str, Measure],
    caption: str,
    *,
    store: str = SWEEP,
    chosen: str = "chosen",
    random: str = "random, as many",
    limits: tuple[float, float] | None = None,
) -> Figure:
    """Means of the conditions of a sweep side by side, and each of its controls as a mark of its own.

    columns: title of a panel -> measure. chosen, random: how the legend names conditions and controls.
    """

    def picture(results: Results) -> Picture:
        from sinkjax.report.figures.points import Point, points

        sweep, table = results.sweeps[store], results.table_of(store)

        def column(measure: Measure) -> list[Point]:
            found = [Point(label, table[label, measure.name].value, chosen) for label in results.labels(store)]
            for control in sweep.controls:
                means = results.values(measure, control.name).mean(axis=1)
                for entry, mean in zip(results.conditions(control.name), means, strict=True):
                    found.append(Point(entry.label.partition(": ")[2], results.interval([mean]), random))
            return found

        return points({title: column(measure) for title, measure in columns.items()}, xlabel, limits)

    return drawn(name, picture, caption, store)


def source(data: xarray.Dataset, *others: xarray.Dataset, bands: bool = True, over: str = "prompt", text: bool = True) -> str:
    """The end of a caption: intervals, prompts, model, precision, BOS (unless several stores differ in it) and text."""
    made, study = data.attrs["sweep"], data.attrs["study"]
    count = data.sizes.get(over)
    said = f"Bands: bootstrap 95 % intervals over {count} {over}s. " if bands and count else f"{count} {over}s. " * bool(count)
    bos = f", BOS {study['bos']}" if all(other.attrs["study"]["bos"] == study["bos"] for other in others) else ""
    read = f"{bos}, {study['text'].partition(', because')[0]}" if text else ""
    return f"{said}{made['model']['name']} in {made['dtype']}{read}."
