"""The figures of kiya/after-softmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinkjax.experiments.base import Drawing
from sinkjax.experiments.captions import origin
from sinkjax.experiments.kiya.config import AfterSoftmax
from sinkjax.experiments.summary import Measured, Table
from sinkjax.report.figures import attention, layers

if TYPE_CHECKING:
    import xarray

TOKENS, POSITIONS = 20, 24  # drawn of each prompt, so that a tick is legible and a column is visible


@dataclass(frozen=True)
class Results:
    """What the figures are drawn from.

    sweep: the arms, no edit first; their group is edit and way, their place the number of first layers. maps: the store of
    attention maps. table: the summary. edits, ways: their names. measured: names of the measures, of which loss, sinks, sinks on
    key 0 and largest |h| come first.
    """

    config: AfterSoftmax
    sweep: Measured
    maps: xarray.Dataset
    table: Table
    edits: tuple[str, str]
    ways: tuple[str, ...]
    measured: Sequence[str]

    @property
    def none(self) -> str:
        """The label of the unedited run."""
        return self.sweep.arms[0].edit.label


def drawings(found: Results) -> tuple[Drawing, ...]:
    """Every figure, in the order of the page."""
    return (by_layers(found), attention_maps(found), largest_activation(found))


def by_layers(found: Results) -> Drawing:
    """Loss, sink and activation against the number of first layers that are edited."""
    loss, sink, _, activation, *_ = found.measured

    def row(ylabel: str, measure: str, log: bool = False, signed: bool = False) -> list[layers.Panel]:
        return [
            layers.Panel(what, ylabel, [_line(found, what, way, measure) for way in _apart(found)], log=log, signed=signed)
            for what in found.edits
        ]

    rows = [
        row("rise of the loss\n(nats per token)", loss, signed=True),
        row("heads that sink on\nthe new place (%)", sink),
        row("largest |h| at\nthe new place", activation, log=True),
    ]
    caption = (
        "The same two edits of the first n layers, before the softmax (logits) and after it (weights set to 0). Weights that are"
        " renormalised give the numbers of the logits, and are not drawn. The new place is the next key (left) and the query's"
        f" own (right). Bands: bootstrap 95 % intervals over {found.sweep.data.sizes['prompt']} prompts."
        f" {origin(found.sweep.data)}."
    )
    figure = layers.lines(rows, "edited layers: the first n", legend_above=True)
    return Drawing("by-edited-layers", figure, caption)


def _apart(found: Results) -> tuple[str, str]:
    """The two ways that differ: weights renormalised are those of the edited logits (a finding states how nearly)."""
    return found.ways[0], found.ways[-1]


def _line(found: Results, what: str, way: str, measure: str) -> layers.Line:
    """The loss as its rise, the others as they are."""
    chosen = [arm for arm in found.sweep.arms if arm.group == f"{what}, {way}"]
    rows = [found.table[arm.edit.label, measure] for arm in chosen]
    values = [row.effect if measure == found.measured[0] else row.value for row in rows]
    return layers.Line(way, [arm.place for arm in chosen if arm.place is not None], values)


def attention_maps(found: Results) -> Drawing:
    """Maps of one prompt for each way of masking the key."""
    values = found.maps["attention"].isel(prompt=0).mean("head").values
    tokens = found.sweep.data.attrs["study"]["token_texts"][0][:TOKENS]
    caption = (
        f"Attention maps of one prompt with {found.edits[0]} in all layers, mean over heads, first {len(tokens)} tokens, on one"
        f" colour scale; grey: keys that a query cannot see. {origin(found.sweep.data)}."
    )
    rows = [found.none, *(f"masked by {way}" for way in found.ways)]
    figure = attention.maps(values, rows, found.maps["attention_layer"].values.tolist(), tokens)
    return Drawing("attention-maps", figure, caption)


def largest_activation(found: Results) -> Drawing:
    """The largest |h| at each depth and position, for each edit and way in all layers."""
    last = max(arm.place or 0 for arm in found.sweep.arms)
    chosen = [arm for what in found.edits for way in _apart(found) for arm in found.sweep.arms if arm.group == f"{what}, {way}"]
    arms = [arm for arm in chosen if arm.place == last]
    shown = found.sweep.data["resid_max"].sel(edit=[found.none, *(arm.edit.label for arm in arms)]).mean("prompt")
    caption = (
        "Largest absolute value of the residual stream by depth and position"
        f" (first {min(POSITIONS, shown.sizes['position'])} positions), mean over {found.sweep.data.sizes['prompt']} prompts, one"
        f" logarithmic colour scale. Edits of all layers; renormalised weights look like logits. {origin(found.sweep.data)}."
    )
    titles = [found.none, *(arm.group for arm in arms)]
    return Drawing("largest-activation", layers.activations(shown.values[..., :POSITIONS], titles), caption)
