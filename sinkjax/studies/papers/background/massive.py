"""background/massive: massive activations by Sun et al.'s definition, and what zeros or means in their place do (Table 3).

Sun et al. (COLM 2024) call an activation massive if |h| > 100 and about 1,000 times the median |h| of the hidden state, all
positions of a prompt together. The largest dims at one position are set to zero or to their mean over prompts: after the first
layer where the definition holds, after each layer in turn, and from that layer on. Controls set as many random dims there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import metrics
from sinkjax.config_files.checks import at_least, below, refuse
from sinkjax.studies.papers.background._massive import RANKS, RATIO, THRESHOLD, Levels, levels_probe, massive_layers
from sinkjax.studies.papers.background._unedited import record

ZERO, MEAN = "massive dims to zero", "massive dims to their mean"
LATER, MEDIAN = "massive dims to zero after that layer and all later ones", "dims of median size to zero"
TO_ZERO, TO_MEAN = "zero", "their mean"  # budgets: controls of each kind set as many dims to the same sort of value
SERIES = {TO_ZERO: "to zero, one layer", TO_MEAN: "to the mean, one layer"}
LEVELS, BY_LAYER = "levels", "by-layer"
DAMAGE, HARMLESS = 0.5, 0.05  # nats per token: what counts as damage, and what as none


@dataclass(frozen=True, kw_only=True)
class Massive(st.ControlledSinks):
    """Massive activations by Sun et al.'s rule, and what setting them to zero or to their mean does (Sun et al. 2024)."""

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
    """No edit; the largest dims to zero, to their mean, and to zero in all later layers too; dims of median size to zero."""
    order, here, middle = levels.order[levels.layer], [levels.layer], (architecture.width - config.dims) // 2
    massive, median = order[: config.dims], order[middle : middle + config.dims]
    yield st.no_edit()
    yield st.Condition(set_dims(config, levels, TO_ZERO, massive, here).named(ZERO), ZERO, budget=TO_ZERO)
    yield st.Condition(set_dims(config, levels, TO_MEAN, massive, here).named(MEAN), MEAN, budget=TO_MEAN)
    later = set_dims(config, levels, TO_ZERO, massive, range(levels.layer, architecture.layers))
    yield st.Condition(later.named(LATER), LATER)
    yield st.Condition(set_dims(config, levels, TO_ZERO, median, here).named(MEDIAN), MEDIAN, budget=TO_ZERO)


def by_layer(config: Massive, architecture: Any, levels: Levels) -> Iterator[st.Condition]:
    """No edit, and after each layer its own largest dims to zero or to their mean."""
    yield st.no_edit()
    for to, series in SERIES.items():
        for layer in range(architecture.layers):
            edit = set_dims(config, levels, to, levels.order[layer, : config.dims], [layer])
            yield st.Condition(edit.named(after(to, layer)), series, layer)


def after(to: str, layer: int) -> str:
    return f"{'mean' if to == TO_MEAN else 'zero'} after layer {layer}"


def random_dims(rng: np.random.Generator, config: Massive, architecture: Any, to: str, levels: Levels) -> sinkjax.Edit:
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


def unedited(results: st.Results) -> Any:
    return results[LEVELS].isel(edit=0)


def levels(results: st.Results) -> Levels:
    return Levels.of(unedited(results), results.size("prompt", "controls"))


def sizes(results: st.Results) -> tuple[NDArray, NDArray]:
    """The largest |h| and the median one after the layer of the edits: float[prompt, rank] and [prompt]."""
    data, depth = unedited(results), levels(results).layer + 1
    return data["state_largest"].values[:, depth], data["state_median"].values[:, depth]


def obeying(results: st.Results) -> NDArray:
    """How many activations of each prompt obey the definition after the layer of the edits."""
    top, median = sizes(results)
    return ((top > THRESHOLD) & (top > RATIO * median[:, None])).sum(axis=1)


def share_there(results: st.Results) -> float:
    """The share of prompts whose largest |h| after the layer of the edits is at the position."""
    where = metrics.largest_activation(unedited(results)).position[:, levels(results).layer + 1]
    return float((where == results.config.position).mean())


def massive(name: str, of: Callable[[NDArray, NDArray], float]) -> st.Quantity:
    """A number made from the layers after which the definition holds in most prompts, and the mean of the largest |h| there."""

    def number(results: st.Results) -> float:
        layers = massive_layers(data := unedited(results))
        return of(layers, data["state_largest"].values[:, 1:, 0].mean(axis=0)[layers]) if layers.size else np.nan

    return st.number(name, number)


FIRST = massive("the first layer after which the definition holds in most prompts", lambda layers, top: layers[0])
LAST = massive("the last such layer", lambda layers, top: layers[-1])
GAPS = massive("the number of layers between them after which it does not", lambda layers, top: np.ptp(layers) + 1 - layers.size)
MOST = massive("the largest |h| after any of these layers", lambda layers, top: top.max())
LEAST = massive("the smallest one", lambda layers, top: top.min())
HELD = st.number(
    "the number of layers after which the definition holds in most of the first prompts",
    lambda results: massive_layers(unedited(results), results.size("prompt", "controls")).size,
)
LAYER = st.number("layer of the edits", lambda results: levels(results).layer)
TOP = st.quantity("largest |h| after that layer", lambda results: sizes(results)[0][:, 0])
RATIO_THERE = st.quantity("its ratio to the median |h|", lambda results: sizes(results)[0][:, 0] / sizes(results)[1])


def largest_control(results: st.Results) -> float:
    loss, shared = measures(results.config)[0], results.size("prompt", "controls")
    effects = results.values(loss, "controls") - results.values(loss)[0, :shared]
    return float(np.abs(effects.mean(axis=1)).max())


def claims(config: Massive, architecture: Any) -> Iterator[st.Claim]:
    zero, mean, median = (st.effect(measures(config)[0], label) for label in (ZERO, MEAN, MEDIAN))
    holds = st.more_than(HELD, 0)
    share = st.number(f"the share of prompts whose largest |h| is at position {config.position}", share_there)
    control = st.number("the largest effect of any random control on the loss, up or down", largest_control, "nats")
    yield st.Claim(
        "Massive activations exist: |h| above 100 and 1,000 times the median of the hidden state, on the first token (Sun et al."
        " 2024, section 2).",
        st.all_of(holds, st.more_than(share, 0.5)),
        paper="Llama-2-7B: about 2,000, median about 0.2, dims 1415 and 2533",
        also=(LAYER, TOP, RATIO_THERE),
    )
    yield st.Claim(
        "They appear all at once in an early layer and stay nearly constant until the last (Sun et al. 2024, section 3).",
        st.all_of(
            st.less_than(FIRST, architecture.layers / 4),
            st.at_most(GAPS, 0),
            st.less_than(MOST, LEAST.times(2, "twice the smallest one")),
        ),
        given=holds,
        paper="Llama-2-7B: from layer 2 to layer 30",
        also=(LAST,),
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
    yield from (FIRST, LAST, LAYER, TOP, RATIO_THERE)
    yield st.quantity("median |h|", lambda results: sizes(results)[1])
    yield st.quantity("activations of a prompt that obey the definition there", obeying)
    yield from (dim(rank) for rank in range(config.dims))
    yield from (st.value(loss, st.NO_EDIT), *(st.effect(loss, label) for label in (ZERO, MEAN, MEDIAN)))
    yield from (perplexity(loss, label) for label in (st.NO_EDIT, ZERO, MEAN))
    yield from (st.value(sinks, label) for label in (st.NO_EDIT, ZERO, MEAN, LATER))
    single = [after(TO_ZERO, layer) for layer in range(architecture.layers)]
    costliest = st.largest_effect(loss, single, "the layer after which zeros cost most")
    yield st.effect(loss, costliest, "largest effect on the loss of zeros after a single layer")
    emptiest = st.largest_effect(sinks, single, "the layer after which zeros remove most sinks", lowest=True)
    yield st.effect(sinks, emptiest, f"lowest effect on heads that sink on key {config.position} of zeros after a single layer")


def dim(rank: int) -> st.Quantity:
    def of(results: st.Results) -> int:
        return levels(results).order[levels(results).layer, rank]

    return st.number(f"dim with the {('largest', 'second-largest')[rank] if rank < 2 else f'{rank + 1}th-largest'} |h| there", of)


def perplexity(loss: st.Measure, label: str) -> st.Quantity:
    of_mean = st.value(loss, label)
    return st.number(f"perplexity, exp of the mean loss ({label})", lambda results: np.exp(of_mean(results).mean))


def figures(config: Massive, architecture: Any) -> Iterator[st.Figure]:
    def by_depth(results: st.Results) -> list[list[Any]]:
        data = unedited(results)
        ranked, median = data["state_largest"].values, data["state_median"].values
        states = {name: ranked[..., rank] for rank, name in enumerate(("largest", "second", "third"))} | {"median": median}
        own = metrics.top1_over_median(data, config.position)
        ratios = {"hidden state": ranked[..., 0] / median, f"position {config.position}": own}
        titles = {"|h| in a hidden state": states, "largest |h| / median |h|": ratios}
        return [[results.panel("", ylabel, lines, log=True)] for ylabel, lines in titles.items()]

    yield st.curves(
        *("sizes-by-depth", "depth (0: embedding, l + 1: after layer l)", by_depth),
        f"""Top: the three largest and the median |h| of a prompt's hidden state, all positions together. Bottom: the largest over
        the median, of the whole hidden state and of position {config.position} alone.""",
        store=LEVELS,
    )
    loss, sinks, _ = measures(config)
    names = {"to zero": TO_ZERO, "to their mean": TO_MEAN}
    labels = {name: [after(to, layer) for layer in range(architecture.layers)] for name, to in names.items()}

    def panel(ylabel: str, measure: st.Measure) -> list[st.Panel]:
        return [st.Panel(ylabel, {name: (measure, row) for name, row in labels.items()}, baseline=st.NO_EDIT)]

    yield st.lines(
        *("by-edited-layer", st.ALONG_LAYERS),
        [panel("loss (nats per token)", loss), panel(sinks.name, sinks)],
        f"""Loss and heads that sink on position {config.position} when its {config.dims} largest dims are set to zero, or to
        their mean over prompts, after one layer. Dashed: no edit.""",
        store=BY_LAYER,
    )


def check(config: Massive, architecture: Any) -> None:
    beyond = config.dims + RANKS > architecture.width
    refuse(beyond, f"dims {config.dims} and {RANKS} more for the controls are more than the model's {architecture.width}")


STUDY = st.Study(
    name="background/massive",
    config=Massive,
    title="Massive activations at position {position}",
    question="""Sun et al. 2024: very few activations, in fixed dims and on the first token, are thousands of times larger than
        the median; setting them to zero destroys the model, setting them to their mean changes nothing.""",
    probe=lambda config: sinkjax.Probe(attention_received=True, resid_max=True, nll=True),
    conditions=conditions,
    values=VALUES,
    controls=(
        st.random_edits(
            *("background/massive controls", random_dims, lambda config, architecture: (TO_ZERO, TO_MEAN)), values=VALUES
        ),
    ),
    measures=measures,
    more=lambda config, architecture: (
        st.Sweep(LEVELS, lambda config, architecture: (st.no_edit(),), probe=lambda config: levels_probe(config.position)),
        st.Sweep(
            *(BY_LAYER, by_layer, measures),
            values=VALUES,
            prompts=lambda config: min(config.layer_prompts, config.prompts),
        ),
    ),
    claims=claims,
    findings=findings,
    featured=lambda results: (st.NO_EDIT, ZERO, MEAN, LATER, MEDIAN),
    figures=figures,
    noop=noop,
    shown=lambda config, architecture: st.Shown(
        (st.NO_EDIT, ZERO, MEAN), start=config.position + 1, prompts=config.control_prompts
    ),
    check=check,
    notes=lambda config, results: (
        f"""The definition of Sun et al. 2024: |h| above {THRESHOLD:g} and above {RATIO:,.0f} times the median of all |h| of the
        prompt, all positions and dims together, as in their code. The layer of the edits is the first one after which it holds in
        most of the first {results.size("prompt", "controls")} prompts, or, if there is none, the one after which |h| is largest.
        Its dims and their means are taken from these prompts too; where each layer is edited in turn, each has its own
        {config.dims} largest dims.""",
        f"The random dims of the controls are none of the {RANKS} largest.",
    ),
)
