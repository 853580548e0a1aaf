"""MLP neurons by size: the largest, edits that set some to 0, and their contrasts, lists and figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import constant
from sinkjax.analysis.summary import Rank, Row
from sinkjax.errors import SinkjaxError
from sinkjax.report.section import Drawing
from sinkjax.studies.known import Unedited
from sinkjax.studies.readings import Parts
from sinkjax.studies.vocabulary import Computation, Contrast, Described, EditWord, F, FigureWord, Known, Number, Readings

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model
    from sinkjax.model.config import Config
    from sinkjax.studies.scope import Scope
    from sinkjax.studies.study import Batch

Neuron = tuple[int, int]  # layer and index
VARIABLES = (
    "concentration", "cosine_first", "cosine_others", "fed", "gate_norm", "massive_dim", "own_first", "own_others", "own_share",
    "up_norm",
)  # fmt: skip
COLUMNS = {
    "size": "size (medians of its layer)",
    "first": "cosine of gate vector, position 0",
    "others": "cosine of gate vector, other positions",
    "concentration": "squared norm of W_down row in one dim (%)",
    "fed": "the dim that it feeds most",
}


@Number.define()
def ranks(scope: Scope, count: object) -> tuple[int, ...]:
    """The numbers from 1 to `count`."""
    return tuple(range(1, scope.get(count) + 1))


@Number.define()
def doublings(scope: Scope, count: object) -> tuple[int, ...]:
    """2, 4, 8, ... up to `count`, and `count` itself."""
    most = scope.get(count)
    return tuple(sorted({*(2**power for power in range(1, most.bit_length())), most}))


def _blank(scope: Scope, prompts: int) -> tuple[Neuron, ...]:
    count, width = scope.config.neurons, scope.architecture.mlp_width
    if not 1 <= count <= width // 2:
        raise SinkjaxError(f"{count} neurons and as many controls do not fit a layer of {width}")
    return tuple((0, number) for number in range(count))


@Known.define(blank=_blank, of_edited=True)
def largest_neurons(scope: Scope, run: Unedited, count: object, last: object = None) -> tuple[Neuron, ...]:
    """The neurons of largest size: the product of the norms of gate and up vector, each relative to its layer's median.

    Args:
        scope: The study's scope.
        run: The model.
        count: How many.
        last: The last layer to take them from; None: the model's.
    """
    return largest(run.loaded[0], scope.get(count), scope.get(last))


def largest(model: Model, count: int, last: int | None = None) -> tuple[Neuron, ...]:
    """The `count` neurons of largest size in layers 0 to `last` (None: in all), as (layer, number)."""
    from sinkjax.papers.li._neurons import sizes

    gate, up = (norms[: None if last is None else last + 1] for norms in sizes(model))
    order = np.argsort(-(gate * up), axis=None, kind="stable")[:count]
    return tuple(divmod(int(number), gate.shape[1]) for number in order)


def _without(chosen: Sequence[Neuron], architecture: Config, positions: int | slice | None, label: str) -> sinkjax.Edit:
    """Set neurons to 0 in a single term for all layers, by scaling outputs by 0 or 1; without neurons, all are scaled by 1."""
    factors = np.ones((architecture.layers, 1, architecture.mlp_width or 0), np.float32)
    for layer, number in chosen:
        factors[layer, 0, number] = 0
    layers = sorted({layer for layer, _ in chosen}) or None
    return sinkjax.edit("neuron", "scale", factors, layers=layers, queries=positions, label=label)


@EditWord.define()
def without_neurons(
    scope: Scope, neurons: object, first: object = 1, last: object = F.neurons, where: object = "all positions"
) -> sinkjax.Edit:
    """Set neurons to 0.

    Args:
        scope: The study's scope.
        neurons: Neurons in falling order of size.
        first, last: The range of ranks that are set to 0, from 1.
        where: "all positions", "position 0" or "later positions".
    """
    chosen = scope.get(neurons)[scope.get(first) - 1 : scope.get(last)]
    at = {"all positions": None, "position 0": 0, "later positions": slice(1, scope.config.length)}[scope.get(where)]
    return _without(chosen, scope.architecture, at, "largest neurons")


@EditWord.define()
def without_others(scope: Scope, neurons: object, last: object) -> sinkjax.Edit:
    """Set as many random other neurons of the same layers to 0."""
    others = _others(scope.random, scope.get(neurons), scope.get(last), scope.architecture.mlp_width)
    return _without(others, scope.architecture, None, "other neurons")


def _others(rng: np.random.Generator, neurons: Sequence[Neuron], count: int, width: int) -> list[Neuron]:
    """Draw random neurons in the layers of the first `count` neurons, excluding all of these."""
    drawn: list[Neuron] = []
    for layer, _ in neurons[:count]:
        taken = {number for where, number in (*neurons, *drawn) if where == layer}
        drawn.append((layer, int(rng.choice([number for number in range(width) if number not in taken]))))
    return drawn


@Computation.define(variables=VARIABLES, prompts=F.prompts)
def neurons_at_work(scope: Scope, model: Model, batch: Batch, count: int, controls: int = F.controls) -> xarray.Dataset:
    """Inputs and outputs of the largest neurons, next to as many random other neurons of the same layers."""
    from sinkjax.papers.li._neurons import survey

    chosen = largest(model, count)
    rng = intervals.generator(scope.config.seed, "li/super-neurons neurons")
    drawn = [_others(rng, chosen, count, model.config.mlp_width or 0) for _ in range(controls)]
    every = [*chosen, *(neuron for one in drawn for neuron in one)]
    return survey(model, batch, every).assign_attrs(neurons=[list(neuron) for neuron in chosen])


def _own(data: xarray.Dataset, name: str) -> tuple[NDArray, NDArray]:
    """Return the mean of a number over the largest neurons, float[prompt], and over each control, float[control, prompt]."""
    values = data[name].values.reshape(data.sizes["prompt"], -1, len(data.attrs["neurons"])).mean(axis=-1)
    return values[:, 0], values[:, 1:].T


@Contrast.define()
def gate_cosine(read: Readings, computation: str, on: str = "difference") -> Parts:
    """Cosine of gate vectors with the normalised state of the first token minus that with other tokens' states.

    Args:
        on: "difference", or "first" or "others" for one of both.
    """
    data = read.results[read.store(computation)]
    (first, random_first), (others, random_others) = _own(data, "own_first"), _own(data, "own_others")
    found = {"difference": (first - others, random_first - random_others), "first": (first, random_first)}
    value, random = found.get(on, (others, random_others))
    label = "with the first token's state minus that with others'" if on == "difference" else f"with the state of {on}"
    return Parts(value, random, first if on == "difference" else None, (-1.0, 1.0), "", f"cosine of gate vectors {label}")


@Described.define()
def feeds_massive_dim(read: Readings, computation: str) -> list[Row]:
    """Share of the squared norm of rows of W_down in the dim of the first token's largest activation, ranked among controls."""
    share, random = _own(read.results[computation], "own_share")
    value = 100 * float(share.mean())
    measure = "squared norm of W_down rows in the dim of the massive activation (%)"
    return [Row("the largest", "all of them", measure, constant(value), rank=Rank.among(value, 100 * random.mean(axis=1)))]


@Described.define()
def neuron_numbers(read: Readings, computation: str, columns: tuple[str, ...]) -> list[Row]:
    """Numbers of each of the largest neurons: "size", "first", "others", "concentration" or "fed"."""
    data = read.results[computation]
    arrays = {
        "size": (data["gate_norm"] * data["up_norm"]).values,
        "first": data["cosine_first"].values,
        "others": data["cosine_others"].values,
        "concentration": 100 * data["concentration"].values,
        "fed": data["fed"].values,
    }
    return [
        Row(f"layer {layer}, neuron {number}", "one neuron", COLUMNS[name], constant(float(arrays[name][layer, number])))
        for layer, number in data.attrs["neurons"]
        for name in columns
    ]


@FigureWord.define()
def neuron_norms(read: Readings, computation: str) -> Drawing:
    """Norms of the gate and up vectors of all neurons, with the largest named."""
    from sinkjax.report.figures import scatter

    data = read.results[computation]
    gate, up, chosen = data["gate_norm"].values, data["up_norm"].values, data.attrs["neurons"]
    places, named = tuple(np.array(chosen).T), [f"{layer}: {number}" for layer, number in chosen]
    clouds = [
        scatter.Cloud("all neurons", gate.ravel(), up.ravel(), faint=True),
        scatter.Cloud("the largest (layer: neuron)", gate[places], up[places], named),
    ]
    figure = scatter.scatter({"": clouds}, "norm of gate vector (medians)", "norm of up vector (medians)", log=True)
    caption = f"""L2 norms of the gate and up vectors of all MLP neurons, each over the median of its layer, on logarithmic
        axes. The {len(chosen)} with the largest product are named by layer and number."""
    return read.drawing("neuron-norms", figure, caption, computation, bands=False)
