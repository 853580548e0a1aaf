"""background/massive: massive activations by Sun et al.'s rule, and what setting them to zero or to their mean does (Table 3).

Sun et al. (COLM 2024) call an activation massive if |h| > 100 and about 1,000 times the median |h| of the hidden state, all
positions of a prompt together. The largest dims at one position are set to zero or to their mean over prompts: after the layer
where the rule first holds, after each layer in turn, and from that layer on. Controls set as many random dims of that position.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import sinkjax
from sinkjax.analysis import intervals, metrics
from sinkjax.errors import SinkjaxError
from sinkjax.experiments import identity, illustrations, measures, words
from sinkjax.experiments.background.config import Massive
from sinkjax.experiments.background.massive_arms import (
    LATER,
    MEAN,
    MEDIAN,
    NONE,
    RANKS,
    RATIO,
    THRESHOLD,
    ZERO,
    ZERO_AFTER,
    Levels,
    arms,
    controls,
    layer_arms,
    levels_probe,
    prepared,
    share_massive,
    unchanged,
)
from sinkjax.experiments.background.massive_figures import Results, drawings
from sinkjax.experiments.base import Arm, Calculation, Claim, Job, Section
from sinkjax.experiments.illustrations import labelled
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import Measured, summarise
from sinkjax.model.config import Config
from sinkjax.probes.probe import Probe
from sinkjax.report.table import interval, number
from sinkjax.studies import folder as results

if TYPE_CHECKING:
    import xarray

STORES = ("levels", "sweep", "by-layer", "controls")
EXTRAS = (
    illustrations.MAPS,
    illustrations.TEXTS,
    identity.STORE,
)
DAMAGE, HARMLESS = 0.5, 0.05  # nats per token: what counts as damage, and what as none
CLAIM = (
    "Sun et al. 2024: very few activations, in fixed dims and on the first token, are thousands of times larger than the"
    " median; setting them to zero destroys the model, setting them to their mean changes nothing."
)


def jobs(config: Massive, architecture: Config) -> tuple[Job | Calculation, ...]:
    """The unedited levels; the edits at one layer, after each layer in turn, and the controls."""
    needs("background/massive", architecture)
    if config.dims + RANKS > architecture.width:
        raise SinkjaxError(f"dims {config.dims} and {RANKS} more for the controls are more than the model's {architecture.width}")
    stand_in = Levels(0, False, *(np.zeros((architecture.layers, architecture.width), kind) for kind in (int, float)))
    stand_in.order[:] = np.arange(architecture.width)
    probe = Probe(attention_received=True, resid_max=True, nll=True)
    few, layer_prompts = (min(count, config.prompts) for count in (config.control_prompts, config.layer_prompts))

    shown, gives = labelled(arms(config, stand_in), NONE, ZERO, MEAN), partial(prepared, config, arms)

    def job(name: str, make: Any, prompts: int) -> Job:
        return Job(name, make(config, stand_in), probe, prompts, prepare=partial(prepared, config, make))

    return (
        Job("levels", (Arm(sinkjax.compose(label=NONE), NONE),), levels_probe(config.position), config.prompts),
        job("sweep", arms, config.prompts),
        job("by-layer", layer_arms, layer_prompts),
        job("controls", controls, few),
        illustrations.maps(config, architecture, shown, prepare=gives, prompts=few),
        illustrations.texts(config, shown, start=config.position + 1, prepare=gives, prompts=few),
        identity.job(config, probe, unchanged(config, stand_in), prepare=partial(prepared, config, unchanged)),
    )


def section(config: Massive, stores: Mapping[str, xarray.Dataset]) -> Section:
    """Sizes by depth, what the edits did, and whether Sun et al.'s statements hold."""
    unedited, data, layered, random = (stores[name].load() for name in STORES)
    levels = Levels.of(unedited.isel(edit=0), random.sizes["prompt"])
    summarised = (
        measures.loss(),
        measures.sink_rate(config.position, config.eps),
        measures.largest_elsewhere(config.position),
    )
    table = summarise(Measured(data, arms(config, levels)), summarised, config.seed, Measured(random, controls(config, levels)))
    by_layer = Measured(layered, layer_arms(config, levels))
    layer_table = summarise(by_layer, summarised, config.seed)
    found = Results(
        config, levels, unedited.isel(edit=0), data, by_layer, table, layer_table, [entry.name for entry in summarised]
    )
    return Section(
        experiment="background/massive",
        title=f"Massive activations at position {config.position}",
        claim=CLAIM,
        findings=_findings(found),
        rows=(*table.values(), *(row for (arm, _), row in layer_table.items() if arm != NONE)),
        featured=(NONE, ZERO, MEAN, LATER, MEDIAN),
        drawings=drawings(found),
        notes=_notes(found, random.sizes["prompt"]),
        provenance=results.provenance(data),
        claims=_claims(found, _largest_control(data, random)),
    )


def _largest_control(data: xarray.Dataset, random: xarray.Dataset) -> float:
    """The largest |mean effect| on the loss among the random controls that set dims to zero or to their mean."""
    shared = random.sizes["prompt"]
    baseline = metrics.mean_nll(data.isel(edit=0, prompt=slice(shared)))
    return float(np.abs((metrics.mean_nll(random) - baseline).mean(axis=1)).max())


def _sizes(found: Results) -> dict[str, Any]:
    """Facts about the unedited run, each at the depth below the layer of the edits."""
    levels, unedited = found.levels, found.unedited
    depth = levels.layer + 1
    top, middle = unedited["state_largest"].values[:, depth], unedited["state_median"].values[:, depth]
    where = metrics.largest_activation(unedited).position[:, depth]
    return {
        "depth": depth,
        "top": intervals.interval(top[:, 0]),
        "ratio": intervals.interval(top[:, 0] / middle),
        "median": intervals.interval(middle),
        "cells": intervals.interval(((top > THRESHOLD) & (top > RATIO * middle[:, None])).sum(axis=1)),
        "share": (where == found.config.position).mean(),
        "dims": levels.order[levels.layer, : found.config.dims].tolist(),
    }


def _stretches(share: np.ndarray) -> str:
    """The layers after which the rule holds in most prompts, in words."""
    inside = np.flatnonzero(share > 0.5)
    if not inside.size:
        return "after no layer"
    runs = np.split(inside, np.flatnonzero(np.diff(inside) > 1) + 1)
    return "after layers " + " and ".join(f"{run[0]} to {run[-1]}" if run.size > 1 else f"{run[0]}" for run in runs)


def _findings(found: Results) -> tuple[str, ...]:
    """What the numbers say, in sentences."""
    facts, table, (loss, sinks, _) = _sizes(found), found.table, found.measured
    perplexity = {arm: np.exp(words.mean(table[arm, loss].value)) for arm in (NONE, ZERO, MEAN)}
    return (
        f"Sun et al.'s rule holds in most prompts {_stretches(share_massive(found.unedited))}. After layer"
        f" {found.levels.layer}, {'the first of them, ' if found.levels.holds else 'where |h| is largest, '}the largest |h| is"
        f" {interval(facts['top'])}, {interval(facts['ratio'])} times the median of {interval(facts['median'])};"
        f" {interval(facts['cells'])} activations a prompt obey the rule, and the largest stands at position"
        f" {found.config.position} in {facts['share']:.0%} of prompts.",
        f"Dims {', '.join(map(str, facts['dims']))} of position {found.config.position}, set to zero after that layer, bring"
        f" the loss from {words.value(table[NONE, loss])} to {words.value(table[ZERO, loss])} nats"
        f" ({words.effect(table[ZERO, loss])}), set to their mean to {words.value(table[MEAN, loss])}"
        f" ({words.effect(table[MEAN, loss])}): perplexity (exp of the mean loss) {perplexity[NONE]:.4g},"
        f" {perplexity[ZERO]:.4g} and {perplexity[MEAN]:.4g}.",
        f"The heads that sink on position {found.config.position} go from {words.value(table[NONE, sinks])} % to"
        f" {words.value(table[ZERO, sinks])} % with zeros, {words.value(table[MEAN, sinks])} % with means, and"
        f" {words.value(table[LATER, sinks])} % with zeros after that layer and all later ones.",
        f"As many dims of median size set to zero change the loss by {words.effect(table[MEDIAN, loss], ' nats')}.",
        _by_layer(found),
    )


def _by_layer(found: Results) -> str:
    """After which single layer zeros cost most, and after which they remove most sinks."""
    loss, sinks, _ = found.measured
    arms = [arm for arm in found.by_layer.arms if arm.group == ZERO_AFTER]

    def effect_of(arm: Arm, measure: str) -> float:
        return words.mean(found.layer_table[arm.edit.label, measure].effect)

    worst, emptiest = max(arms, key=lambda arm: effect_of(arm, loss)), min(arms, key=lambda arm: effect_of(arm, sinks))
    return (
        f"Of single layers, zeros cost most after layer {worst.place}"
        f" ({words.effect(found.layer_table[worst.edit.label, loss], ' nats')}) and remove most sinks of position"
        f" {found.config.position} after layer {emptiest.place}"
        f" ({words.effect(found.layer_table[emptiest.edit.label, sinks], ' percentage points')}), on"
        f" {found.by_layer.data.sizes['prompt']} prompts."
    )


def _claims(found: Results, largest_control: float) -> tuple[Claim, ...]:
    """Sun et al.'s statements, each by its rule."""
    facts, table, loss = _sizes(found), found.table, found.measured[0]
    share, zero, mean = share_massive(found.unedited), table[ZERO, loss], table[MEAN, loss]
    holds = found.levels.holds
    top = found.unedited["state_largest"].values[:, 1:, 0].mean(axis=0)
    inside = np.flatnonzero(share > 0.5)
    steady = bool(inside.size) and inside.size == inside[-1] - inside[0] + 1 and top[inside].max() < 2 * top[inside].min()
    early = bool(inside.size) and inside[0] < len(share) / 4
    unedited = f"the rule holds in most prompts {_stretches(share)}"
    return (
        Claim(
            "Massive activations exist: |h| above 100 and 1,000 times the median of the hidden state, on the first token (Sun"
            " et al. 2024, section 2).",
            words.verdict(holds and facts["share"] > 0.5),
            f"Largest |h| {interval(facts['top'])} after layer {found.levels.layer}, {interval(facts['ratio'])} times the"
            f" median; at position {found.config.position} in {facts['share']:.0%} of prompts. Rule: it obeys the definition"
            " after some layer and stands there in most prompts.",
            "Llama-2-7B: about 2,000, median about 0.2, dims 1415 and 2533",
        ),
        Claim(
            "They appear all at once in an early layer and stay nearly constant until the last (Sun et al. 2024, section 3).",
            words.verdict(steady and early, holds),
            f"By the definition {unedited}; there the largest |h| is between {number(top[inside].min())} and"
            f" {number(top[inside].max())}. Rule: one stretch of layers that begins in the first quarter, with values within a"
            " factor of 2."
            if holds
            else f"By the definition {unedited}.",
            "Llama-2-7B: from layer 2 to layer 30",
        ),
        Claim(
            "Setting the massive activations to zero destroys the model (Sun et al. 2024, Table 3).",
            words.verdict(words.above(zero.effect, DAMAGE) and zero.percentile == 100, holds),
            f"Loss {words.effect(zero, ' nats')}. Rule: the interval lies above {DAMAGE} nats, and the effect above every"
            " control.",
            "Llama-2-7B: perplexity 5.47 to infinity; 13B: 5,729",
        ),
        Claim(
            "Setting them to their mean changes nothing (Sun et al. 2024, Table 3).",
            words.verdict(_within(mean.effect, HARMLESS), holds),
            f"Loss {words.effect(mean, ' nats')}. Rule: the interval lies within {HARMLESS} nats of zero.",
            "Llama-2-7B: perplexity 5.47 to 5.47",
        ),
        Claim(
            "Zeroing as many activations of median size changes nothing (Sun et al. 2024, section 3).",
            words.verdict(_within(table[MEDIAN, loss].effect, HARMLESS) and largest_control < HARMLESS, holds),
            f"Loss {words.effect(table[MEDIAN, loss], ' nats')} with dims of median size, and at most {number(largest_control)}"
            f" nats in any of the random controls. Rule: both within {HARMLESS} nats of zero.",
        ),
    )


def _within(effect: intervals.Interval, bound: float) -> bool:
    return words.above(effect, -bound) and words.below(effect, bound)


def _notes(found: Results, control_prompts: int) -> tuple[str, ...]:
    """How the numbers were made."""
    config = found.config
    return (
        "Values are means over prompts with bootstrap 95 % intervals over prompts (BCa, 2,000 resamples):"
        f" {found.data.sizes['prompt']} prompts, {found.by_layer.data.sizes['prompt']} where each layer is edited in turn."
        " Effects are mean differences from no edit, paired by prompt.",
        "The median is that of all |h| of a prompt, all positions and dims together, as in Sun et al.'s code. Layer, dims and"
        f" means are taken from the first {control_prompts} prompts; where each layer is edited in turn, each has its own"
        f" {config.dims} largest dims.",
        f"Controls: {config.controls} random draws of {config.dims} dims of position {config.position}, beyond the {RANKS}"
        " largest, set to zero or to their mean after the same layer. A percentile says how many of them have a smaller effect"
        f" on the same {control_prompts} prompts.",
    )
