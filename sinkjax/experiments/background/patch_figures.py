"""The figures of background/patch, and the names of what they show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sinkjax.edits.site import Site
from sinkjax.experiments.background.config import Patch
from sinkjax.experiments.base import Arm, Drawing
from sinkjax.experiments.captions import origin
from sinkjax.experiments.summary import Table
from sinkjax.report.figures import layers
from sinkjax.report.figures.points import Point, points

if TYPE_CHECKING:
    import xarray

NONE, DONOR, SINGLE, ALL = "no edit", "donor run: key masked in all layers", "one layer", "all layers"
SITES = {
    Site.RESID: "residual stream",
    Site.ATTN_OUT: "attention output",
    Site.MLP_OUT: "MLP output",
    Site.KEY: "keys",
    Site.VALUE: "values",
}


def drawings(
    config: Patch, data: xarray.Dataset, chosen: Sequence[Arm], table: Table, names: Sequence[str], best: Mapping[str, str]
) -> tuple[Drawing, ...]:
    """Every figure, in the order of the page. best: name of a site -> label of its single layer that moves most sinks."""
    return by_layer(config, data, chosen, table, names), in_all_layers(config, data, table, names[0], best)


def by_layer(config: Patch, data: xarray.Dataset, chosen: Sequence[Arm], table: Table, names: Sequence[str]) -> Drawing:
    """Sinks and largest activation at the patched position, by the layer that is patched."""
    target = config.key + 1

    def row(ylabel: str, measure: str, log: bool) -> list[layers.Panel]:
        lines = []
        for name in SITES.values():
            single = [arm for arm in chosen if arm.group == f"{name}, {SINGLE}"]
            places = [arm.place for arm in single if arm.place is not None]
            lines.append(layers.Line(name, places, [table[arm.edit.label, measure].value for arm in single]))
        return [layers.Panel("", ylabel, lines, log)]

    caption = (
        f"Heads that sink on key {target} (top) and the largest |h| there (bottom) when the donor run's value of one site is"
        f" put at position {target} of one layer. Bands: bootstrap 95 % intervals over {data.sizes['prompt']} prompts."
        f" {origin(data)}."
    )
    grid = [
        row(f"heads that sink on key {target} (%)", names[0], log=False),
        row(f"largest |h| at position {target}", names[1], log=True),
    ]
    return Drawing("by-patched-layer", layers.lines(grid, "patched layer l (0-based)", legend_above=True), caption)


def in_all_layers(config: Patch, data: xarray.Dataset, table: Table, measure: str, best: Mapping[str, str]) -> Drawing:
    """Sinks at the patched position: unedited, in the donor run, and by site."""
    shown = [
        Point("no edit", table[NONE, measure].value, "whole run"),
        Point("donor run", table[DONOR, measure].value, "whole run"),
    ]
    for name in SITES.values():
        shown.append(Point(name, table[f"{name}, {ALL}", measure].value, "patched in all layers"))
        shown.append(Point(name, table[best[name], measure].value, "patched in its best single layer"))
    caption = (
        f"Heads that sink on key {config.key + 1} when the donor run's values of one site are patched there. Bars: bootstrap 95"
        f" % intervals over {data.sizes['prompt']} prompts. {origin(data)}."
    )
    return Drawing("by-site", points({"": shown}, measure), caption)
