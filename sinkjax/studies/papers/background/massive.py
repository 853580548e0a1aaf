"""background/massive: massive activations by Sun et al.'s definition, and what zeros or means in their place change (Table 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import activations, intervals, metrics
from sinkjax.config_files.checks import at_least, below, refuse
from sinkjax.studies.papers.background._massive import RANKS, Levels, levels_probe
from sinkjax.studies.papers.background._position import record

ZERO, MEAN = "massive dims to zero", "massive dims to their mean"
LATER, MEDIAN = "massive dims to zero after that layer and all later ones", "dims of median size to zero"
TO_ZERO, TO_MEAN = BUDGETS = "zero", "their mean"  # controls of each kind set as many dims to the same sort of value
LEVELS, BY_LAYER = "levels", "by-layer"
DAMAGE, HARMLESS = 0.5, 0.05  # nats per token: what counts as damage, and what as none
MOST = 0.5  # share of prompts


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


def random_dims(config: Massive, architecture: Any, levels: Levels) -> Iterator[st.Condition]:
    """As many random dims of the same position, none of the ten largest, after the same layer."""
    rng, smaller = intervals.generator(config.seed, "background/massive controls"), levels.order[levels.layer, RANKS:]
    for to in BUDGETS:
        drawn = st.without_replacement(config.controls, lambda: rng.choice(smaller, config.dims, replace=False), frozenset)
        for number, dims in enumerate(drawn):
            edit = set_dims(config, levels, to, dims, [levels.layer]).named(f"control {number}: random dims to {to}")
            yield st.Condition(edit, st.CONTROL, budget=to)


def noop(config: Massive, architecture: Any, levels: Levels) -> dict[str, sinkjax.Edit]:
    dims, layers = levels.order[levels.layer, : config.dims].tolist(), range(levels.layer, architecture.layers)
    same = sinkjax.edit("resid", "scale", 1.0, queries=config.position, dims=dims, layers=layers)
    return {"the massive dims times 1 after that layer and all later ones": same}


def blank(config: Massive, architecture: Any, prompts: int) -> Levels:
    shape = (architecture.layers, architecture.width)
    return Levels(0, np.broadcast_to(np.arange(architecture.width), shape), np.zeros(shape))


VALUES = st.Values(
    blank,
    lambda config, model, batch: Levels.of(
        record(config, model, batch, levels_probe(config.position)), st.control_prompts(config)
    ),
)


def measures(config: Massive) -> tuple[st.Measure, ...]:
    return st.loss(), st.sink_rate(config.position, config.eps), st.largest_elsewhere(config.position)


def unedited(results: st.Results) -> Any:
    """The unedited model."""
    return results[LEVELS].isel(edit=0)


def levels(results: st.Results) -> Levels:
    return Levels.of(unedited(results), results.size("prompt", "controls"))


def after_edited(results: st.Results) -> tuple[NDArray, NDArray]:
    """The largest |h| after the layer of the edits, and their median: float[prompt, rank], float[prompt, 1]."""
    data, depth = unedited(results), levels(results).layer + 1
    return data["state_largest"].values[:, depth], metrics.hidden_median(data)[:, depth, None]


def massive_after(results: st.Results) -> NDArray[np.bool_]:
    """Whether the position is massive after each layer: bool[prompt, layer]."""
    return metrics.massive_activations(unedited(results), results.config.position)[:, 1:] == 1


def exists(results: st.Results) -> NDArray:
    """1 or 0 for each prompt: whether the position is massive after any layer."""
    return massive_after(results).any(axis=1).astype(float)


def largest_here(results: st.Results) -> NDArray:
    """1 or 0 for each prompt: whether its largest |h| after the layer of the edits is at the position."""
    where = metrics.largest_activation(unedited(results)).position[:, levels(results).layer + 1]
    return (where == results.config.position).astype(float)


def of_massive(of: Callable[[NDArray, NDArray], float]) -> Callable[[st.Results], NDArray]:
    """Something of the layers after which the position is massive, and of its |h| there: float[prompt], NaN without any."""

    def values(results: st.Results) -> NDArray:
        sizes = unedited(results)["resid_max"].values[:, 1:, results.config.position]
        layers = map(np.flatnonzero, massive_after(results))
        return np.array([of(held, size[held]) if held.size else np.nan for held, size in zip(layers, sizes, strict=True)])

    return values


def largest_control(results: st.Results) -> NDArray:
    """The largest absolute effect of zeros in random dims on the loss of each prompt: float[prompt]."""
    loss, shared = measures(results.config)[0], results.size("prompt", "controls")
    zeros = [condition.budget == TO_ZERO for condition in results.conditions("controls")]
    effects = results.values(loss, "controls")[zeros] - results.values(loss)[0, :shared]
    return np.asarray(np.abs(effects).max(axis=0))


def claims(config: Massive, architecture: Any) -> Iterator[st.Claim]:
    zero, mean, median = (st.effect(measures(config)[0], label) for label in (ZERO, MEAN, MEDIAN))
    where = f"at position {config.position}"
    massive = st.quantity(f"the share of prompts with a massive activation {where} after any layer", exists)
    largest = st.quantity(f"the share of prompts whose largest |h| after the layer of the edits is {where}", largest_here)
    first = st.quantity("the first layer after which it is massive", of_massive(lambda held, size: held[0]))
    whole = st.quantity(
        "the share of these prompts in which no layer between the first and the last lacks it",
        of_massive(lambda held, size: float(np.ptp(held) + 1 == held.size)),
    )
    spread = st.quantity(
        "its largest |h| over its smallest after these layers", of_massive(lambda held, size: size.max() / size.min())
    )
    control = st.quantity("the largest effect of any random control on the loss of a prompt, up or down", largest_control, "nats")
    present = st.above(massive, MOST)
    yield st.Claim(
        "In most prompts the first token has a massive activation, and the largest activation of the prompt is there.",
        st.all_of(present, st.above(largest, MOST)),
        source="Sun et al. 2024, section 2",
        paper="Llama-2-7B: about 2,000, median about 0.2, dims 1415 and 2533",
        also=(
            st.number("layer of the edits", lambda results: levels(results).layer),
            st.quantity("largest |h| after that layer", lambda results: after_edited(results)[0][:, 0]),
            st.quantity(
                "its ratio to the median |h|", lambda results: (after_edited(results)[0] / after_edited(results)[1])[:, 0]
            ),
        ),
    )
    yield st.Claim(
        "The massive activation of the first token appears in the first quarter of the layers and changes less than twofold while"
        " it lasts, without a gap in most prompts.",
        st.all_of(st.below(first, architecture.layers / 4), st.above(whole, MOST), st.below(spread, 2)),
        given=present,
        source="Sun et al. 2024, section 3",
        paper="Llama-2-7B: from layer 2 to layer 30",
        also=(st.quantity("the last such layer", of_massive(lambda held, size: held[-1])),),
    )
    yield st.Claim(
        f"Setting the massive activations to zero raises the loss by more than {DAMAGE:g} nats a token.",
        st.all_of(st.above(zero, DAMAGE), st.above_controls(zero)),
        given=present,
        source="Sun et al. 2024, Table 3",
        paper="Llama-2-7B: perplexity 5.47 to infinity; 13B: 5,729",
    )
    yield st.Claim(
        f"Setting the massive activations to their mean changes the loss by less than {HARMLESS:g} nats a token.",
        st.within(mean, -HARMLESS, HARMLESS),
        given=present,
        source="Sun et al. 2024, Table 3",
        paper="Llama-2-7B: perplexity 5.47 to 5.47",
    )
    yield st.Claim(
        "Setting as many activations of median size, or of random dims, to zero changes the loss by less than"
        f" {HARMLESS:g} nats a token.",
        st.all_of(st.within(median, -HARMLESS, HARMLESS), st.below(control, HARMLESS)),
        given=present,
        source="Sun et al. 2024, section 3",
    )


def findings(config: Massive, architecture: Any) -> Iterator[st.Quantity]:
    loss, sinks, _ = measures(config)
    yield st.quantity(
        "activations of a prompt that obey the definition there",
        lambda results: metrics.is_massive(*after_edited(results)).sum(axis=1),
    )
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
    headline=lambda config, architecture: [TO_ZERO],
    controls=(st.Sweep("controls", random_dims, prompts=st.control_prompts, values=VALUES),),
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
        (st.NO_EDIT, ZERO, MEAN), start=config.position + 1, prompts=st.control_prompts(config)
    ),
    check=lambda config, architecture: refuse(
        config.dims + RANKS > architecture.width,
        f"dims {config.dims} and {RANKS} more for the controls are more than the model's {architecture.width}",
    ),
    notes=lambda config, results: (
        f"""The definition of Sun et al. 2024: |h| above {activations.THRESHOLD:g} and above {activations.RATIO:,.0f} times the
        median of all |h| of the prompt, all positions and dims together, as in their code. The edits follow the first layer after
        which it holds in most of the first {results.size("prompt", "controls")} prompts, or, if there is none, the one after
        which |h| is largest; no effect of an edit decides it. There these prompts also give the {config.dims} largest dims
        ({", ".join(map(str, levels(results).order[levels(results).layer, : config.dims]))}) and their means; where each layer is
        edited in turn, each has its own. Controls take none of the {RANKS} largest dims.""",
    ),
)
