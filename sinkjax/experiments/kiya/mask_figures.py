"""The figures of kiya/mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sinkjax.experiments.base import Arm, Drawing
from sinkjax.experiments.kiya.config import Mask
from sinkjax.experiments.summary import Table
from sinkjax.report.figures import attention, layers

if TYPE_CHECKING:
    import xarray

TOKENS, POSITIONS = 20, 24  # drawn of each prompt, so that a tick is legible and a column is visible
XLABEL = "edited layer l (0-based)"


@dataclass(frozen=True)
class Results:
    """What the figures are drawn from.

    columns: title -> the arms along one x axis, in the order of their layers. table: the summary of `data`. measured: the names
    of its measures. featured: the arms of the short table, the unedited one first.
    """

    config: Mask
    data: xarray.Dataset
    maps: xarray.Dataset
    columns: Mapping[str, Sequence[Arm]]
    table: Table
    measured: Sequence[str]
    featured: Sequence[str]

    @property
    def keys(self) -> tuple[int, int]:
        """The masked key, and the next one."""
        return self.config.key, self.config.key + 1

    @property
    def origin(self) -> str:
        """Model, precision and text, for captions."""
        sweep, study = self.data.attrs["sweep"], self.data.attrs["study"]
        text = study["text"].partition(", because")[0]
        return f"{sweep['model']['name']} in {sweep['dtype']}, BOS {study['bos']}, {text}"


def drawings(found: Results) -> tuple[Drawing, ...]:
    """Every figure, in the order of the page."""
    return (attention_maps(found), by_edited_layer(found), attention_by_layer(found), largest_activation(found))


def attention_maps(found: Results) -> Drawing:
    """Maps of one prompt before and after."""
    layers_drawn = list(found.config.map_layers)
    values = found.maps["attention"].isel(prompt=0).sel(layer=layers_drawn).mean("head").values
    none, *edited = (str(label) for label in found.maps["edit"].values)
    tokens = found.data.attrs["study"]["token_texts"][0][:TOKENS]
    caption = (
        f"Attention maps of one prompt, mean over heads, first {len(tokens)} tokens, on one colour scale; grey: keys that a query"
        f" cannot see. A bright column is a sink. {found.origin}."
    )
    figure = attention.maps(values, [none, *map(_masked, edited)], layers_drawn, tokens)
    return Drawing("attention-maps", figure, caption)


def by_edited_layer(found: Results) -> Drawing:
    """Sink rates and largest activations of the masked key and the next one, against the edited layer."""
    sinks, activations = found.measured[:2], found.measured[2:4]

    def row(ylabel: str, measures: Sequence[str], name: str, log: bool) -> list[layers.Panel]:
        names = [f"{name} {key}" for key in found.keys]
        return [
            layers.Panel(
                _masked(title),
                ylabel,
                [_line(found, arms, measure, label) for measure, label in zip(measures, names, strict=True)],
                log,
            )
            for title, arms in found.columns.items()
        ]

    rows = [
        row("heads that sink on the key (%)", sinks, "key", log=False),
        row("largest |h| at the position", activations, "position", log=True),
    ]
    caption = (
        f"Where the sink (top) and the largest activation (bottom) are, against the layers in which key {found.config.key} is"
        " masked. A masked layer has no sink on that key, which alone takes it a share of its line. Dashed: no edit. Bands:"
        f" bootstrap 95 % intervals over {found.data.sizes['prompt']} prompts. {found.origin}."
    )
    return Drawing("sink-by-edited-layer", layers.lines(rows, XLABEL), caption)


def _line(found: Results, arms: Sequence[Arm], measure: str, label: str) -> layers.Line:
    values = [found.table[arm.edit.label, measure].value for arm in arms]
    places = [arm.place for arm in arms if arm.place is not None]
    return layers.Line(label, places, values, reference=found.table[found.featured[0], measure].value.mean)


def attention_by_layer(found: Results) -> Drawing:
    """Attention to the masked key and to the next one in each layer, against the edited layer."""

    def received(arms: Sequence[Arm], key: int) -> np.ndarray:
        chosen = found.data["attention_received"].sel(edit=[arm.edit.label for arm in arms], key=key)
        return chosen.mean(["prompt", "head"]).values

    grid = {
        f"attention to key {key}": {_masked(title): received(arms, key) for title, arms in found.columns.items()}
        for key in found.keys
    }
    masked, moved = found.keys
    caption = (
        f"Attention that key {masked} (top) and key {moved} (bottom) receive in each layer, against the edited layer. An edited"
        f" layer has no attention to key {masked}; what lies above it shows what the edit does to later layers. Mean over heads"
        f" and {found.data.sizes['prompt']} prompts, one colour scale. {found.origin}."
    )
    return Drawing("attention-by-layer", layers.received(grid, XLABEL), caption)


def largest_activation(found: Results) -> Drawing:
    """The largest |h| at each depth and position, for the arms of the short table."""
    none, *edited = found.featured
    shown = found.data["resid_max"].sel(edit=list(found.featured)).mean("prompt").values[..., :POSITIONS]
    caption = (
        f"Largest absolute value of the residual stream by depth and position (first {shown.shape[-1]} positions), mean over"
        f" {found.data.sizes['prompt']} prompts, one logarithmic colour scale. {found.origin}."
    )
    return Drawing("largest-activation", layers.activations(shown, [none, *map(_masked, edited)]), caption)


def _masked(where: str) -> str:
    return f"masked: {where}"
