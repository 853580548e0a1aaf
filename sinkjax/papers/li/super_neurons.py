"""li/super-neurons: a few MLP neurons with large vectors make the massive activation (Li et al. 2026, super neurons).

The largest neurons are described by their weights and some prompts, then set to 0, one by one and together. Controls are as many
other neurons of the same layers.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import xarray
from numpy.typing import NDArray

from sinkjax import Edit, edit
from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import constant
from sinkjax.analysis.summary import Rank, Row
from sinkjax.checkpoints.model import Model
from sinkjax.papers.li._neurons import Neuron, largest, largest_neurons, survey
from sinkjax.report.figures.dots import Cloud, scatter
from sinkjax.report.section import Drawing
from sinkjax.study import *
from sinkjax.study import Batch, Calculation, typical_activation

VARIABLES = (
    "concentration", "cosine_first", "cosine_others", "fed", "gate_norm", "massive_dim", "own_first", "own_others", "own_share",
    "up_norm",
)  # fmt: skip
COLUMNS = {"size": "size (medians of its layer)", "concentration": "squared norm of W_down row in one dim (%)"}
COLUMNS |= {"fed": "the dim that it feeds most"}


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Sinks, Mapped):
    neurons: int = 8
    """how many of the largest are studied, and set to 0 one by one and together"""


def study(lab: Lab, s: Settings) -> None:
    """The MLP neurons with the largest gate and up vectors."""
    lab.needs("MLP", "gated MLP", "MLP without experts")
    L, width, many = lab.layers, lab.architecture.mlp_width or 0, s.neurons
    sink, size = sink_rate(0, s.eps), largest_activation(0)
    chosen = largest_neurons(lab, many)

    def without(neurons: Sequence[Neuron], queries: int | slice | None = None, label: str = "largest neurons") -> Edit:
        """Set neurons to 0 in a single term for all layers, by scaling outputs by 0 or 1; without any, all are scaled by 1."""
        factors = np.ones((L, 1, width), np.float32)
        for layer, number in neurons:
            factors[layer, 0, number] = 0
        layers = sorted({layer for layer, _ in neurons}) or None
        return edit("neuron", "scale", factors, layers=layers, queries=queries, label=label)

    def without_others(rng: np.random.Generator, case: Layers) -> Edit:
        return without(others(rng, chosen, case["count"], width), label="other neurons")

    each_one = {ALL.at(rank=rank): without(chosen[rank - 1 : rank]) for rank in range(1, many + 1)}
    single = lab.sweep("single", each_one, (sink, size), title="one neuron")
    counts = sorted({*(2**power for power in range(1, many.bit_length())), many})
    several = {ALL.at(count=count): without(chosen[:count]) for count in counts}
    together = lab.sweep("together", several, (sink, size), without_others, title="the largest")
    places: dict[str, int | slice] = {"position 0": 0, "later positions": slice(1, s.length)}
    at_places = {ALL.at(where=where): without(chosen, queries) for where, queries in places.items()}
    partly = lab.sweep("part", at_places, (sink, size), title="all of them")
    lab.noop(without(()))
    work = lab.calculate("neurons", partial(at_work, s), VARIABLES, {"at_work": [many, s.controls]}, s.prompts)

    source, without_all, first_only = "Li et al. 2026, super neurons", together.at(count=many), partly.at(where="position 0")
    lab.describe("extreme", source, lambda read: of_each(read, work, "size"))
    lab.claim("gates", source, gate_cosine(work), beside=[gate_cosine(work, "first"), gate_cosine(work, "others")])
    lab.describe("sparse", source, lambda read: of_each(read, work, "concentration", "fed"))
    lab.describe("feeds", source, lambda read: feeds_massive_dim(read, work))
    falls, massive = effect(size, without_all, above=typical_activation()), reaches(size, together, MASSIVE_SIZE)
    lab.claim("activation", f"ours, on {source}", falls, massive, [effect(sink, without_all)], sign=-1, took=WRITTEN)

    lab.draw(neuron_norms, work)
    lab.draw(lines_along, "rank", sink, size, over=single)
    lab.draw(by_layer, partial(largest_activation, 0), conditions=[without_all, first_only])
    lab.maps(without_all, first_only)


def others(rng: np.random.Generator, neurons: Sequence[Neuron], count: int, width: int) -> list[Neuron]:
    """Draw random neurons in the layers of the first `count` neurons, excluding all of these."""
    drawn: list[Neuron] = []
    for layer, _ in neurons[:count]:
        taken = {number for where, number in (*neurons, *drawn) if where == layer}
        drawn.append((layer, int(rng.choice([number for number in range(width) if number not in taken]))))
    return drawn


def at_work(s: Settings, model: Model, batch: Batch) -> xarray.Dataset:
    """Inputs and outputs of the largest neurons, next to as many random other neurons of the same layers."""
    chosen = largest(model, s.neurons)
    rng = intervals.generator(s.seed, "li/super-neurons neurons")
    drawn = [others(rng, chosen, s.neurons, model.config.mlp_width or 0) for _ in range(s.controls)]
    every = [*chosen, *(neuron for one in drawn for neuron in one)]
    return survey(model, batch, every).assign_attrs(neurons=[list(neuron) for neuron in chosen])


def own_and_random(data: xarray.Dataset, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the mean of a number over the largest neurons, float[prompt], and over each control, float[control, prompt]."""
    values = data[name].values.reshape(data.sizes["prompt"], -1, len(data.attrs["neurons"])).mean(axis=-1)
    return values[:, 0], values[:, 1:].T


@from_results
def gate_cosine(read: Numbers, work: Calculation, on: Literal["difference", "first", "others"] = "difference") -> Parts:
    """Cosine of gate vectors with the normalised state of the first token minus that with the others', or one of the two."""
    data = read.data(work.name)
    if on != "difference":
        return Parts(*own_and_random(data, f"own_{on}"), None, (-1.0, 1.0), "", f"cosine of gate vectors with the state of {on}")
    (first, random_first), (rest, random_rest) = own_and_random(data, "own_first"), own_and_random(data, "own_others")
    label = "cosine of gate vectors with the first token's state minus that with others'"
    return Parts(first - rest, random_first - random_rest, first, (-1.0, 1.0), "", label)


def feeds_massive_dim(read: Numbers, work: Calculation) -> list[Row]:
    """Share of the squared norm of rows of W_down in the dim of the first token's largest activation, ranked among controls."""
    share, random = own_and_random(read.data(work.name), "own_share")
    value = 100 * float(share.mean())
    measure = "squared norm of W_down rows in the dim of the massive activation (%)"
    return [Row("the largest", "all of them", measure, constant(value), rank=Rank.among(value, 100 * random.mean(axis=1)))]


def of_each(read: Numbers, work: Calculation, *columns: str) -> list[Row]:
    """Numbers of each of the largest neurons, some of `COLUMNS`."""
    data = read.data(work.name)
    arrays = {"size": data["gate_norm"] * data["up_norm"], "concentration": 100 * data["concentration"], "fed": data["fed"]}
    rows = []
    for (layer, number), name in itertools.product(data.attrs["neurons"], columns):
        value = constant(float(arrays[name].values[layer, number]))
        rows.append(Row(f"layer {layer}, neuron {number}", "one neuron", COLUMNS[name], value))
    return rows


def neuron_norms(read: Numbers, work: Calculation) -> Drawing:
    """Norms of the gate and up vectors of all neurons, with the largest named."""
    data = read.data(work.name)
    gate, up, chosen = data["gate_norm"].values, data["up_norm"].values, data.attrs["neurons"]
    places, named = tuple(np.array(chosen).T), [f"{layer}: {number}" for layer, number in chosen]
    most = Cloud("the largest (layer: neuron)", gate[places], up[places], named)
    clouds = [Cloud("all neurons", gate.ravel(), up.ravel(), faint=True), most]
    figure = scatter({"": clouds}, "norm of gate vector (medians)", "norm of up vector (medians)", log=True)
    caption = f"L2 norms of gate and up vectors over their layer's median; the {len(chosen)} with the largest product are named."
    return read.drawing("neuron-norms", figure, caption, work.name, bands=False)
