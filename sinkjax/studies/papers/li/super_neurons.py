"""li/super-neurons: a few MLP neurons with large vectors make the massive activation (Li et al. 2026, super neurons).

The largest neurons are described from the weights and a few prompts, then set to 0, one by one and together. The controls set as
many other neurons of the same layers to 0.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import sinkjax
import sinkjax.studies as st
from sinkjax.config_files.checks import at_least, refuse
from sinkjax.report.figures import scatter
from sinkjax.studies.papers.li._super_neurons import (
    STORE,
    Neuron,
    ablate,
    ends,
    extremes,
    found,
    in_prompts,
    in_weights,
    largest,
    share_of,
    sizes,
)

if TYPE_CHECKING:
    import xarray

SAME = "identity (every neuron times 1)"
ONE, TOGETHER, PART = "one neuron", "the largest together", "part of the positions"
ABOUT_0, HIGH, RANK = 0.1, 0.3, 0.99  # cosines, and the share of a layer's neurons with smaller ones; bounds of the verdicts
LEFT = 0.1  # of the massive activation
MASSIVE = 10.0  # times the |h| of a typical position: below this there is no massive activation, as in kiya/baseline
PARTS = ("position 0 only", "all other positions")
SHOWN = 4  # neurons whose ablation has a curve of its own
FEWEST = 8  # neurons: of fewer, "most" says nothing
SOURCE = "Li et al. 2026, super neurons"


@dataclass(frozen=True, kw_only=True)
class SuperNeurons(st.ControlledSinks):
    """Describe and ablate the MLP neurons with the largest gate and up vectors."""

    neurons: int = 8
    """how many of the largest are studied and ablated, one by one and together"""
    extreme: float = 5.0
    """size from which a neuron counts as one of extreme norm"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, neurons=2)


def blank(config: SuperNeurons, architecture: Any, prompts: int) -> tuple[Neuron, ...]:
    return tuple(Neuron(0, place) for place in range(config.neurons))


def super_neurons(config: SuperNeurons, model: Any, batch: st.Batch) -> tuple[Neuron, ...]:
    from sinkjax.studies.papers.li._neurons import sizes

    gate, up = sizes(model)
    return largest(gate * up, config.neurons)


def survey(config: SuperNeurons, model: Any, batch: st.Batch) -> xarray.Dataset:
    from sinkjax.studies.papers.li import _neurons

    return _neurons.survey(model, batch.tokens, batch.lengths, super_neurons(config, model, batch))


def budgets(config: SuperNeurons, architecture: Any = None) -> list[int]:
    """How many neurons are ablated together: powers of two, and all."""
    return sorted({*(2**power for power in range(config.neurons.bit_length())), config.neurons})


def conditions(config: SuperNeurons, architecture: Any, chosen: Sequence[Neuron]) -> Iterator[st.Condition]:
    """No edit, each neuron alone, the n largest together, and all of them at part of the positions; a budget is a count."""
    yield st.no_edit()
    yield st.Condition(ablate([], architecture, SAME), SAME)
    for place, neuron in enumerate(chosen):
        yield st.Condition(ablate([neuron], architecture, rank(place)), ONE, place, budget=1)
    for many in budgets(config)[1:]:
        yield st.Condition(ablate(chosen[:many], architecture, together(many)), TOGETHER, many, budget=many)
    for where, positions in zip(PARTS, (0, slice(1, config.length)), strict=True):
        yield st.Condition(ablate(chosen, architecture, f"{together(config.neurons)}, at {where}", positions), PART)


def rank(place: int) -> str:
    """The label of the ablation of one neuron; its name is known once the model is."""
    return f"neuron of rank {place + 1}"


def together(many: int) -> str:
    return f"the {many} largest"


def other_neurons(
    rng: np.random.Generator, config: SuperNeurons, architecture: Any, many: int, chosen: Sequence[Neuron]
) -> sinkjax.Edit:
    """As many other neurons of the same layers; for a single one, the layer of a random one of the chosen neurons."""
    others: list[Neuron] = []
    for place in [int(rng.integers(len(chosen)))] if many == 1 else range(many):
        layer = chosen[place].layer
        taken = {neuron.number for neuron in (*chosen, *others) if neuron.layer == layer}
        free = [number for number in range(architecture.mlp_width) if number not in taken]
        others.append(Neuron(layer, int(rng.choice(free))))
    return ablate(others, architecture, f"{many} other neurons")


def measures(config: SuperNeurons) -> tuple[st.Measure, ...]:
    return st.sink_rate(0, config.eps), st.largest_activation(0), st.loss()


def rows(results: st.Results) -> Iterator[st.Row]:
    """One row for each of the largest neurons and each number."""
    looked = results[STORE]
    columns = {
        "size (medians of its layer)": sizes(results),
        "cosine of gate vector, position 0": looked["cosine_first"].values,
        "cosine of gate vector, other positions": looked["cosine_others"].values,
        "squared norm of W_down row in one dim (%)": 100 * looked["concentration"].values,
        "the dim that it feeds most": looked["fed"].values,
    }
    for neuron in found(results):
        yield from (st.Row(str(neuron), ONE, name, st.constant(float(values[neuron]))) for name, values in columns.items())


def claims(config: SuperNeurons, architecture: Any) -> Iterator[st.Claim]:
    size, whole, of_extreme = measures(config)[1], together(config.neurons), "Most MLP neurons of extreme norm"
    extreme = st.at_least(
        st.Quantity("size of the largest neuron, in medians of its layer", largest_one, exact=True), config.extreme
    )

    before, massive = st.value(size, st.NO_EDIT), st.massive_on_first(MASSIVE)
    many = st.number(f"neurons of size {config.extreme:g} or more", lambda results: (sizes(results) >= config.extreme).sum())
    several = st.at_least(
        st.number(f"the number of these among the {config.neurons} largest neurons", lambda results: len(extremes(results))),
        FEWEST,
    )

    def of_most(statement: str, quantity: st.Quantity, *also: st.Quantity, given: st.Rule = several, paper: str = "") -> st.Claim:
        return st.Claim(statement, st.above(quantity, 50), given=given, source=SOURCE, also=also, paper=paper)

    yield st.Claim(
        f"For one or more MLP neurons, the norms of gate and up vectors, each over its layer's median, have a product of"
        f" {config.extreme:g} or more (extreme norm).",
        extreme,
        source=SOURCE,
        also=(many,),
        paper="neuron 7890 of layer 0 in Llama-2-7B",
    )
    yield of_most(
        f"{of_extreme} have a gate vector with a high cosine ({HIGH} or more) with the first token's normalised state.",
        share_of(
            f"with a cosine of at least {HIGH} that is above that of {100 * RANK:g} % of the neurons of their layer",
            lambda results: (in_prompts(results, "own_first") >= HIGH) & (in_prompts(results, "smaller") >= RANK),
        ),
        *ends("cosine_first", "cosine with the first token's state"),
        share_of(
            f"with a cosine, however small, above that of {100 * RANK:g} % of the neurons of their layer",
            lambda results: in_prompts(results, "smaller") >= RANK,
        ),
    )
    yield of_most(
        f"{of_extreme} have a gate vector with a cosine of at most {ABOUT_0} either way with other tokens' normalised states.",
        share_of(
            f"with a cosine of at most {ABOUT_0} either way", lambda results: abs(in_prompts(results, "own_others")) <= ABOUT_0
        ),
        *ends("cosine_others", "mean cosine with the states of other tokens"),
    )
    yield of_most(
        f"{of_extreme} have a row of W_down with more than half of its squared norm in one dim.",
        share_of(
            "with more than half of the row's squared norm in one dim",
            lambda results: in_weights(results, "concentration") > 0.5,
            exact=True,
        ),
        *ends("concentration", "share of the row's squared norm in one dim"),
    )
    yield of_most(
        f"{of_extreme} feed the dim of the first token's massive activation more than any other.",
        share_of(
            "whose row of W_down feeds that dim most",
            lambda results: in_weights(results, "fed") == results[STORE]["own_massive_dim"].values[:, None],
        ),
        st.number("dim of the largest |h| at position 0, in most prompts", lambda results: results[STORE]["massive_dim"]),
        given=st.all_of(several, massive),
        paper="dim 2533 in Llama-2-7B",
    )
    yield st.Claim(
        f"Without the {config.neurons} MLP neurons of largest norm, the first token's massive activation is less than a"
        " tenth as large.",
        st.all_of(
            st.below(st.value(size, whole), before.times(LEFT, "a tenth of that without an edit")),
            st.below_controls(st.effect(size, whole)),
        ),
        given=massive,
        source=SOURCE,
        also=(before,),
    )


def largest_one(results: st.Results) -> st.Estimate:
    neuron = found(results)[0]
    value = st.constant(float(sizes(results)[neuron]))
    return st.Estimate(f"size of the largest neuron ({neuron})", value, "medians of its layer")


def findings(config: SuperNeurons, architecture: Any) -> Iterator[st.Quantity]:
    yield from map(writer, range(4))
    yield st.Quantity("largest |h| at position 0 without the single neuron that lowers it most", without_one)
    yield st.noop_change(SAME)


def writer(place: int) -> st.Quantity:
    """One of the neurons that contribute most to the massive dim at the first token."""

    def of(results: st.Results) -> st.Estimate:
        data, size = results[STORE], sizes(results)
        neuron = largest(np.abs(data["writes"].values), place + 1)[place]
        name = f"contribution of {neuron} (no. {(size > size[neuron]).sum() + 1} by size) to dim {int(data['massive_dim'])}"
        return st.Estimate(name, st.constant(float(data["writes"].values[neuron])), signed=True)

    return st.Quantity(f"contribution no. {place + 1} to the dim of the massive activation", of)


def without_one(results: st.Results) -> st.Estimate:
    size, names = measures(results.config)[1], results.study.names(results)
    label = st.largest_effect(size, list(names), "", lowest=True)(results)
    name = f"{size.name} without {names[label]}, the single neuron whose ablation lowers it most"
    return st.Estimate(name, results.row(size, label).value)


def figures(config: SuperNeurons, architecture: Any) -> Iterator[st.Figure]:
    yield st.drawn(
        "neuron-norms",
        norms,
        f"""L2 norms of the gate and up vectors of all MLP neurons, each over the median of its layer, both axes logarithmic; the
        {config.neurons} with the largest product are named by layer and number.""",
        STORE,
        bands=False,
    )
    yield st.curves(
        "massive-activation-without-neurons",
        "depth (0: embedding, l + 1: after layer l)",
        ablations,
        f"""Largest |h| at the first token by depth, with no edit, without each of the {SHOWN} largest neurons, and without all
        {config.neurons}.""",
        legend_above=True,
    )


def norms(results: st.Results) -> Any:
    gate, up = results[STORE]["gate_norm"].values, results[STORE]["up_norm"].values
    chosen = found(results)
    places = tuple(np.array(chosen).T)
    named = [f"{neuron.layer}: {neuron.number}" for neuron in chosen]
    clouds = [
        scatter.Cloud("all neurons", gate.ravel(), up.ravel(), faint=True),
        scatter.Cloud("the largest (layer: neuron)", gate[places], up[places], named),
    ]
    return scatter.scatter({"": clouds}, "norm of gate vector (medians)", "norm of up vector (medians)", log=True)


def ablations(results: st.Results) -> Any:
    whole = together(results.config.neurons)
    shown = [*list(results.study.names(results).items())[:SHOWN], (whole, whole)]
    values = results.data["resid_max"].isel(position=0).transpose("edit", "prompt", "depth")
    curves = {st.NO_EDIT: values.sel(edit=st.NO_EDIT).values}
    curves |= {f"without {name}": values.sel(edit=label).values for label, name in shown}
    return [[results.panel("", "largest |h| at position 0", curves, log=True)]]


CHOSEN = st.Values(blank, super_neurons)
VARIABLES = (
    "activation_first", "activation_others", "concentration", "cosine_first", "cosine_others", "fed", "gate_norm",
    "massive_dim", "own_first", "own_massive_dim", "own_others", "smaller", "up_norm", "writes",
)  # fmt: skip
STUDY = st.Study(
    name="li/super-neurons",
    config=SuperNeurons,
    title="The {neurons} MLP neurons with the largest gate and up vectors",
    question="""Li et al. 2026: a few MLP neurons have gate and up vectors of extreme norm. Their gate vector points along the
        first token's normalised state, and their row of W_down feeds few dims, where the massive activation appears.""",
    needs=("MLP", "gated MLP", "norm", "RMSNorm", "pre-norm", "embedding without positions"),
    check=lambda config, architecture: refuse(
        2 * config.neurons > architecture.mlp_width,
        f"{config.neurons} neurons and as many controls do not fit a layer of {architecture.mlp_width}",
    ),
    probe=lambda config: sinkjax.Probe.of("attention_received", "resid_max", "nll"),
    conditions=conditions,
    headline=lambda config, architecture: [config.neurons],
    controls=(st.random_edits("li/super-neurons controls", other_neurons, budgets, values=CHOSEN),),
    measures=measures,
    values=CHOSEN,
    more=lambda config, architecture: (st.Calculation(STORE, functools.partial(survey, config), VARIABLES, config.prompts),),
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
        {config.extreme:g} on its norm is extreme. Cosines are with the normalised input of the MLP, gain included, means over
        all prompts and, for others, up to 15 positions of each. Neurons are not samples: a claim about those of extreme norm is
        judged by their share in each prompt, or is a fact about the weights.""",
        "The controls lie in the same layers. An edit that must change nothing multiplies every neuron by 1.",
        f"""The paper gives no criteria. After a first look at SmolLM2 its claim about cosines was split into one on the first
        token and one on others. On a second reading a high cosine got a bound of its own, {HIGH}, beside its rank in the layer,
        and an activation counts as absent below a tenth of the unedited one instead of half. After a review of the rules, and
        before new numbers, the claims about the massive activation became not applicable where the largest |h| at position 0 is
        not {MASSIVE:g} times that at a typical (the median) other position. After another review on 2026-11-22, with results
        known, claims about most neurons of extreme norm became not applicable to fewer than {FEWEST} of them.""",
    ),
)
