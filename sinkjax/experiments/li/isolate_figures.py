"""The figures of li/isolate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinkjax.experiments.base import Arm, Drawing
from sinkjax.experiments.captions import origin
from sinkjax.experiments.li.config import Isolate
from sinkjax.experiments.summary import Table
from sinkjax.report.figures import layers

if TYPE_CHECKING:
    import xarray

POSITIONS = 24  # drawn of each prompt, so that a column is visible


@dataclass(frozen=True)
class Results:
    """What the figures are drawn from. names: of the measures. featured: labels of the short table, the unedited one first."""

    config: Isolate
    data: xarray.Dataset
    arms: Sequence[Arm]
    table: Table
    names: Sequence[str]
    featured: Sequence[str]


def drawings(found: Results) -> tuple[Drawing, ...]:
    """Every figure, in the order of the page."""
    return (by_layer(found), largest_activation(found))


def by_layer(found: Results) -> Drawing:
    """Sink rates and largest activations of the isolated token and of the first, against the layers of isolation."""
    k, none = found.config.position, found.featured[0]
    columns = {
        "isolated in one layer l": [arm for arm in found.arms if arm.group == "one layer"],
        "isolated in layers 0 to l": [
            arm for arm in found.arms if arm.group in ("layers 0 to l", "all layers") or arm.edit.label == "layer 0"
        ],
    }

    def row(ylabel: str, measured: Sequence[str], what: str, log: bool) -> list[layers.Panel]:
        return [
            layers.Panel(
                title,
                ylabel,
                [
                    layers.Line(
                        f"{what} {place}",
                        [arm.place or 0 for arm in arms],
                        [found.table[arm.edit.label, name].value for arm in arms],
                        found.table[none, name].value.mean,
                    )
                    for place, name in zip((k, 0), measured, strict=True)
                ],
                log,
            )
            for title, arms in columns.items()
        ]

    rows = [
        row("heads that sink on the key (%)", found.names[:2], "key", log=False),
        row("largest |h| at the position", found.names[2:4], "position", log=True),
    ]
    caption = (
        f"Heads that sink (top) and largest |h| (bottom) at token {k}, which attends to itself alone in one layer (left) or in"
        " the first ones (right), and at token 0. Dashed: no edit. Bands: bootstrap 95 % intervals over"
        f" {found.data.sizes['prompt']} prompts. {origin(found.data)}."
    )
    return Drawing("sink-by-isolated-layer", layers.lines(rows, "layer l (0-based)"), caption)


def largest_activation(found: Results) -> Drawing:
    """The largest |h| at each depth and position, for the arms of the short table."""
    none, *edited = found.featured
    shown = found.data["resid_max"].sel(edit=list(found.featured)).mean("prompt").values[..., :POSITIONS]
    titles = [none, *(label if "," in label else f"isolated: {label}" for label in edited)]
    caption = (
        f"Largest absolute value of the residual stream by depth and position (first {shown.shape[-1]}), mean over"
        f" {found.data.sizes['prompt']} prompts, one logarithmic colour scale. Only the query at position"
        f" {found.config.position} is edited: it sees itself alone, one other key alone, or all keys alike."
        f" {origin(found.data)}."
    )
    return Drawing("activation-of-the-isolated-token", layers.activations(shown, titles), caption)
