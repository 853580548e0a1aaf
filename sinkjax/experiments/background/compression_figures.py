"""The figures of background/compression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals, metrics
from sinkjax.experiments.background.config import Compression
from sinkjax.experiments.background.spectra import anisotropy, matrix_entropy
from sinkjax.experiments.base import Arm, Drawing
from sinkjax.experiments.captions import origin
from sinkjax.experiments.summary import Table
from sinkjax.report.figures import layers

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class Results:
    """What words and figures are made from.

    arms: no edit, each layer, all layers. table: their summary. measured: their names (entropy, sinks, mixing, loss, anisotropy).
    emergence: the layer in which the position's norm grows most.
    """

    config: Compression
    data: xarray.Dataset
    arms: Sequence[Arm]
    table: Table
    measured: Sequence[str]
    emergence: int


def drawings(found: Results) -> tuple[Drawing, ...]:
    """Every figure, in the order of the page."""
    return (by_depth(found), by_dropped_layer(found))


def by_depth(found: Results) -> Drawing:
    """Entropy and anisotropy by depth and mixing and sinks by layer, unedited and without the MLP's output."""
    shown = {
        "no edit": found.arms[0].edit.label,
        f"MLP dropped in layer {found.emergence}": f"layer {found.emergence}",
        "MLP dropped in all layers": found.arms[-1].edit.label,
    }
    data, position, eps = found.data, found.config.position, found.config.eps

    def panel(ylabel: str, of: Callable[[xarray.Dataset], NDArray]) -> layers.Panel:
        lines = []
        for name, label in shown.items():
            values = of(data.sel(edit=label))
            x = list(range(values.shape[-1]))
            lines.append(layers.Line(name, x, intervals.intervals(values, axis=0).tolist()))
        return layers.Panel("", ylabel, lines)

    grid = [
        [panel("matrix entropy (bits)", lambda run: matrix_entropy(run["spectrum"]))],
        [panel("anisotropy p_1", lambda run: anisotropy(run["spectrum"]))],
        [panel("mixing (bits)", lambda run: np.nanmean(run["row_entropy"], axis=(-2, -1)) / np.log(2))],
        [panel(f"heads that sink\non key {position} (%)", lambda run: 100 * metrics.sink_rate(run, position, eps, per="layer"))],
    ]
    caption = (
        "From above: matrix entropy of a prompt's hidden states and share of their largest direction, by depth (l: what enters"
        f" layer l); entropy of attention rows and heads that sink on key {position}, by layer. Bands: bootstrap 95 % intervals"
        f" over {data.sizes['prompt']} prompts. {origin(data)}."
    )
    return Drawing("by-depth", layers.lines(grid, "layer l, or depth l (0-based)", legend_above=True), caption)


def by_dropped_layer(found: Results) -> Drawing:
    """Entropy and sinks by the layer in which the MLP is dropped."""
    single = [arm for arm in found.arms if arm.place is not None]
    places = [arm.place for arm in single if arm.place is not None]

    def row(ylabel: str, measure: str) -> list[layers.Panel]:
        values = [found.table[arm.edit.label, measure].value for arm in single]
        reference = found.table[found.arms[0].edit.label, measure].value.mean
        return [layers.Panel("", ylabel, [layers.Line("MLP dropped in layer l", places, values, reference)])]

    position = found.config.position
    caption = (
        f"Matrix entropy of the middle depths, and heads that sink on key {position}, when the MLP's output for position"
        f" {position} is dropped in one layer. Dashed: no edit. Bands: bootstrap 95 % intervals over"
        f" {found.data.sizes['prompt']} prompts. {origin(found.data)}."
    )
    grid = [
        row("matrix entropy of\nthe middle depths (bits)", found.measured[0]),
        row(f"heads that sink\non key {position} (%)", found.measured[1]),
    ]
    return Drawing(
        "by-dropped-layer", layers.lines(grid, "layer l in which the MLP is dropped (0-based)", legend_above=True), caption
    )
