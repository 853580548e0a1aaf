"""The figures of gu/rope-positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinkjax.analysis.intervals import Interval
from sinkjax.experiments.base import NO_EDIT, Arm, Drawing
from sinkjax.experiments.captions import origin
from sinkjax.experiments.gu.config import RopePositions
from sinkjax.experiments.summary import LEVEL, Table
from sinkjax.report.figures import layers, points

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class Results:
    """What was found: kind of input -> table and rates of key t. measure, elsewhere: names of the sink rates. data:"
    " the text's."""

    config: RopePositions
    arms: Sequence[Arm]
    tables: Mapping[str, Table]
    moved: Mapping[str, Mapping[str, Interval]]
    measure: str
    elsewhere: str
    data: xarray.Dataset
    uneven: float


def drawings(found: Results, exchanged: tuple[str, str], alike: str) -> tuple[Drawing, ...]:
    """Every figure. exchanged: the groups of arms with a place t. alike: that of the arms that edit all indices."""
    return (by_place(found, exchanged), by_arm(found, alike))


def by_place(found: Results, exchanged: tuple[str, str]) -> Drawing:
    """Rates of key 0 and of key t against t, beside GPT2-XL's where the paper edits position vectors."""
    config = found.config
    published = {
        exchanged[0]: {"GPT2-XL, key 0": config.published_taken},
        exchanged[1]: {"GPT2-XL, key 0": config.published_swapped, "GPT2-XL, key t": config.published_moved},
    }
    row = []
    for kind in reversed(tuple(found.tables)):
        for group in reversed(exchanged):
            arms = [arm for arm in found.arms if arm.group == group]
            x = [arm.place or 0 for arm in arms]
            first = [found.tables[kind][arm.edit.label, found.measure].value for arm in arms]
            unedited = found.tables[kind][NO_EDIT, found.measure].value.mean
            lines = [
                layers.Line("key 0", x, first, reference=unedited),
                layers.Line("key t", x, [found.moved[kind][arm.edit.label] for arm in arms]),
            ]
            if kind != next(iter(found.tables)) and config.published_places:
                lines += [
                    layers.Line(name, config.published_places, [_exact(rate) for rate in rates])
                    for name, rates in published[group].items()
                ]
            row.append(layers.Panel(f"{kind}:\n{group}", "heads that sink on the key (%)", lines))
    caption = (
        "Share of heads that sink on key 0 and on key t once the first token has the rotary index t, or both have swapped theirs;"
        " dashed: key 0 without an edit. GPT2-XL: learned position vectors replaced or swapped (Gu et al. 2025, Table 7, from a"
        f" summary). Bands: bootstrap 95 % intervals over prompts; where lines coincide, the one named last is on top."
        f" {origin(found.data)}."
    )
    return Drawing("sink-by-exchanged-index", layers.lines([row], "position t (0-based)", legend_above=True), caption)


def by_arm(found: Results, alike: str) -> Drawing:
    """Rates with all indices edited alike."""
    labels = [arm.edit.label for arm in found.arms if arm.group in (NO_EDIT, alike)]
    columns = {
        kind: [
            points.Point(label, table[label, measure].value, name)
            for label in labels
            for measure, name in ((found.measure, "key 0"), (found.elsewhere, "another key"))
        ]
        for kind, table in found.tables.items()
    }
    caption = (
        "Share of heads that sink on key 0, or on at least one other key of the first half, with all rotary indices edited alike."
        f" Bars: bootstrap 95 % intervals over prompts. {origin(found.data)}."
    )
    figure = points.points(columns, "heads that sink on the key (%)", limits=(-4, 104))
    return Drawing("sink-by-all-indices", figure, caption)


def _exact(value: float) -> Interval:
    """A published number, which comes without an interval."""
    return Interval(value, None, None, 1, 0, LEVEL, "none", "published")
