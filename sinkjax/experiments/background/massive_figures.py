"""The figures of background/massive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numpy.typing import NDArray

from sinkjax.analysis import intervals, metrics
from sinkjax.experiments.background.config import Massive
from sinkjax.experiments.background.massive_arms import MEAN_AFTER, NONE, ZERO_AFTER, Levels
from sinkjax.experiments.base import Drawing
from sinkjax.experiments.captions import origin
from sinkjax.experiments.summary import Measured, Table
from sinkjax.report.figures import layers

if TYPE_CHECKING:
    import xarray

DEPTH = "depth (0: embedding, l + 1: after layer l)"


@dataclass(frozen=True)
class Results:
    """What words and figures are made from.

    unedited: sizes without an edit, one for each prompt. table: the summary of `data`; layer_table: that of `by_layer`. measured:
    the names of the measures: loss, heads that sink on the position, largest |h| elsewhere.
    """

    config: Massive
    levels: Levels
    unedited: xarray.Dataset
    data: xarray.Dataset
    by_layer: Measured
    table: Table
    layer_table: Table
    measured: Sequence[str]


def drawings(found: Results) -> tuple[Drawing, ...]:
    """Every figure, in the order of the page."""
    return (sizes(found), by_edited_layer(found))


def sizes(found: Results) -> Drawing:
    """The largest activations and the median by depth, and where the position stands among them."""
    unedited, position = found.unedited, found.config.position
    depths = unedited["depth"].values.tolist()
    ranked = unedited["state_largest"].values

    def line(name: str, values: NDArray) -> layers.Line:
        return layers.Line(name, depths, intervals.intervals(values, axis=0).tolist())

    state = [line(name, ranked[..., rank]) for rank, name in enumerate(("largest", "second", "third"))]
    state.append(line("median", unedited["state_median"].values))
    ratio = [
        line("hidden state", ranked[..., 0] / unedited["state_median"].values),
        line(f"position {position}", metrics.top1_over_median(unedited, position)),
    ]
    panels = [
        [layers.Panel("", "|h| in a hidden state", state, log=True)],
        [layers.Panel("", "largest |h| / median |h|", ratio, log=True)],
    ]
    caption = (
        "Top: the three largest and the median |h| of a prompt's hidden state, all positions together. Bottom: the largest"
        f" over the median, of the whole hidden state and of position {position} alone. Bands: bootstrap 95 % intervals over"
        f" {unedited.sizes['prompt']} prompts. {origin(found.data)}."
    )
    return Drawing("sizes-by-depth", layers.lines(panels, DEPTH), caption)


def by_edited_layer(found: Results) -> Drawing:
    """Loss and sinks when the largest dims are set after each layer in turn."""
    table, position = found.layer_table, found.config.position

    def row(ylabel: str, measure: str) -> list[layers.Panel]:
        lines = []
        for name, group in (("to zero", ZERO_AFTER), ("to their mean", MEAN_AFTER)):
            arms = [arm for arm in found.by_layer.arms if arm.group == group]
            places = [arm.place for arm in arms if arm.place is not None]
            reference = table[NONE, measure].value.mean
            lines.append(layers.Line(name, places, [table[arm.edit.label, measure].value for arm in arms], reference))
        return [layers.Panel("", ylabel, lines)]

    loss, sinks, _ = found.measured
    caption = (
        f"Loss and heads that sink on position {position} when its {found.config.dims} largest dims are set to zero, or to"
        " their mean over prompts, after one layer. Dashed: no edit. Bands: bootstrap 95 % intervals over"
        f" {found.by_layer.data.sizes['prompt']} prompts. {origin(found.data)}."
    )
    figure = layers.lines(
        [row("loss (nats per token)", loss), row(f"heads that sink on key {position} (%)", sinks)], "edited layer l (0-based)"
    )
    return Drawing("by-edited-layer", figure, caption)
