"""Who makes the large activation at the sink: the layer, its neurons and one weight, each removed to check it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis.finite import mean_loss
from sinkjax.analysis.intervals import generator
from sinkjax.cards.ground import FEW, HALF, Ground, Numbers, signed
from sinkjax.cards.where import SinkPlaces
from sinkjax.edits.edit import edit
from sinkjax.edits.named import edit_weights
from sinkjax.explain.super_weights import alike
from sinkjax.model.site import Site, lacks

MOST, ENOUGH = 8, 0.8  # neurons that are named; share of the product that they must explain
CONTROLS = 10
LENGTH = 24  # tokens of the prompts behind the sink, because there are many removals


@dataclass(frozen=True)
class Maker:
    """The layer and neurons that make the activation, and the rest without them. Shares are of the unedited number.

    Attributes:
        layer: The layer in which the activation grows most.
        part: "MLP" or "attention", whichever adds more to the activation's dim in this layer.
        neurons: The fewest neurons that write 80% of the MLP's part, at most 8.
        share: The share of the MLP's part that they write.
        weight: (layer, neuron, dim) of the entry of the down projection with the largest product.
        left: Share of the activation that is left with the neurons at 0.
        left_controls: The same for each control, with as many random neurons at 0.
        sink: Share of the sink's strength that is left with the neurons at 0.
        sink_controls: The same for each control.
        loss: Loss added by setting `weight` to 0, in nats.
        loss_control: The largest mean loss added by setting another entry of similar size to 0.
    """

    layer: int
    part: str
    neurons: list[int]
    share: float
    weight: tuple[int, int, int]
    left: dict[str, Any]
    left_controls: list[float]
    sink: dict[str, Any]
    sink_controls: list[float]
    loss: dict[str, Any]
    loss_control: float

    @property
    def confirmed(self) -> bool:
        """Whether removing the neurons takes away more of the activation than removing any control."""
        mean = self.left["mean"]
        return mean is not None and mean < min(self.left_controls)

    @property
    def super_weight(self) -> bool:
        """Whether setting `weight` to 0 adds more loss than setting any control to 0, over its whole interval if it has one."""
        least = self.loss["mean"] if self.loss["low"] is None else self.loss["low"]
        return least is not None and least > self.loss_control

    def sentence(self) -> str:
        """Describe the makers in one line."""
        named = ", ".join(map(str, self.neurons[:4])) + ", ..." * (len(self.neurons) > 4)
        which = f"neuron {named} writes" if len(self.neurons) == 1 else f"neurons {named} write"
        layer, row, col = self.weight
        weight = f"entry (layer {layer}, row {row}, col {col}) of its down projection"
        return (
            f"the {self.part} of layer {self.layer}; {which} {self.share:.0%} of it, and without the neurons "
            f"{self.left['mean']:.0%} of the activation and {self.sink['mean']:.0%} of the sink are left "
            f"({'' if self.confirmed else 'not '}confirmed: {min(self.left_controls):.0%} with random neurons); {weight} is "
            f"{'' if self.super_weight else 'not shown to be '}a super weight: {signed(self.loss, ' nats')} without it, and at "
            f"most {signed({'mean': self.loss_control, 'low': None})} without another of its size"
        )


def maker(ground: Ground, places: SinkPlaces, controls: int = CONTROLS) -> Maker | str:
    """Find the layer, the neurons and the weight, and remove each.

    Args:
        ground: The prompts.
        places: Where the sinks and activations are.
        controls: Number of random sets of neurons, and of weights.

    Returns:
        The maker; or why there is none to find, in a sentence.
    """
    config, activation = ground.model.config, places.activation
    if not activation.stands_out:
        return f"no activation stands out at position {ground.key}"
    if missing := lacks(config, Site.NEURON):
        return f"its neurons cannot be read: this model has {missing}"
    if config.experts is not None:
        return "its neurons are not searched in a mixture of experts"
    if ground.own.numbers["resid_max"][:, 0, ground.key].mean() >= HALF * activation.largest:
        return f"the embedding: dim {activation.dim} is as large before the first layer"
    grown = np.diff([0.0, *activation.by_layer])
    layer, dim, key = int(np.argmax(grown[: activation.layer + 1])), activation.dim, ground.key
    at_sink = {site: numbers[:, layer].mean(axis=0) for site, numbers in ground.vectors.items()}
    down = np.asarray(np.asarray(ground.model.params["layers"]["down"])[layer], np.float64)  # JAX would compile the index
    product = at_sink[Site.NEURON] * down[:, dim]
    product = product * np.sign(product.sum())
    order = np.argsort(-product, kind="stable")[:MOST]
    shares = np.cumsum(product[order]) / product.sum()
    count = min(int(np.searchsorted(shares, ENOUGH)) + 1, MOST)
    neurons = sorted(int(each) for each in order[:count])
    rng = generator(0, "neurons of a card")
    rest = np.setdiff1d(np.arange(len(product)), neurons)
    drawn = [rng.choice(rest, min(count, len(rest)), replace=False) for _ in range(controls)]
    best = int(order[0])
    entries = [(best, dim), *alike(down, best, dim, controls)]
    few, names = ground.own.tokens[FEW, : key + LENGTH], ("received", "resid_max", "nll")

    def without(neurons: Any = (), entry: tuple[int, int] | None = None) -> Numbers:
        factor = np.ones(len(product), np.float32)
        factor[np.asarray(neurons, int)] = 0.0
        row, col = entry or (best, dim)
        weight = edit_weights("down", "scale", float(entry is None), layers=layer, rows=row, cols=col)
        return ground.run(few, names, [edit("neuron", "scale", factor, layers=layer), weight])

    def left(of: Callable[[Numbers], NDArray[Any]]) -> NDArray[Any]:
        return np.array([of(each) for each in removed]) / max(of(unedited).mean(), 1e-30)

    unedited, *removed = (without(each) for each in ([], neurons, *drawn))
    largest, sink = (
        left(lambda data: data["resid_max"][:, activation.layer + 1, key]),
        left(partial(ground.strength, position=key)),
    )
    added = np.array([mean_loss(without(entry=entry)["nll"], unedited["nll"]) for entry in entries])
    return Maker(
        layer=layer,
        part="MLP" if abs(at_sink[Site.MLP_OUT][dim]) >= abs(at_sink[Site.ATTN_OUT][dim]) else "attention",
        neurons=neurons,
        share=float(shares[count - 1]),
        weight=(layer, best, dim),
        left=ground.own.number(largest[0]),
        left_controls=np.nanmean(largest[1:], axis=1).tolist(),
        sink=ground.own.number(sink[0]),
        sink_controls=np.nanmean(sink[1:], axis=1).tolist(),
        loss=ground.own.number(added[0]),
        loss_control=float(added[1:].mean(axis=1).max()),
    )
