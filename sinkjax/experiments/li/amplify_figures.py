"""The figures of li/amplify."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinkjax.experiments.base import Drawing
from sinkjax.experiments.captions import origin
from sinkjax.experiments.li.config import Amplify
from sinkjax.experiments.summary import Table
from sinkjax.report.figures import layers

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class Results:
    """What the figures are drawn from. names: of the measures. ways: of amplifying. none: label of the unedited arm."""

    config: Amplify
    data: xarray.Dataset
    table: Table
    names: Sequence[str]
    ways: Sequence[str]
    none: str

    def line(self, way: str, measure: str, x: Sequence[float], doses: Sequence[tuple[int, float]]) -> layers.Line:
        """A measure of one way over some doses (layer, factor); dashed: no edit, for the first way only, as all share it."""
        labels = [f"{way}, layer {layer}, s = {factor:g}" for layer, factor in doses]
        reference = self.table[self.none, measure].value.mean if way == self.ways[0] else None
        return layers.Line(way, x, [self.table[label, measure].value for label in labels], reference)


def drawings(found: Results) -> tuple[Drawing, ...]:
    """Every figure, in the order of the page."""
    return (dose_response(found), by_layer(found))


def dose_response(found: Results) -> Drawing:
    """The sink and the largest activation against the factor, in some layers."""
    config = found.config
    grid = [
        [
            layers.Panel(
                f"layer {layer}",
                ylabel,
                [found.line(way, measure, config.factors, [(layer, factor) for factor in config.factors]) for way in found.ways],
                log,
            )
            for layer in config.layers
        ]
        for ylabel, measure, log in _rows(found)
    ]
    caption = (
        f"Heads that sink on token {config.position} (top) and its largest |h| (bottom) against the factor s, by which its head"
        " outputs in one layer are pushed away from a mean or merely scaled. Dashed: no edit. Bands: bootstrap 95 % intervals"
        f" over {found.data.sizes['prompt']} prompts. {origin(found.data)}."
    )
    return Drawing("dose-response", layers.lines(grid, "factor s (log scale)", legend_above=True, log_x=True), caption)


def by_layer(found: Results) -> Drawing:
    """The same at one factor, against the layer."""
    L, config = found.data.sizes["layer"], found.config
    grid = [
        [
            layers.Panel(
                f"s = {config.factor:g}",
                ylabel,
                [found.line(way, measure, range(L), [(layer, config.factor) for layer in range(L)]) for way in found.ways],
                log,
            )
        ]
        for ylabel, measure, log in _rows(found)
    ]
    caption = (
        f"Heads that sink on token {config.position} (top) and its largest |h| (bottom), its head outputs amplified"
        f" {config.factor:g} times in one layer. Dashed: no edit. Bands: bootstrap 95 % intervals over"
        f" {found.data.sizes['prompt']} prompts. {origin(found.data)}."
    )
    return Drawing("sink-by-amplified-layer", layers.lines(grid, "amplified layer (0-based)", legend_above=True), caption)


def _rows(found: Results) -> list[tuple[str, str, bool]]:
    return [
        (f"heads that sink on key {found.config.position} (%)", found.names[0], False),
        (f"largest |h| at position {found.config.position}", found.names[2], True),
    ]
