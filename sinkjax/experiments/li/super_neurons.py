"""li/super-neurons: a few MLP neurons with large vectors make the massive activation (Li et al. 2026, super neurons).

Neurons are ranked by the norms of their gate and up vectors over the whole model. What drives the largest and what they write is
calculated from the weights and a few prompts; then they are set to 0, one by one and together, against as many other neurons.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.errors import SinkjaxError
from sinkjax.experiments import identity, illustrations, measures
from sinkjax.experiments.base import Arm, Batch, Calculation, Claim, Job, Section
from sinkjax.experiments.illustrations import labelled
from sinkjax.experiments.li import neurons
from sinkjax.experiments.li.config import SuperNeurons
from sinkjax.experiments.li.neurons import Neuron
from sinkjax.experiments.li.super_neurons_figures import Results, drawings
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import Measured, Row, Table, summarise
from sinkjax.experiments.words import effect, value, verdict
from sinkjax.probes.probe import Probe
from sinkjax.report.table import number
from sinkjax.studies import folder as results

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model
    from sinkjax.model.config import Config

STORES = ("neurons", "sweep", "controls")
EXTRAS = (
    illustrations.MAPS,
    illustrations.TEXTS,
)
NONE, IDENTITY = "no edit", "identity (every neuron times 1)"
ONE, TOGETHER, PART, CONTROL = "one neuron", "the largest together", "part of the positions", "control"
ABOUT_0, HIGH = 0.1, 0.3  # cosines, stated with the verdicts
LEFT = 0.1  # of the massive activation, stated with the verdict
CLAIM = (
    "Li et al. 2026: a few MLP neurons have gate and up vectors of extreme norm. Their gate vector points along the first token's"
    " normalised state, and their row of W_down feeds few dims, where the massive activation appears."
)


def jobs(config: SuperNeurons, architecture: Config) -> tuple[Job | Calculation, ...]:
    """What neurons are and do, their ablation on all prompts, and that of random others on some. Errors: too few neurons."""
    needs("li/super-neurons", architecture, "MLP", "gated MLP", "norm", "pre-norm", "embedding without positions")
    layers, width, few = architecture.layers, architecture.neurons, min(config.control_prompts, config.prompts)
    if 2 * config.neurons > width:
        raise SinkjaxError(f"{config.neurons} neurons and as many controls do not fit a layer of {width}")
    anywhere = tuple(Neuron(0, place) for place in range(config.neurons))
    probe = Probe.of("attention_received", "resid_max", "nll")

    def chosen(model: Model) -> tuple[Neuron, ...]:
        gate, up = neurons.sizes(model)
        return neurons.largest(gate * up, config.neurons)

    def prepare(model: Model, batch: Batch) -> tuple[Arm, ...]:
        return arms(config, chosen(model), _shape(model))

    def prepare_controls(model: Model, batch: Batch) -> tuple[Arm, ...]:
        return controls(config, chosen(model), _shape(model))

    shape = (layers, width)
    shown = labelled(arms(config, anywhere, shape), NONE, together(config.neurons), first_only(config.neurons))
    return (
        Calculation("neurons", neurons.of_batch, few),
        Job("sweep", arms(config, anywhere, shape), probe, config.prompts, prepare=prepare),
        Job("controls", controls(config, anywhere, shape), probe, few, prepare=prepare_controls),
        illustrations.maps(config, architecture, shown, prepare=prepare),
        illustrations.texts(config, shown, prepare=prepare),
    )


def _shape(model: Model) -> tuple[int, int]:
    return model.config.layers, model.config.neurons


def budgets(count: int) -> list[int]:
    """How many neurons are ablated together: powers of two, and all."""
    return sorted({2**power for power in range(count.bit_length()) if 2**power <= count} | {count})


def arms(config: SuperNeurons, chosen: Sequence[Neuron], shape: tuple[int, int]) -> tuple[Arm, ...]:
    """No edit, the identity, each neuron alone, the n largest together, and all of them at part of the positions."""
    count = len(chosen)
    single = [Arm(ablate([neuron], shape, rank(place)), ONE, place, budget=1) for place, neuron in enumerate(chosen)]
    first = [
        Arm(ablate(chosen[:many], shape, together(many)), TOGETHER, many, budget=many) for many in budgets(count) if many > 1
    ]
    later = slice(1, config.length)
    part = [
        Arm(ablate(chosen, shape, first_only(count), 0), PART),
        Arm(ablate(chosen, shape, f"{together(count)}, at all other positions", later), PART),
    ]
    return (Arm(sinkjax.compose(label=NONE), NONE), Arm(ablate([], shape, IDENTITY), IDENTITY), *single, *first, *part)


def rank(place: int) -> str:
    """The label of the ablation of one neuron."""
    return f"neuron of rank {place + 1}"


def together(many: int) -> str:
    """The label of the ablation of the largest."""
    return f"the {many} largest"


def first_only(many: int) -> str:
    """The label of the ablation of the largest at the first token."""
    return f"{together(many)}, at position 0 only"


def controls(config: SuperNeurons, chosen: Sequence[Neuron], shape: tuple[int, int]) -> tuple[Arm, ...]:
    """As many other neurons of the same layers, for each budget; the layer of a single one is drawn too."""
    rng = intervals.generator(config.seed, "li/super-neurons controls")
    drawn = []
    for many in budgets(len(chosen)):
        for draw in range(config.controls):
            places = [int(rng.integers(len(chosen)))] if many == 1 else range(many)
            others: list[Neuron] = []
            for place in places:
                layer = chosen[place].layer
                taken = {neuron.number for neuron in (*chosen, *others) if neuron.layer == layer}
                free = [number for number in range(shape[1]) if number not in taken]
                others.append(Neuron(layer, int(rng.choice(free))))
            drawn.append(Arm(ablate(others, shape, f"control {draw}: {many} other neurons"), CONTROL, budget=many))
    return tuple(drawn)


def ablate(chosen: Sequence[Neuron], shape: tuple[int, int], label: str, positions: Any = None) -> sinkjax.Edit:
    """Neurons set to 0, as one term whatever their layers: the outputs of these layers times 0 and 1. No neuron: all times 1."""
    factors = np.ones((shape[0], 1, shape[1]), np.float32)
    for neuron in chosen:
        factors[neuron.layer, 0, neuron.number] = 0
    layers = sorted({neuron.layer for neuron in chosen}) or None
    return sinkjax.edit("neuron", "scale", factors, layers=layers, queries=positions, label=label)


def section(config: SuperNeurons, stores: Mapping[str, xarray.Dataset]) -> Section:
    """The summary over prompts, the figures, and what they say in words."""
    looked, data, random = (stores[name].load() for name in STORES)
    size = (looked["gate_norm"] * looked["up_norm"]).values
    chosen, shape = neurons.largest(size, config.neurons), size.shape
    summarised = (measures.sink_rate(0, config.eps), measures.largest_activation(0), measures.loss())
    swept = Measured(data, arms(config, chosen, shape))
    table = summarise(swept, summarised, config.seed, Measured(random, controls(config, chosen, shape)))
    names = {rank(place): str(neuron) for place, neuron in enumerate(chosen)}
    described = _describe(looked, chosen)
    rows = [dataclasses.replace(row, arm=names.get(row.arm, row.arm)) for row in table.values()] + described
    whole = together(config.neurons)
    return Section(
        experiment="li/super-neurons",
        title=f"The {config.neurons} MLP neurons with the largest gate and up vectors",
        claim=CLAIM,
        findings=(*_findings(config, looked, chosen, table), identity.finding(data, [IDENTITY])),
        rows=tuple(rows),
        featured=(NONE, *names.values(), *(arm.edit.label for arm in swept.arms if arm.group in (TOGETHER, PART))),
        drawings=drawings(Results(config, looked, data, chosen, names | {NONE: NONE, whole: whole})),
        notes=_notes(config, data.sizes["prompt"], random.sizes["prompt"]),
        provenance=results.provenance(data),
        claims=_claims(config, looked, chosen, table),
    )


def _describe(looked: xarray.Dataset, chosen: Sequence[Neuron]) -> list[Row]:
    """What the largest neurons are: one row for each and each number, which have no interval."""
    columns = {
        "size (medians of its layer)": (looked["gate_norm"] * looked["up_norm"]).values,
        "cosine of gate vector, position 0": looked["cosine_first"].values,
        "cosine of gate vector, other positions": looked["cosine_others"].values,
        "squared norm of W_down row in one dim (%)": 100 * looked["concentration"].values,
        "the dim that it feeds most": looked["fed"].values.astype(float),
    }
    return [
        Row(str(neuron), ONE, name, Interval(float(values[neuron]), None, None, 1, 0, 0.95, "none"))
        for neuron in chosen
        for name, values in columns.items()
    ]


def _extreme(config: SuperNeurons, looked: xarray.Dataset, chosen: Sequence[Neuron]) -> list[Neuron]:
    """Those of the largest neurons that are of extreme norm."""
    size = (looked["gate_norm"] * looked["up_norm"]).values
    return [neuron for neuron in chosen if size[neuron] >= config.extreme]


def _claims(config: SuperNeurons, looked: xarray.Dataset, chosen: Sequence[Neuron], table: Table) -> tuple[Claim, ...]:
    size, massive = (looked["gate_norm"] * looked["up_norm"]).values, int(looked["massive_dim"])
    extreme, whole = _extreme(config, looked, chosen), together(config.neurons)
    activation = table[whole, measures.largest_activation(0).name]
    none = table[NONE, activation.measure].value.mean or 0

    def of_extreme(statement: str, test: Any, words: str, rule: str, paper: str = "") -> Claim:
        if not extreme:
            return Claim(statement, "not applicable", f"No neuron has a size of {config.extreme:g} or more.", paper)
        held = [neuron for neuron in extreme if test(neuron)]
        evidence = f"{len(held)} of {len(extreme)} neurons: {'; '.join(map(str, held)) or 'none'}. {words} Rule: {rule}."
        return Claim(statement, verdict(2 * len(held) > len(extreme)), evidence, paper)

    return (
        Claim(
            "A few MLP neurons have gate and up vectors of extreme norm.",
            verdict(bool(extreme)),
            f"The largest is {chosen[0]}, with {number(size[chosen[0]])} times the medians of its layer;"
            f" {(size >= config.extreme).sum()} of {size.size:,} neurons have {config.extreme:g} or more. Rule: at least"
            " one has.",
            "neuron 7890 of layer 0 in Llama-2-7B",
        ),
        of_extreme(
            "Their gate vector has a high cosine with the first token's normalised state.",
            lambda neuron: looked["cosine_first"].values[neuron] >= HIGH and _aligned(looked, neuron),
            f"Cosines: {_listed(looked, extreme, 'cosine_first')}; {sum(_aligned(looked, neuron) for neuron in extreme)} are"
            " above that of 99 % of the neurons of their layer.",
            f"for most of these neurons, it is at least {HIGH} and above that of 99 % of the neurons of the layer",
        ),
        of_extreme(
            "It has a cosine of about 0 with that of other tokens.",
            lambda neuron: abs(looked["cosine_others"].values[neuron]) <= ABOUT_0,
            f"Cosines, means over positions: {_listed(looked, extreme, 'cosine_others')}.",
            f"for most of these neurons, at most {ABOUT_0} either way; below 0, a gate is closed for other tokens",
        ),
        of_extreme(
            "Their row of W_down is concentrated on few dims.",
            lambda neuron: looked["concentration"].values[neuron] > 0.5,
            f"Share of its squared norm in one dim: {_listed(looked, extreme, 'concentration')}.",
            "for most of these neurons, more than half of it",
        ),
        of_extreme(
            "They feed the dim of the massive activation.",
            lambda neuron: looked["fed"].values[neuron] == massive,
            f"The largest |h| at position 0 is in dim {massive}.",
            "most of these neurons feed it most",
            "dim 2533 in Llama-2-7B",
        ),
        Claim(
            "They make the massive activation: without them it does not appear.",
            verdict(activation.percentile == 0 and (activation.value.high or np.inf) < LEFT * none),
            f"Largest |h| at position 0 with {whole} set to 0: {value(activation)} instead of {number(none)}; effect"
            f" {effect(activation)}. Rule: below a tenth, and a larger fall than with every control.",
        ),
    )


def _aligned(looked: xarray.Dataset, neuron: Neuron) -> bool:
    cosines = looked["cosine_first"].values[neuron.layer]
    return bool((cosines < cosines[neuron.number]).mean() >= 0.99)


def _listed(looked: xarray.Dataset, chosen: Sequence[Neuron], name: str) -> str:
    """Numbers of neurons in words."""
    return ", ".join(f"{number(float(looked[name].values[neuron]))} ({neuron})" for neuron in chosen)


def _findings(config: SuperNeurons, looked: xarray.Dataset, chosen: Sequence[Neuron], table: Table) -> tuple[str, ...]:
    sinks, activation, loss = (
        measure.name for measure in (measures.sink_rate(0, config.eps), measures.largest_activation(0), measures.loss())
    )
    size, massive, whole = (looked["gate_norm"] * looked["up_norm"]).values, int(looked["massive_dim"]), together(config.neurons)
    writes = looked["writes"].values
    ranked = {neuron: int((size > size[neuron]).sum()) + 1 for neuron in neurons.largest(np.abs(writes), 4)}
    writers = ", ".join(f"{neuron} ({number(writes[neuron])}, rank {place} by size)" for neuron, place in ranked.items())
    strongest = min(range(len(chosen)), key=lambda place: table[rank(place), activation].effect.mean or 0)
    alone = table[rank(strongest), activation]
    return (
        "The largest neurons by the norms of their gate and up vectors are "
        + ", ".join(f"{neuron} ({number(size[neuron])} times the medians of its layer)" for neuron in chosen[:4])
        + ".",
        f"The largest |h| at position 0 is in dim {massive}. What writes most to it there: {writers}.",
        f"Setting {whole} to 0 takes the largest |h| at position 0 from {value(table[NONE, activation])} to"
        f" {value(table[whole, activation])} ({effect(table[whole, activation])}), and the heads that sink on key 0 from"
        f" {value(table[NONE, sinks])} % to {value(table[whole, sinks])} %"
        f" ({effect(table[whole, sinks], ' percentage points')}).",
        f"Of single neurons, {chosen[strongest]} matters most for it: {value(alone)} without it.",
        f"The loss is {value(table[whole, loss])} nats without {whole}, instead of {value(table[NONE, loss])}"
        f" ({effect(table[whole, loss])}); ablated at position 0 only, {value(table[first_only(config.neurons), loss])}, and"
        f" at all other positions, {value(table[f'{whole}, at all other positions', loss])}.",
    )


def _notes(config: SuperNeurons, N: int, few: int) -> tuple[str, ...]:
    return (
        f"Ablations: means over {N} prompts with bootstrap 95 % intervals over prompts (BCa, 2,000 resamples); effects are mean"
        " differences from no edit, paired by prompt.",
        f"Controls: {config.controls} draws of as many other neurons of the same layers, on {few} prompts. A percentile says how"
        " many of them have a smaller effect on the same prompts. The identity multiplies every neuron by 1.",
        "A neuron's size is the product of the L2 norms of its gate and up vectors, each over the median of its layer. Cosines"
        f" are with the normalised input of the MLP, gain in, means over {few} prompts and, for others, up to"
        f" {neurons.PLACES - 1} positions of each.",
        "The paper gives no criteria. After a first look at SmolLM2 its statement on cosines was split into one on the first"
        f" token and one on others. On a second reading a high cosine has a bound of its own, {HIGH}, beside its rank in the"
        " layer, and an activation that does not appear is a tenth of the unedited one instead of half.",
    )
