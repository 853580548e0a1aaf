"""The figures of li/super-neurons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.experiments.base import Drawing
from sinkjax.experiments.captions import origin
from sinkjax.experiments.li.config import SuperNeurons
from sinkjax.experiments.li.neurons import Neuron
from sinkjax.report.figures import layers, points, scatter

if TYPE_CHECKING:
    import xarray

SHOWN = 4  # neurons whose ablation has a curve of its own


@dataclass(frozen=True)
class Results:
    """What the figures are drawn from. names: label of an arm -> its name for readers, of the arms that may be drawn."""

    config: SuperNeurons
    looked: xarray.Dataset
    data: xarray.Dataset
    chosen: Sequence[Neuron]
    names: Mapping[str, str]


def drawings(found: Results) -> tuple[Drawing, ...]:
    """Every figure, in the order of the page."""
    return (vectors(found), directions(found), ablation(found))


def vectors(found: Results) -> Drawing:
    """Norms of gate and up vectors, and what each neuron writes."""
    gate, up = found.looked["gate_norm"].values, found.looked["up_norm"].values
    places = tuple(np.array(found.chosen).T)
    names = [f"{neuron.layer}: {neuron.number}" for neuron in found.chosen]
    clouds = [
        scatter.Cloud("all neurons", gate.ravel(), up.ravel(), faint=True),
        scatter.Cloud("the largest (layer: neuron)", gate[places], up[places], names),
    ]
    caption = (
        f"L2 norms of the gate and up vectors of all {gate.size:,} MLP neurons, each over the median of its layer, both axes"
        f" logarithmic; the {len(found.chosen)} with the largest product are named by layer and number."
        f" {origin(found.looked, False)}."
    )
    figure = scatter.scatter({"": clouds}, "norm of gate vector (medians)", "norm of up vector (medians)", log=True)
    return Drawing("neuron-norms", figure, caption)


def directions(found: Results) -> Drawing:
    """Cosines of gate vectors and concentration of the rows of W_down."""

    def column(kinds: Mapping[str, str]) -> list[points.Point]:
        return [
            points.Point(str(neuron), _exactly(float(found.looked[name].values[neuron])), kind)
            for name, kind in kinds.items()
            for neuron in found.chosen
        ]

    columns = {
        "cosine of the gate vector with the normalised state": column(
            {"cosine_first": "first token", "cosine_others": "other tokens"}
        ),
        "share of the W_down row's squared norm in one dim": column({"concentration": "largest dim"}),
    }
    lowest = [point.value.mean or 0.0 for column in columns.values() for point in column]
    caption = (
        f"The {len(found.chosen)} neurons with the largest gate and up vectors: how far the gate vector points along the MLP's"
        " normalised input at the first token and at others (left), and how much of what the neuron writes goes to a single dim"
        f" (right). {origin(found.looked)}."
    )
    return Drawing("neuron-directions", points.points(columns, "cosine, share", limits=(min(0.0, *lowest) - 0.05, 1)), caption)


def ablation(found: Results) -> Drawing:
    """The largest |h| at the first token by depth, without some neurons."""
    labels = list(found.names)
    none, whole = labels[-2:]
    shown = [none, *labels[:SHOWN], whole]
    values = found.data["resid_max"].isel(position=0).sel(edit=shown).transpose("edit", "depth", "prompt").values
    lines = [
        layers.Line(
            found.names[label] if label == none else f"without {found.names[label]}",
            range(values.shape[1]),
            intervals.intervals(arm, seed=found.config.seed).tolist(),
        )
        for label, arm in zip(shown, values, strict=True)
    ]
    caption = (
        "Largest |h| at the first token by depth (0: embedding, l + 1: after layer l), with no edit, without each of the"
        f" {SHOWN} largest neurons, and without all {len(found.chosen)}. Bands: bootstrap 95 % intervals over"
        f" {found.data.sizes['prompt']} prompts. {origin(found.data)}."
    )
    panel = layers.Panel("", "largest |h| at position 0", lines, log=True)
    figure = layers.lines([[panel]], "depth (0: embedding, l + 1: after layer l)", legend_above=True)
    return Drawing("massive-activation-without-neurons", figure, caption)


def _exactly(value: float) -> Interval:
    """A value without an interval."""
    return Interval(value, None, None, 1, 0, 0.95, "none")
