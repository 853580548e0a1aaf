"""background/massive: massive activations by Sun et al.'s definition, and what zeros or means in their place change (Table 3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import metrics
from sinkjax.config_files.checks import at_least, below, refuse
from sinkjax.studies.papers.background._massive import RANKS, RATIO, THRESHOLD, Levels, levels_probe, massive_layers
from sinkjax.studies.papers.background._position import record

ZERO, MEAN = "massive dims to zero", "massive dims to their mean"
LATER, MEDIAN = "massive dims to zero after that layer and all later ones", "dims of median size to zero"
TO_ZERO, TO_MEAN = BUDGETS = "zero", "their mean"  # controls of each kind set as many dims to the same sort of value
LEVELS, BY_LAYER = "levels", "by-layer"
DAMAGE, HARMLESS = 0.5, 0.05  # nats per token: what counts as damage, and what as none


@dataclass(frozen=True, kw_only=True)
class Massive(st.ControlledSinks):
    """Massive activations by Sun et al.'s rule, and the effect of setting them to zero or to their mean (Sun et al. 2024)."""

    position: int = 0
    """position whose activations are set"""
    dims: int = 2
    """how many of the largest dims are set (Sun et al.: two)"""
    layer_prompts: int = 16
    """prompts on which the activations are set after each layer in turn"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, length=8, position=0, dims=1, layer_prompts=1)
        below(self, "position", "length")


def set_dims(config: Massive, levels: Levels, to: str, dims: NDArray[np.integer], layers: Sequence[int]) -> sinkjax.Edit:
    """Dims of the position set to zero, or to their mean after the first of the layers."""
    values = levels.mean[layers[0], dims] if to == TO_MEAN else np.zeros(len(dims))
    return sinkjax.set_residual(config.position, values, dims=dims.tolist(), layers=layers)


def conditions(config: Massive, architecture: Any, levels: Levels) -> Iterator[st.Condition]:
    order, here, middle = levels.order[levels.layer], [levels.layer], (architecture.width - config.dims) // 2
    massive, median = order[: config.dims], order[middle : middle + config.dims]
    yield st.no_edit()
    for label, to, dims, layers, budget in (
        (ZERO, TO_ZERO, massive, here, TO_ZERO),
        (MEAN, TO_MEAN, massive, here, TO_MEAN),
        (LATER, TO_ZERO, massive, range(levels.layer, architecture.layers), None),
        (MEDIAN, TO_ZERO, median, here, TO_ZERO),
    ):
        yield st.Condition(set_dims(config, levels, to, dims, layers).named(label), label, budget=budget)


def by_layer(config: Massive, architecture: Any, levels: Levels) -> Iterator[st.Condition]:
    """After each layer, its own largest dims to zero or to their mean."""
    yield st.no_edit()
    for to, name, series in ((TO_ZERO, "zero", "to zero, one layer"), (TO_MEAN, "mean", "to the mean, one layer")):
        for layer, label in enumerate(after(name, architecture)):
            edit = set_dims(config, levels, to, levels.order[layer, : config.dims], [layer])
            yield st.Condition(edit.named(label), series, layer)


def after(name: str, architecture: Any) -> list[str]:
    return [f"{name} after layer {layer}" for layer in range(architecture.layers)]


def draw(rng: np.random.Generator, config: Massive, architecture: Any, to: str, levels: Levels) -> sinkjax.Edit:
    """As many random dims of the same position, none of the ten largest, after the same layer."""
    dims = rng.choice(levels.order[levels.layer, RANKS:], config.dims, replace=False)
    return set_dims(config, levels, to, dims, [levels.layer]).named(f"random dims to {to}")


def noop(config: Massive, architecture: Any, levels: Levels) -> dict[str, sinkjax.Edit]:
    dims, layers = levels.order[levels.layer, : config.dims].tolist(), range(levels.layer, architecture.layers)
    same = sinkjax.edit("resid", "scale", 1.0, queries=config.position, dims=dims, layers=layers)
    return {"the massive dims times 1 after that layer and all later ones": same}


def blank(config: Massive, architecture: Any, prompts: int) -> Levels:
    shape = (architecture.layers, architecture.width)
    return Levels(0, np.broadcast_to(np.arange(architecture.width), shape), np.zeros(shape))


VALUES = st.Values(
    blank,
    lambda config, model, batch: Levels.of(record(config, model, batch, levels_probe(config.position)), config.control_prompts),
)


def measures(config: Massive) -> tuple[st.Measure, ...]:
    return st.loss(), st.sink_rate(config.position, config.eps), st.largest_elsewhere(config.position)


def found(results: st.Results) -> SimpleNamespace:
    """The unedited model after the layer of the edits, and over all layers after which the definition holds (NaN if none)."""
    data, few = results[LEVELS].isel(edit=0), results.size("prompt", "controls")
    levels, held = Levels.of(data, few), massive_layers(data)
    top, median = data["state_largest"].values, data["state_median"].values[:, levels.layer + 1, None]
    here, peaks = top[:, levels.layer + 1], top[:, 1:, 0].mean(axis=0)[held] if held.size else np.array([np.nan])
    layers = held if held.size else peaks
    where = metrics.largest_activation(data).position[:, levels.layer + 1]
    return SimpleNamespace(
        layer=levels.layer,
        dims=levels.order[levels.layer, : results.config.dims].tolist(),
        size=here[:, 0],
        ratio=here[:, 0] / median[:, 0],
        obeying=((here > THRESHOLD) & (here > RATIO * median)).sum(axis=1),
        share=(where == results.config.position).mean(),
        held=massive_layers(data, few).size,
        first=layers[0],
        last=layers[-1],
        gaps=np.ptp(layers) + 1 - layers.size,
        most=peaks.max(),
        least=peaks.min(),
    )


def largest_control(results: st.Results) -> float:
    """The largest absolute effect of a control on the loss."""
    loss, shared = measures(results.config)[0], results.size("prompt", "controls")
    effects = results.values(loss, "controls") - results.values(loss)[0, :shared]
    return float(np.abs(effects.mean(axis=1)).max())


def claims(config: Massive, architecture: Any) -> Iterator[st.Claim]:
    zero, mean, median = (st.effect(measures(config)[0], label) for label in (ZERO, MEAN, MEDIAN))
    held = st.number(
        "the number of layers after which the definition holds in most of the first prompts", lambda results: found(results).held
    )
    said = f"the share of prompts whose largest |h| is at position {config.position}"
    share = st.number(said, lambda results: found(results).share)
    first = st.number("the first layer after which the definition holds in most prompts", lambda results: found(results).first)
    gaps = st.number("the number of layers between them after which it does not", lambda results: found(results).gaps)
    most = st.number("the largest |h| after any of these layers", lambda results: found(results).most)
    least = st.number("the smallest one", lambda results: found(results).least)
    control = st.number("the largest effect of any random control on the loss, up or down", largest_control, "nats")
    holds = st.more_than(held, 0)
    yield st.Claim(
        "Massive activations exist: |h| above 100 and 1,000 times the median of the hidden state, on the first token (Sun et al."
        " 2024, section 2).",
        st.all_of(holds, st.more_than(share, 0.5)),
        paper="Llama-2-7B: about 2,000, median about 0.2, dims 1415 and 2533",
        also=(
            st.number("layer of the edits", lambda results: found(results).layer),
            st.quantity("largest |h| after that layer", lambda results: found(results).size),
            st.quantity("its ratio to the median |h|", lambda results: found(results).ratio),
        ),
    )
    yield st.Claim(
        "They appear all at once in an early layer and stay nearly constant until the last (Sun et al. 2024, section 3).",
        st.all_of(
            st.less_than(first, architecture.layers / 4),
            st.at_most(gaps, 0),
            st.less_than(most, least.times(2, "twice the smallest one")),
        ),
        given=holds,
        paper="Llama-2-7B: from layer 2 to layer 30",
        also=(st.number("the last such layer", lambda results: found(results).last),),
    )
    yield st.Claim(
        "Setting the massive activations to zero destroys the model (Sun et al. 2024, Table 3).",
        st.all_of(st.above(zero, DAMAGE), st.above_controls(zero)),
        given=holds,
        paper="Llama-2-7B: perplexity 5.47 to infinity; 13B: 5,729",
    )
    yield st.Claim(
        "Setting them to their mean changes nothing (Sun et al. 2024, Table 3).",
        st.within(mean, -HARMLESS, HARMLESS),
        given=holds,
        paper="Llama-2-7B: perplexity 5.47 to 5.47",
    )
    yield st.Claim(
        "Zeroing as many activations of median size changes nothing (Sun et al. 2024, section 3).",
        st.all_of(st.within(median, -HARMLESS, HARMLESS), st.less_than(control, HARMLESS)),
        given=holds,
    )


def findings(config: Massive, architecture: Any) -> Iterator[st.Quantity]:
    loss, sinks, _ = measures(config)
    yield st.quantity("activations of a prompt that obey the definition there", lambda results: found(results).obeying)
    zeros = after("zero", architecture)
    costliest = st.largest_effect(loss, zeros, "the layer after which zeros cost most")
    yield st.effect(loss, costliest, "largest effect on the loss of zeros after a single layer")
    emptiest = st.largest_effect(sinks, zeros, "the layer after which zeros remove most sinks", lowest=True)
    yield st.effect(sinks, emptiest, f"lowest effect on heads that sink on key {config.position} of zeros after a single layer")


def figures(config: Massive, architecture: Any) -> Iterator[st.Figure]:
    def by_depth(results: st.Results) -> list[list[Any]]:
        data = results[LEVELS].isel(edit=0)
        ranked, median = data["state_largest"].values, data["state_median"].values
        states = {name: ranked[..., rank] for rank, name in enumerate(("largest", "second", "third"))} | {"median": median}
        own = metrics.top1_over_median(data, config.position)
        ratios = {"hidden state": ranked[..., 0] / median, f"position {config.position}": own}
        titles = {"|h| in a hidden state": states, "largest |h| / median |h|": ratios}
        return [[results.panel("", ylabel, lines, log=True)] for ylabel, lines in titles.items()]

    yield st.curves(
        "sizes-by-depth",
        "depth (0: embedding, l + 1: after layer l)",
        by_depth,
        f"""Top: the three largest and the median |h| of a prompt's hidden state, all positions together. Bottom: the largest over
        the median, of the whole hidden state and of position {config.position} alone.""",
        store=LEVELS,
    )
    labels = {"to zero": after("zero", architecture), "to their mean": after("mean", architecture)}
    yield st.lines(
        "by-edited-layer",
        st.ALONG_LAYERS,
        [
            [st.Panel(measure.name, {name: (measure, row) for name, row in labels.items()}, baseline=st.NO_EDIT)]
            for measure in measures(config)[:2]
        ],
        f"""Loss and heads that sink on position {config.position} when its {config.dims} largest dims are set to zero, or to
        their mean over prompts, after one layer. Dashed: no edit.""",
        store=BY_LAYER,
    )


STUDY = st.Study(
    name="background/massive",
    config=Massive,
    title="Massive activations at position {position}",
    question="""Sun et al. 2024: very few activations, in fixed dims and on the first token, are thousands of times larger than
        the median; setting them to zero destroys the model, setting them to their mean changes nothing.""",
    probe=lambda config: sinkjax.Probe(attention_received=True, resid_max=True, nll=True),
    conditions=conditions,
    values=VALUES,
    controls=(st.random_edits("background/massive controls", draw, lambda config, architecture: BUDGETS, values=VALUES),),
    measures=measures,
    more=lambda config, architecture: (
        st.Sweep(LEVELS, lambda config, architecture: (st.no_edit(),), probe=lambda config: levels_probe(config.position)),
        st.Sweep(BY_LAYER, by_layer, measures, values=VALUES, prompts=lambda config: min(config.layer_prompts, config.prompts)),
    ),
    claims=claims,
    findings=findings,
    featured=lambda results: (st.NO_EDIT, ZERO, MEAN, LATER, MEDIAN),
    figures=figures,
    noop=noop,
    shown=lambda config, architecture: st.Shown(
        (st.NO_EDIT, ZERO, MEAN), start=config.position + 1, prompts=config.control_prompts
    ),
    check=lambda config, architecture: refuse(
        config.dims + RANKS > architecture.width,
        f"dims {config.dims} and {RANKS} more for the controls are more than the model's {architecture.width}",
    ),
    notes=lambda config, results: (
        f"""The definition of Sun et al. 2024: |h| above {THRESHOLD:g} and above {RATIO:,.0f} times the median of all |h| of the
        prompt, all positions and dims together, as in their code. The edits follow the first layer after which it holds in most
        of the first {results.size("prompt", "controls")} prompts, or, if there is none, the one after which |h| is largest. There
        these prompts also give the {config.dims} largest dims ({", ".join(map(str, found(results).dims))}) and their means;
        where each layer is edited in turn, each has its own. Controls take none of the {RANKS} largest dims.""",
    ),
)
