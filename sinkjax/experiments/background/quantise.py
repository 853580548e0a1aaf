"""background/quantise: what a massive activation costs 8-bit activations, and what removing or moving it saves.

One scale for a whole tensor (a prompt, all positions and dims) is set by its largest value, so that a massive activation leaves
few of the 255 steps to all other tokens (Bondarenko et al. 2023, arXiv 2306.12929; Sun et al. 2024). The error is measured on
the residual stream and on the hidden units of the MLP as they are in the run; rounding is not fed back. The activation is removed
by dropping the position's MLP output in the layer that writes it, and doubled by masking the logits towards its key, which makes
one at the next position. Controls do the same to random other positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.checkpoints.model import Model
from sinkjax.config_files.checks import MIN_QUERIES
from sinkjax.edits.site import Site
from sinkjax.experiments import identity, measures, words
from sinkjax.experiments.background.config import Quantise
from sinkjax.experiments.base import Arm, Batch, Calculation, Claim, Drawing, Job, Section
from sinkjax.experiments.captions import origin
from sinkjax.experiments.illustrations import MAPS, TEXTS, maps, texts
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import Measure, Measured, Table, summarise
from sinkjax.model.config import Config
from sinkjax.probes.probe import Probe
from sinkjax.probes.statistics import Statistic, View
from sinkjax.report.figures import layers
from sinkjax.report.table import interval
from sinkjax.studies import folder as results

if TYPE_CHECKING:
    import xarray

STORES = ("sweep", "controls")
EXTRAS = (MAPS, TEXTS, identity.STORE)
NONE, REMOVED, MOVED, CONTROL = "no edit", "MLP dropped in the layer that writes it", "key masked in all layers", "control"
TO_DROP, TO_MASK = 1, 2  # budgets: each edit is compared with the same one at random positions
STEPS = 127  # of a signed 8-bit number, on either side of zero
TINY = 1e-6  # per cent, below which there is nothing to save
STREAM, NEURONS, ROWS = "stream_error", "neuron_error", "stream_row_error"
PER_TENSOR, PER_TOKEN = "stream, one scale a tensor (%)", "stream, one scale a token (%)"
PER_NEURONS = "MLP hidden units, one scale a tensor (%)"
CLAIM = (
    "Bondarenko et al. 2023, Sun et al. 2024: outliers on the sink's token are what makes activations hard to quantise with"
    " one scale; without them, or with a scale for each token, the other tokens keep their precision."
)


def rounding_error(axes: tuple[int, ...]) -> Callable[[jax.Array, Any], jax.Array]:
    """||round(x / s) s - x|| / ||x|| of each position, s = max |x| / 127 over `axes`: [B, T] from [B, T, D]; 0 for zeros."""

    def error(x: jax.Array, view: View) -> jax.Array:
        real = jnp.arange(x.shape[1])[None, :, None] < view.lengths[:, None, None]
        top = jnp.where(real, jnp.abs(x), 0).max(axis=axes, keepdims=True)
        scale = jnp.where(top > 0, top, 1) / STEPS
        lost = jnp.sqrt(jnp.square(jnp.round(x / scale) * scale - x).sum(axis=-1))
        size = jnp.sqrt(jnp.square(x).sum(axis=-1))
        return lost / jnp.where(size > 0, size, 1)

    return error


PROBE = Probe(
    resid_max=True,
    nll=True,
    extra=(
        Statistic(STREAM, Site.RESID, rounding_error((1, 2)), ("prompt", "depth", "position")),
        Statistic(ROWS, Site.RESID, rounding_error((2,)), ("prompt", "depth", "position")),
        Statistic(NEURONS, Site.NEURON, rounding_error((1, 2)), ("prompt", "layer", "position")),
    ),
)


def jobs(config: Quantise, architecture: Config) -> tuple[Job | Calculation, ...]:
    """The three runs, and the same edits at random positions."""
    needs("background/quantise", architecture, "MLP")
    few, shown, given = min(config.control_prompts, config.prompts), arms(config, 0), partial(prepared, config, arms)
    return (
        Job("sweep", shown, PROBE, config.prompts, prepare=given),
        Job("controls", controls(config, 0), PROBE, few, prepare=partial(prepared, config, controls)),
        maps(config, architecture, shown, prepare=given, prompts=few),
        texts(config, shown, start=config.position + 1, prepare=given, prompts=few),
        identity.job(config, PROBE, unchanged(config)),
    )


def unchanged(config: Quantise) -> dict[str, sinkjax.Edit]:
    """The identity edit of both kinds, in all layers."""
    k = config.position
    return {
        f"MLP output at position {k} times 1": sinkjax.edit(Site.MLP_OUT, "scale", 1.0, queries=k),
        f"0 added to the logits towards key {k}": sinkjax.edit(Site.LOGITS, "add", 0.0, keys=k, relation="others"),
    }


def prepared(config: Quantise, make: Callable, model: Model, batch: Batch) -> tuple[Arm, ...]:
    """The arms for the layer that writes the activation of this model, found on the prompts of the controls."""
    count = min(config.control_prompts, len(batch.lengths))
    run = partial(sinkjax.forward, probe=Probe(resid_max=True), lengths=batch.lengths[:count], logits=False)
    return make(config, emergence(run(model.params, batch.tokens[:count], model.config).record, config.position, count))


def emergence(record: Mapping[Any, Any], position: int, prompts: int) -> int:
    """The layer in which the largest |h| of the position grows most, by the mean over the first prompts."""
    return int(np.diff(np.asarray(record["resid_max"])[:prompts, :, position].mean(axis=0)).argmax())


def arms(config: Quantise, layer: int) -> tuple[Arm, ...]:
    """No edit; the activation that `layer` writes removed; the activation doubled."""
    return (
        Arm(sinkjax.compose(label=NONE), NONE),
        Arm(sinkjax.drop_mlp(config.position, layers=layer).named(REMOVED), REMOVED, budget=TO_DROP),
        Arm(sinkjax.mask_key(config.position).named(MOVED), MOVED, budget=TO_MASK),
    )


def controls(config: Quantise, layer: int) -> tuple[Arm, ...]:
    """The same edits at random other positions."""
    rng, drawn = intervals.generator(config.seed, "background/quantise controls"), []
    others = [position for position in range(config.length - MIN_QUERIES) if position != config.position]
    for draw, position in enumerate(rng.choice(others, config.controls).tolist()):
        edit = sinkjax.drop_mlp(position, layers=layer).named(f"control {draw}: MLP dropped at {position}")
        drawn.append(Arm(edit, CONTROL, budget=TO_DROP))
    for draw, position in enumerate(rng.choice(others, config.controls).tolist()):
        drawn.append(Arm(sinkjax.mask_key(position).named(f"control {draw}: key {position} masked"), CONTROL, budget=TO_MASK))
    return tuple(drawn)


def others_error(data: xarray.Dataset, statistic: str, position: int) -> NDArray:
    """Mean relative error over positions but one, in per cent: float[edit, prompt, depth or layer]."""
    return 100 * np.nanmean(np.delete(data[statistic].values, position, axis=-1), axis=-1)


def over_layers(statistic: str, name: str, position: int) -> Measure:
    """The mean over what layers write; the embedding is left out."""

    def mean(data: xarray.Dataset) -> NDArray:
        error = others_error(data, statistic, position)
        return error[..., 1 if "depth" in data[statistic].dims else 0 :].mean(axis=-1)

    return Measure(name, mean)


@dataclass(frozen=True)
class Results:
    """What words and figures are made from. measured: the names of the measures. layer: the one that writes the activation."""

    config: Quantise
    data: xarray.Dataset
    table: Table
    measured: Sequence[str]
    layer: int


def section(config: Quantise, stores: Mapping[str, xarray.Dataset]) -> Section:
    """Errors with and without the activation, and whether the papers' statements hold."""
    data, random = (stores[name].load() for name in STORES)
    position = config.position
    measured = (
        over_layers(STREAM, PER_TENSOR, position),
        over_layers(ROWS, PER_TOKEN, position),
        over_layers(NEURONS, PER_NEURONS, position),
        measures.largest_activation(position),
        measures.loss(),
    )
    layer = emergence(data.isel(edit=0), position, random.sizes["prompt"])
    table = summarise(Measured(data, arms(config, layer)), measured, config.seed, Measured(random, controls(config, layer)))
    found = Results(config, data, table, [measure.name for measure in measured], layer)
    return Section(
        experiment="background/quantise",
        title="Eight-bit activations with and without the massive activation",
        claim=CLAIM,
        findings=_findings(found),
        rows=tuple(table.values()),
        featured=(NONE, REMOVED, MOVED),
        drawings=(by_depth(found),),
        notes=_notes(found, random.sizes["prompt"]),
        provenance=results.provenance(data),
        claims=_claims(found),
    )


def _findings(found: Results) -> tuple[str, ...]:
    """What the numbers say, in sentences."""
    table, (tensor, token, neurons, activation, loss) = found.table, found.measured

    def say(measure: str) -> str:
        return (
            f"{words.value(table[NONE, measure])} without an edit, {words.value(table[REMOVED, measure])} with the"
            f" activation removed ({words.effect(table[REMOVED, measure])}), {words.value(table[MOVED, measure])} with the"
            f" key masked ({words.effect(table[MOVED, measure])})"
        )

    return (
        "Relative error of the other tokens' residual stream in 8 bits with one scale a tensor (%), mean over layers:"
        f" {say(tensor)}.",
        f"With one scale a token (%): {say(token)}.",
        f"Of the MLP's hidden units with one scale a tensor (%): {say(neurons)}.",
        f"Layer {found.layer} writes the activation; the largest |h| at position {found.config.position} is"
        f" {words.value(table[NONE, activation])} without an edit and {words.value(table[REMOVED, activation])} with the"
        f" activation removed, which changes the loss by {words.effect(table[REMOVED, loss], ' nats')}.",
    )


def _claims(found: Results) -> tuple[Claim, ...]:
    """The papers' statements, each by its rule."""
    table, (tensor, token, _, activation, _) = found.table, found.measured
    seed, position = found.config.seed, found.config.position
    plain, removed, moved = (table[arm, tensor] for arm in (NONE, REMOVED, MOVED))
    largest = found.data["resid_max"].values[0].max(axis=1)  # [prompt, position]
    massive = words.mean(intervals.interval(largest[:, position] / np.nanmedian(largest, axis=-1))) > 10
    of_token = over_layers(ROWS, token, position).of(found.data)[0]
    of_tensor = over_layers(STREAM, tensor, position).of(found.data)
    saved = intervals.interval(of_tensor[0] - of_token, seed=seed)
    gone = intervals.interval((of_tensor[0] - of_tensor[1]) / np.maximum(of_tensor[0] - of_token, TINY), seed=seed)
    return (
        Claim(
            "The massive activation is what makes one scale a tensor fail (Bondarenko et al. 2023; Sun et al. 2024).",
            words.verdict(
                words.mean(removed.value) < words.mean(plain.value) / 2 and words.mean(gone) > 0.5 and removed.percentile == 0,
                massive,
            ),
            f"Error {words.value(plain)} % of the other tokens' stream, {words.value(removed)} % with the activation"
            f" removed ({words.effect(removed)}), which is {interval(gone)} of what one scale a token saves. Rule: less than half"
            " of the error is left, more than half of what one scale a token saves is saved, and the effect is below every"
            " control.",
        ),
        Claim(
            "One scale a token saves the other tokens' precision.",
            words.verdict(words.above(saved, words.mean(plain.value) / 2), massive),
            f"Error {words.value(table[NONE, token])} % with one scale a token, {interval(saved, signed=True)} points less"
            " than with one a tensor. Rule: the interval of what is saved lies above half of the error.",
        ),
        Claim(
            "The edit that moves the sink does not help: the massive activation stays on its token, and another one gets one"
            " too.",
            words.verdict(words.above(moved.effect, -words.mean(plain.value) / 10), massive),
            f"With the key masked the error is {words.value(moved)} % ({words.effect(moved)}), and the largest |h| at position"
            f" {position} is {words.value(table[MOVED, activation])}. Rule: the error falls by less than a tenth.",
        ),
    )


def by_depth(found: Results) -> Drawing:
    """The error of the other tokens by depth and layer."""
    data, position = found.data, found.config.position
    names = ("no edit", "activation removed", "key masked")

    def lines(statistic: str) -> list[layers.Line]:
        error = others_error(data, statistic, position)
        x = list(range(error.shape[-1]))
        return [layers.Line(name, x, intervals.intervals(error[number], axis=0).tolist()) for number, name in enumerate(names)]

    grid = [
        [layers.Panel("", "error of the stream (%),\none scale a tensor", lines(STREAM))],
        [layers.Panel("", "error of the stream (%),\none scale a token", lines(ROWS))],
        [layers.Panel("", "error of MLP hidden units (%),\none scale a tensor", lines(NEURONS))],
    ]
    caption = (
        f"Relative error of 8-bit activations, mean over tokens but the one at position {position}: the stream by depth (l:"
        f" what enters layer l), the MLP's hidden units by layer. Bands: bootstrap 95 % intervals over {data.sizes['prompt']}"
        f" prompts. {origin(data)}."
    )
    return Drawing("error-by-depth", layers.lines(grid, "layer l, or depth l (0-based)", legend_above=True), caption)


def _notes(found: Results, control_prompts: int) -> tuple[str, ...]:
    """How the numbers were made."""
    config = found.config
    return (
        f"Values are means over {found.data.sizes['prompt']} prompts with bootstrap 95 % intervals over prompts (BCa, 2,000"
        " resamples); effects are mean differences from no edit, paired by prompt.",
        f"Error: norm of what rounding to {2 * STEPS + 1} even steps loses, over the norm of the token's vector, mean over"
        f" tokens but that at position {config.position}. A tensor is that of one prompt. It is measured, not fed back: the"
        " model runs in full precision.",
        f"Controls: {config.controls} draws do the same at random other positions. A percentile says how many of them have a"
        f" smaller effect on the same {control_prompts} prompts.",
        "The activation was first removed by dropping the position's MLP output in all layers. A first look at SmolLM2 showed"
        " that another token then takes it over, so that nothing is removed; since then it is dropped in the layer that writes"
        " it.",
    )
