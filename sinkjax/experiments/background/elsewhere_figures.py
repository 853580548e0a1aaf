"""The figures of background/elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sinkjax.analysis import intervals, metrics
from sinkjax.experiments.background.config import Elsewhere
from sinkjax.experiments.background.elsewhere_tokens import label, there
from sinkjax.experiments.base import Drawing
from sinkjax.experiments.captions import origin
from sinkjax.experiments.summary import Row, Table
from sinkjax.report.figures import layers
from sinkjax.report.figures.points import Point, points

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class Results:
    """What words and figures are made from.

    text: the unedited run. placed, random: tokens put at the place. table: the summary of `placed`. natural: (arm, measure) ->
    row of a token where the text has it. measured: the names of the measures: heads that sink, largest |h|.
    """

    config: Elsewhere
    text: xarray.Dataset
    placed: xarray.Dataset
    random: xarray.Dataset
    table: Table
    natural: Mapping[tuple[str, str], Row]
    measured: Sequence[str]


def drawings(found: Results) -> tuple[Drawing, ...]:
    """Every figure, in the order of the page."""
    config = found.config
    return (
        order(found),
        by_token(found, 0, "sinks-by-token"),
        by_token(found, 1, "activations-by-token"),
        by_layer(found, config.delimiters, "delimiters-by-layer"),
        *([by_layer(found, config.words, "words-by-layer")] if config.words else []),
    )


def order(found: Results) -> Drawing:
    """The activation that enters each layer at position 0, and the sink that the layer makes of it."""
    text = found.text
    L = text.sizes["layer"]
    largest = np.asarray(text["resid_max"])
    median = np.nanmedian(largest, axis=-1)
    rates = 100 * metrics.sink_rate(text, 0, found.config.eps, per="layer")
    x = list(range(L))

    def line(name: str, values: np.ndarray) -> layers.Line:
        return layers.Line(name, x, intervals.intervals(values[:, :L], axis=0).tolist())

    grid = [
        [
            layers.Panel(
                "",
                "largest |h| entering layer l",
                [line("position 0", largest[..., 0]), line("median position", median)],
                log=True,
            )
        ],
        [layers.Panel("", "heads of layer l that sink\non key 0 (%)", [line("key 0", rates)])],
    ]
    caption = (
        "Top: the largest |h| of the stream that enters layer l (depth l). Bottom: heads of layer l that sink on key 0. A sink"
        " that begins where the activation has just entered follows it by one layer. Bands: bootstrap 95 % intervals over"
        f" {text.sizes['prompt']} prompts. {origin(text)}."
    )
    return Drawing("activation-before-sink", layers.lines(grid, "layer l (0-based)"), caption)


def by_token(found: Results, number: int, name: str) -> Drawing:
    """One measure of each token, in the text and put there."""
    measure = found.measured[number]
    places = {"in the text": found.natural, "put there": found.table}
    delimiters = [label(token) for token in found.config.delimiters]
    columns = {
        title: [
            Point(token, row.value, "delimiter" if token in delimiters else "frequent word")
            for (arm, column), row in rows.items()
            if column == measure and arm.endswith(title)
            for token in [arm.removesuffix(f" {title}")]
        ]
        for title, rows in places.items()
    }
    caption = (
        f"{measure[0].upper()}{measure[1:]}: where the text has the token ({found.text.sizes['prompt']} prompts) and where it"
        f" is put at position {found.config.place} ({found.placed.sizes['prompt']} prompts). Bars: bootstrap 95 % intervals."
        f" {origin(found.text)}."
    )
    return Drawing(name, points(columns, measure), caption)


def by_layer(found: Results, tokens: Sequence[str], name: str) -> Drawing:
    """Where along the layers tokens that are put at the place have an activation or a sink, beside the text's own token there."""
    config, placed = found.config, found.placed
    none, *edits = (str(label) for label in placed["edit"].values)
    shown = {"the text's own": none} | {label(token): edit for token in tokens for edit in edits if edit == there(token)}
    largest = placed["resid_max"]
    ratio = largest.isel(position=config.place) / largest.median("position")
    rates = dict(zip((none, *edits), 100 * metrics.sink_rate(placed, config.place, config.eps, per="layer"), strict=True))
    x = list(range(placed.sizes["layer"]))

    def line(title: str, values: np.ndarray) -> layers.Line:
        return layers.Line(title, x, intervals.intervals(values[:, : len(x)], axis=0).tolist())

    sizes = [line(title, ratio.sel(edit=edit).transpose("prompt", "depth").values) for title, edit in shown.items()]
    sinks = [line(title, rates[edit]) for title, edit in shown.items()]
    grid = [
        [layers.Panel("", "largest |h| entering layer l,\nover that of the median position", sizes, log=True)],
        [layers.Panel("", f"heads of layer l that sink\non position {config.place} (%)", sinks)],
    ]
    caption = (
        f"Tokens put at position {config.place}: top, the largest |h| of the stream that enters layer l there, over that of the"
        " median position; bottom, heads of layer l that sink there. Bands: bootstrap 95 % intervals over"
        f" {placed.sizes['prompt']} prompts. {origin(placed)}."
    )
    return Drawing(name, layers.lines(grid, "layer l (0-based)", legend_above=True), caption)
