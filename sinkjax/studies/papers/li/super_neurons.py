"""li/super-neurons: a few MLP neurons with large vectors make the massive activation (Li et al. 2026, super neurons).

Neurons are ranked by the norms of their gate and up vectors over the whole model. What drives the largest and what they write is
calculated from the weights and a few prompts; then they are set to 0, one by one and together, against as many other neurons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis.rules import constant
from sinkjax.config_files.checks import at_least, refuse
from sinkjax.studies.study import control_prompts

if TYPE_CHECKING:
    import xarray

STORE, SAME = "neurons", "identity (every neuron times 1)"
ONE, TOGETHER, PART = "one neuron", "the largest together", "part of the positions"
ABOUT_0, HIGH, RANK = 0.1, 0.3, 0.99  # cosines, and the share of a layer's neurons with smaller ones; bounds of the verdicts
LEFT = 0.1  # of the massive activation
PARTS = ("position 0 only", "all other positions")
SHOWN = 4  # neurons whose ablation has a curve of its own


@dataclass(frozen=True, kw_only=True)
class SuperNeurons(st.ControlledSinks):
    """The MLP neurons with the largest gate and up vectors: what drives them, what they feed, what happens without them.

    Chosen here: a neuron's size is the product of the L2 norms of its gate and up vectors, each over the median of its layer; the
    largest of all layers are the super neurons; they are ablated by setting them to 0, at every position unless said otherwise.
    """

    neurons: int = 8
    """how many of the largest are studied and ablated, one by one and together"""
    extreme: float = 5.0
    """size from which a neuron counts as one of extreme norm"""
    controls: int = 20
    """draws of as many other neurons of the same layers"""
    control_prompts: int = 8
    """prompts on which the controls are measured and neurons are looked at, the first of all"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, neurons=2)


class Neuron(NamedTuple):
    """A neuron's layer and number, both 0-based."""

    layer: int
    number: int

    def __str__(self) -> str:
        return f"layer {self.layer}, neuron {self.number}"


def largest(values: NDArray, count: int) -> tuple[Neuron, ...]:
    """The neurons with the largest of float[layer, neuron], in falling order."""
    order = np.argsort(-values, axis=None, kind="stable")[:count]
    return tuple(Neuron(int(layer), int(number)) for layer, number in zip(*np.unravel_index(order, values.shape), strict=True))


def super_neurons(config: SuperNeurons, model: Any, batch: st.Batch) -> tuple[Neuron, ...]:
    from sinkjax.studies.papers.li._neurons import sizes

    gate, up = sizes(model)
    return largest(gate * up, config.neurons)


def survey(model: Any, batch: st.Batch) -> xarray.Dataset:
    from sinkjax.studies.papers.li import _neurons

    return _neurons.survey(model, batch.tokens, batch.lengths)


CHOSEN = st.Values(
    lambda config, architecture, prompts: tuple(Neuron(0, place) for place in range(config.neurons)), super_neurons
)


def ablate(chosen: Sequence[Neuron], architecture: Any, label: str, positions: Any = None) -> sinkjax.Edit:
    """Neurons set to 0, as one term whatever their layers: the outputs of these layers times 0 and 1. No neuron: all times 1."""
    factors = np.ones((architecture.layers, 1, architecture.mlp_width), np.float32)
    for neuron in chosen:
        factors[neuron.layer, 0, neuron.number] = 0
    layers = sorted({neuron.layer for neuron in chosen}) or None
    return sinkjax.edit("neuron", "scale", factors, layers=layers, queries=positions, label=label)


def budgets(config: SuperNeurons, architecture: Any = None) -> list[int]:
    """How many neurons are ablated together: powers of two, and all."""
    count = config.neurons
    return sorted({2**power for power in range(count.bit_length()) if 2**power <= count} | {count})


def conditions(config: SuperNeurons, architecture: Any, chosen: Sequence[Neuron]) -> Iterator[st.Condition]:
    """Nothing, each neuron alone, the n largest together, and all of them at part of the positions; a budget is a count."""
    whole = together(config.neurons)
    yield st.no_edit()
    yield st.Condition(ablate([], architecture, SAME), SAME)
    for place, neuron in enumerate(chosen):
        yield st.Condition(ablate([neuron], architecture, rank(place)), ONE, place, budget=1)
    for many in budgets(config)[1:]:
        yield st.Condition(ablate(chosen[:many], architecture, together(many)), TOGETHER, many, budget=many)
    for where, positions in zip(PARTS, (0, slice(1, config.length)), strict=True):
        yield st.Condition(ablate(chosen, architecture, f"{whole}, at {where}", positions), PART)


def rank(place: int) -> str:
    """The label of the ablation of one neuron, which is known by its name once the model is."""
    return f"neuron of rank {place + 1}"


def together(many: int) -> str:
    return f"the {many} largest"


def other_neurons(
    rng: np.random.Generator, config: SuperNeurons, architecture: Any, many: int, chosen: Sequence[Neuron]
) -> sinkjax.Edit:
    """As many other neurons of the same layers; the layer of a single one is drawn too."""
    others: list[Neuron] = []
    for place in [int(rng.integers(len(chosen)))] if many == 1 else range(many):
        layer = chosen[place].layer
        taken = {neuron.number for neuron in (*chosen, *others) if neuron.layer == layer}
        free = [number for number in range(architecture.mlp_width) if number not in taken]
        others.append(Neuron(layer, int(rng.choice(free))))
    return ablate(others, architecture, f"{many} other neurons")


def measures(config: SuperNeurons) -> tuple[st.Measure, ...]:
    return st.sink_rate(0, config.eps), st.largest_activation(0), st.loss()


def sizes(results: st.Results) -> NDArray:
    """Of every neuron: float[layer, neuron]."""
    return (results[STORE]["gate_norm"] * results[STORE]["up_norm"]).values


def found(results: st.Results) -> tuple[Neuron, ...]:
    return largest(sizes(results), results.config.neurons)


def rows(results: st.Results) -> Iterator[st.Row]:
    """What the largest neurons are: one row for each and each number."""
    looked = results[STORE]
    columns = {
        "size (medians of its layer)": sizes(results),
        "cosine of gate vector, position 0": looked["cosine_first"].values,
        "cosine of gate vector, other positions": looked["cosine_others"].values,
        "squared norm of W_down row in one dim (%)": 100 * looked["concentration"].values,
        "the dim that it feeds most": looked["fed"].values,
    }
    for neuron in found(results):
        yield from (st.Row(str(neuron), ONE, name, constant(float(values[neuron]))) for name, values in columns.items())


def of_extreme(name: str, of: Callable[[xarray.Dataset, Neuron], Any], joined: Callable[..., Any] = np.mean) -> st.Quantity:
    """A number of the neurons of extreme norm, by default their mean; undefined where there are none."""

    def number(results: st.Results) -> float:
        size = sizes(results)
        values = [of(results[STORE], neuron) for neuron in found(results) if size[neuron] >= results.config.extreme]
        return float(joined(values)) if values else np.nan

    return st.quantity(name, number)


def of_rank(looked: xarray.Dataset, neuron: Neuron) -> bool:
    """Whether a gate vector is closer to the first token's state than nearly all of its layer."""
    cosines = looked["cosine_first"].values[neuron.layer]
    return bool((cosines < cosines[neuron.number]).mean() >= RANK)


def claims(config: SuperNeurons, architecture: Any) -> Iterator[st.Claim]:
    size, whole = measures(config)[1], together(config.neurons)
    extreme = st.at_least(st.Quantity("size of the largest neuron, in medians of its layer", largest_one), config.extreme)

    def share(what: str, holds: Callable[[xarray.Dataset, Neuron], Any]) -> st.Quantity:
        return of_extreme(f"neurons of extreme norm {what} (%)", lambda looked, neuron: 100 * bool(holds(looked, neuron)))

    def ends(name: str, what: str) -> tuple[st.Quantity, ...]:
        """The smallest and the largest number of these neurons."""
        return tuple(
            of_extreme(f"{what} {end}", lambda looked, neuron: looked[name].values[neuron], joined)
            for end, joined in {"at least": np.min, "at most": np.max}.items()
        )

    yield st.Claim(
        "A few MLP neurons have gate and up vectors of extreme norm.",
        extreme,
        also=(
            st.quantity(f"neurons of size {config.extreme:g} or more", lambda results: (sizes(results) >= config.extreme).sum()),
        ),
        paper="neuron 7890 of layer 0 in Llama-2-7B",
    )
    yield st.Claim(
        "Their gate vector has a high cosine with the first token's normalised state.",
        st.more_than(
            share(
                f"with a cosine of at least {HIGH} that is above that of {100 * RANK:g} % of the neurons of their layer",
                lambda looked, neuron: looked["cosine_first"].values[neuron] >= HIGH and of_rank(looked, neuron),
            ),
            50,
        ),
        given=extreme,
        also=(
            *ends("cosine_first", "cosine with the first token's state"),
            share("with a cosine above that of as many, however small", of_rank),
        ),
    )
    rest = {
        "It has a cosine of about 0 with that of other tokens.": (
            share(
                f"with a cosine of at most {ABOUT_0} either way",
                lambda looked, neuron: abs(looked["cosine_others"].values[neuron]) <= ABOUT_0,
            ),
            ends("cosine_others", "mean cosine with the states of other tokens"),
        ),
        "Their row of W_down is concentrated on few dims.": (
            share(
                "with more than half of the row's squared norm in one dim",
                lambda looked, neuron: looked["concentration"].values[neuron] > 0.5,
            ),
            ends("concentration", "share of the row's squared norm in one dim"),
        ),
        "They feed the dim of the massive activation.": (
            share(
                "whose row of W_down feeds that dim most",
                lambda looked, neuron: looked["fed"].values[neuron] == int(looked["massive_dim"]),
            ),
            (MASSIVE,),
        ),
    }
    for statement, (most, also) in rest.items():
        paper = "dim 2533 in Llama-2-7B" if MASSIVE in also else ""
        yield st.Claim(statement, st.more_than(most, 50), given=extreme, also=also, paper=paper)
    yield st.Claim(
        "They make the massive activation: without them it does not appear.",
        st.all_of(
            st.below(st.value(size, whole), st.value(size, st.NO_EDIT).times(LEFT, "a tenth of that without an edit")),
            st.below_controls(st.effect(size, whole)),
        ),
        also=(st.value(size, st.NO_EDIT),),
    )


MASSIVE = st.quantity("dim of the largest |h| at position 0", lambda results: float(results[STORE]["massive_dim"]))


def largest_one(results: st.Results) -> st.Estimate:
    neuron = found(results)[0]
    return st.Estimate(f"size of the largest neuron ({neuron})", constant(float(sizes(results)[neuron])), "medians of its layer")


def without_one(results: st.Results) -> st.Estimate:
    size, labels = measures(results.config)[1], [rank(place) for place in range(results.config.neurons)]
    label = st.largest_effect(size, labels, "", lowest=True)(results)
    name = f"{size.name} without {found(results)[labels.index(label)]}, which lowers it most of all single ones"
    return st.Estimate(name, results.row(size, label).value)


def writer(place: int) -> st.Quantity:
    """One of the neurons that write most to the massive dim at the first token."""

    def of(results: st.Results) -> st.Estimate:
        writes, size = results[STORE]["writes"].values, sizes(results)
        neuron = largest(np.abs(writes), place + 1)[place]
        name = f"what {neuron} (no. {(size > size[neuron]).sum() + 1} by size) writes to that dim"
        return st.Estimate(name, constant(float(writes[neuron])), signed=True)

    return st.Quantity(f"what the neuron that writes most but {place} writes to that dim", of)


def findings(config: SuperNeurons, architecture: Any) -> Iterator[st.Quantity]:
    sinks, size, loss = measures(config)
    whole = together(config.neurons)
    yield from (MASSIVE, *map(writer, range(4)))
    for measure in (sinks, size, loss):
        yield from (st.value(measure, st.NO_EDIT), st.value(measure, whole), st.effect(measure, whole))
    yield st.Quantity("largest |h| at position 0 without the single neuron that lowers it most", without_one)
    yield from (st.value(loss, f"{whole}, at {where}") for where in PARTS)
    yield st.noop_change(SAME)


def figures(config: SuperNeurons, architecture: Any) -> Iterator[st.Figure]:
    yield st.drawn(
        *("neuron-norms", norms),
        f"""L2 norms of the gate and up vectors of all MLP neurons, each over the median of its layer, both axes logarithmic; the
        {config.neurons} with the largest product are named by layer and number.""",
        *(STORE, False),
    )
    yield st.drawn(
        *("neuron-directions", directions),
        f"""The {config.neurons} neurons with the largest gate and up vectors: how far the gate vector points along the MLP's
        normalised input at the first token and at others (left), and how much of what the neuron writes goes to a single dim
        (right).""",
        *(STORE, False),
    )
    yield st.drawn(
        *("massive-activation-without-neurons", ablation),
        f"""Largest |h| at the first token by depth (0: embedding, l + 1: after layer l), with no edit, without each of the
        {SHOWN} largest neurons, and without all {config.neurons}.""",
    )


def norms(results: st.Results) -> Any:
    from sinkjax.report.figures.scatter import Cloud, scatter

    gate, up = results[STORE]["gate_norm"].values, results[STORE]["up_norm"].values
    chosen = found(results)
    places = tuple(np.array(chosen).T)
    named = [f"{neuron.layer}: {neuron.number}" for neuron in chosen]
    clouds = [
        Cloud("all neurons", gate.ravel(), up.ravel(), faint=True),
        Cloud("the largest (layer: neuron)", gate[places], up[places], named),
    ]
    return scatter({"": clouds}, "norm of gate vector (medians)", "norm of up vector (medians)", log=True)


def directions(results: st.Results) -> Any:
    from sinkjax.report.figures.points import Point, points

    def column(**kinds: str) -> list[Point]:
        return [
            Point(str(neuron), constant(float(results[STORE][name].values[neuron])), kind)
            for name, kind in kinds.items()
            for neuron in found(results)
        ]

    columns = {
        "cosine of the gate vector with the normalised state": column(cosine_first="first token", cosine_others="other tokens"),
        "share of the W_down row's squared norm in one dim": column(concentration="largest dim"),
    }
    lowest = min(point.value.mean or 0.0 for entries in columns.values() for point in entries)
    return points(columns, "cosine, share", limits=(min(0.0, lowest) - 0.05, 1))


def ablation(results: st.Results) -> Any:
    from sinkjax.report.figures import layers

    values = results.data["resid_max"].isel(position=0).transpose("edit", "prompt", "depth")
    without = {rank(place): str(neuron) for place, neuron in enumerate(found(results)[:SHOWN])}
    whole = together(results.config.neurons)
    shown = {st.NO_EDIT: st.NO_EDIT} | {label: f"without {name}" for label, name in (without | {whole: whole}).items()}
    depths = range(values.sizes["depth"])
    lines = [results.curve(name, depths, values.sel(edit=label).values) for label, name in shown.items()]
    panel = layers.Panel("", "largest |h| at position 0", lines, log=True)
    return layers.lines([[panel]], "depth (0: embedding, l + 1: after layer l)", legend_above=True)


def check(config: SuperNeurons, architecture: Any) -> None:
    n, width = config.neurons, architecture.mlp_width
    refuse(2 * n > width, f"{n} neurons and as many controls do not fit a layer of {width}")


STUDY = st.Study(
    name="li/super-neurons",
    config=SuperNeurons,
    title="The {neurons} MLP neurons with the largest gate and up vectors",
    question="""Li et al. 2026: a few MLP neurons have gate and up vectors of extreme norm. Their gate vector points along the
        first token's normalised state, and their row of W_down feeds few dims, where the massive activation appears.""",
    needs=("MLP", "gated MLP", "norm", "pre-norm", "embedding without positions"),
    check=check,
    probe=lambda config: sinkjax.Probe.of("attention_received", "resid_max", "nll"),
    conditions=conditions,
    controls=(st.random_edits("li/super-neurons controls", other_neurons, budgets, values=CHOSEN),),
    measures=measures,
    values=CHOSEN,
    more=lambda config, architecture: (st.Calculation(STORE, survey, control_prompts(config)),),
    rows=rows,
    names=lambda results: {rank(place): str(neuron) for place, neuron in enumerate(found(results))},
    claims=claims,
    findings=findings,
    featured=lambda results: (st.NO_EDIT, *st.labels_of(results.conditions(), ONE, TOGETHER, PART)),
    figures=figures,
    shown=lambda config, architecture: st.Shown(
        (st.NO_EDIT, together(config.neurons), f"{together(config.neurons)}, at {PARTS[0]}")
    ),
    notes=lambda config, results: (
        f"""A neuron's size is the product of the L2 norms of its gate and up vectors, each over the median of its layer; from
        {config.extreme:g} on its norm is extreme. Cosines are with the normalised input of the MLP, gain in, means over
        {control_prompts(config)} prompts and, for others, up to 15 positions of each.""",
        "The controls lie in the same layers. An edit that must change nothing multiplies every neuron by 1.",
        f"""The paper gives no criteria. After a first look at SmolLM2 its statement on cosines was split into one on the first
        token and one on others. On a second reading a high cosine has a bound of its own, {HIGH}, beside its rank in the layer,
        and an activation that does not appear is a tenth of the unedited one instead of half.""",
    ),
)
