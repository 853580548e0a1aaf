"""li/amplify: a token's head outputs pushed away from their mean make it a sink, scaled ones do not (Li et al. 2026, 2 and 3).

o becomes mu + s (o - mu) in all heads of one layer, with mu over the head's dims or over the positions up to the token; the
paper's control is s o. A further control adds a change of the same size, head by head, in a random direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.config_files.checks import layers_below
from sinkjax.edits.site import Site
from sinkjax.experiments import identity, illustrations, measures, views
from sinkjax.experiments.base import Arm, Batch, Calculation, Claim, Job, Section
from sinkjax.experiments.illustrations import labelled
from sinkjax.experiments.li.amplify_figures import Results, drawings
from sinkjax.experiments.li.config import Amplify
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import Measured, Row, Table, summarise
from sinkjax.experiments.words import above, effect, value, verdict
from sinkjax.probes.probe import Capture, Probe
from sinkjax.report.table import interval, number
from sinkjax.studies import folder as results

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model
    from sinkjax.model.config import Config

STORES = ("sweep", "controls")
EXTRAS = (
    illustrations.MAPS,
    illustrations.TEXTS,
)
NONE, IDENTITY, CONTROL = "no edit", "identity", "control"
POSITIONS, DIMS, NORM = "away from the mean over positions", "away from the mean over dims", "scaled, no mean (control)"
CENTRES = {POSITIONS: "positions", DIMS: "dims", NORM: None}
CLAIM = (
    "Li et al. 2026: a token whose head outputs are pushed away from their mean becomes a sink, the more the further; scaling the"
    " same outputs, which changes their norm alone, does not do it."
)


class Dose(NamedTuple):
    """One arm: how, in which layer and how strongly."""

    way: str
    layer: int
    factor: float

    @property
    def label(self) -> str:
        return f"{self.way}, layer {self.layer}, s = {self.factor:g}"


def jobs(config: Amplify, architecture: Config) -> tuple[Job | Calculation, ...]:
    """The sweep on all prompts and the random directions on some. Errors: a layer that the model does not have."""
    needs("li/amplify", architecture)
    layers_below(config, "layers", architecture.layers)
    probe, few = Probe.of("attention_received", "resid_max", "nll"), min(config.control_prompts, config.prompts)
    strongest = [Dose(way, config.layers[-1], max(config.factors)).label for way in (POSITIONS, NORM)]
    shown = labelled(arms(config, architecture.layers), NONE, *strongest)
    nothing = np.zeros((len(config.layers), few, architecture.heads, architecture.head_dim), np.float32)
    return (
        Job("sweep", arms(config, architecture.layers), probe, config.prompts),
        Job(
            "controls",
            controls(config, nothing),
            probe,
            few,
            prepare=lambda model, batch: controls(config, away(config, model, batch)),
        ),
        illustrations.maps(config, architecture, shown),
        illustrations.texts(config, shown, start=config.position + 1),
    )


def doses(config: Amplify, L: int) -> list[Dose]:
    """Every way, layer and factor: the dose-response in some layers, one factor in all others."""
    return [
        Dose(way, layer, factor)
        for way in CENTRES
        for layer in range(L)
        for factor in (config.factors if layer in config.layers else (config.factor,))
    ]


def arms(config: Amplify, L: int) -> tuple[Arm, ...]:
    """No edit, the identity (factor 1) of each way, and every dose; the place of a dose is its layer."""

    def scaled(dose: Dose, group: str, budget: int | None = None) -> Arm:
        edit = sinkjax.scale_head_output(config.position, dose.factor, centre=CENTRES[dose.way], layers=dose.layer)
        return Arm(edit.named(dose.label), group, dose.layer, budget)

    same = [scaled(Dose(way, config.layers[0], 1.0), IDENTITY) for way in CENTRES]
    matched = {Dose(POSITIONS, layer, config.factor) for layer in config.layers}
    found = [scaled(dose, dose.way, dose.layer if dose in matched else None) for dose in doses(config, L)]
    return (Arm(sinkjax.compose(label=NONE), NONE), *same, *found)


def away(config: Amplify, model: Model, batch: Batch) -> NDArray:
    """(s - 1)(o - mu) of the token's head outputs, mu over positions, at the matched factor: float[layers, prompt, head, dim]."""
    k = config.position
    capture = Capture(Site.HEAD_OUT, layers=config.layers, positions=tuple(range(k + 1)))
    run = sinkjax.forward(
        model.params, batch.tokens, model.config, probe=Probe(capture=(capture,)), lengths=batch.lengths, logits=False
    )
    outputs = np.asarray(run.record["head_out"], np.float32).swapaxes(0, 1)
    return (config.factor - 1) * (outputs[:, :, k] - outputs.mean(axis=2))


def controls(config: Amplify, changes: NDArray) -> tuple[Arm, ...]:
    """Changes of the same size in random directions, one for each head and prompt. changes: float[layers, prompt, head, dim]."""
    rng = intervals.generator(config.seed, "li/amplify controls")
    sizes = np.linalg.norm(changes, axis=-1, keepdims=True)
    drawn = []
    for layer, size in zip(config.layers, sizes, strict=True):
        for draw in range(config.controls):
            direction = rng.normal(size=changes.shape[1:])
            change = size * direction / np.linalg.norm(direction, axis=-1, keepdims=True)
            label = f"control {draw}: random direction, layer {layer}"
            edit = sinkjax.edit(
                "head_out", "add", change[None].astype(np.float32), layers=layer, queries=config.position, label=label
            )
            drawn.append(Arm(edit, CONTROL, layer, budget=layer))
    return tuple(drawn)


def section(config: Amplify, stores: Mapping[str, xarray.Dataset]) -> Section:
    """The summary over prompts, the figures, and what they say in words."""
    data, random = (stores[name].load() for name in STORES)
    L, k = data.sizes["layer"], config.position
    chosen = arms(config, L)
    changes = np.ones((len(config.layers), random.sizes["prompt"], data.sizes["head"], 1), np.float32)
    drawn = controls(config, changes)  # only their labels and budgets count here
    summarised = (
        measures.sink_rate(k, config.eps),
        measures.sink_rate(0, config.eps),
        measures.largest_activation(k),
        measures.loss(),
    )
    names = [measure.name for measure in summarised]
    table = summarise(Measured(data, chosen), summarised, config.seed, Measured(random, drawn))
    best = {way: _best(config, table, names[0], way) for way in CENTRES}
    unchanged = [arm.edit.label for arm in chosen if arm.group == IDENTITY]
    shown = {NONE: NONE} | {dose.label: dose.label for dose in best.values()}
    featured = [Dose(way, layer, config.factor).label for way in CENTRES for layer in config.layers]
    return Section(
        experiment="li/amplify",
        title=f"The head outputs of token {k} pushed away from their mean",
        claim=CLAIM,
        findings=(*_findings(config, table, names, best), identity.finding(data, unchanged)),
        rows=tuple(table.values()),
        featured=tuple(dict.fromkeys((NONE, *featured, *list(shown)[1:]))),
        drawings=drawings(Results(config, data, table, names, tuple(CENTRES), NONE)),
        notes=_notes(config, data.sizes["prompt"], random.sizes["prompt"]),
        provenance=results.provenance(data),
        claims=_claims(config, table, names, best),
        views=(views.activation("amplified-activation", data, shown),),
    )


def _best(config: Amplify, table: Table, measure: str, way: str) -> Dose:
    """The layer and factor of the dose-response with the largest effect."""
    tried = [Dose(way, layer, factor) for layer in config.layers for factor in config.factors]
    return max(tried, key=lambda dose: table[dose.label, measure].effect.mean or 0)


def _claims(config: Amplify, table: Table, names: Sequence[str], best: Mapping[str, Dose]) -> tuple[Claim, ...]:
    sink, k = names[0], config.position
    matched = [table[Dose(POSITIONS, layer, config.factor).label, sink] for layer in config.layers]
    strong = [layer for layer, row in zip(config.layers, matched, strict=True) if above(row.effect, 0) and row.percentile == 100]
    rises = [table[Dose(POSITIONS, layer, factor).label, sink].value.mean or 0 for layer in strong for factor in config.factors]
    largest = max(rises, default=0.0)
    usual = table[NONE, names[1]].value.mean or 0.0
    centred = max((best[POSITIONS], best[DIMS]), key=lambda dose: table[dose.label, sink].effect.mean or 0)
    same = Dose(NORM, centred.layer, centred.factor)
    rates = [table[Dose(centred.way, centred.layer, factor).label, sink].value.mean or 0.0 for factor in config.factors]
    steady = bool((np.diff(rates) > 0).all())
    scaled = [table[Dose(NORM, layer, factor).label, sink] for layer in config.layers for factor in config.factors]
    moved = [row for row in scaled if above(row.effect, 0)]
    return (
        Claim(
            f"Head outputs of token {k} pushed away from their mean make it a sink.",
            verdict(bool(strong) and largest >= usual / 2),
            f"Heads that sink on it at s = {config.factor:g}, mean over positions: "
            + "; ".join(
                f"{value(row)} % in layer {layer} ({effect(row)})" for layer, row in zip(config.layers, matched, strict=True)
            )
            + f". At the best factor of the layers that pass, {number(largest)} %; on key 0 without an edit {number(usual)} %."
            " Rule: in one layer, an effect whose interval lies above 0 and above every random direction of the same size, and at"
            " some factor at least half of what key 0 has.",
        ),
        Claim(
            "The sink grows monotonically with s.",
            verdict(above(table[centred.label, sink].effect, 0) and steady),
            f"Largest effect: {centred.way}, layer {centred.layer}. There, s = {_list(config.factors)} give {_list(rates)} % of"
            " heads. Rule: an effect above 0, and more with every step.",
        ),
        Claim(
            "Scaling the same outputs does not make it a sink.",
            verdict(not moved) if above(table[centred.label, sink].effect, 0) else "not applicable",
            f"At the same layer and factor: {value(table[same.label, sink])} %, beside {value(table[centred.label, sink])} %. Of"
            f" {len(scaled)} scalings ({_list(config.factors)} times in layers {_list(config.layers)}), {len(moved)} have an"
            f" effect above 0, at most {interval(table[best[NORM].label, sink].effect, signed=True)}. Rule: none has, where"
            " pushing outputs away from a mean has one.",
        ),
    )


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{entry:.3g}" for entry in values)


def _findings(config: Amplify, table: Table, names: Sequence[str], best: Mapping[str, Dose]) -> tuple[str, ...]:
    sink, first, activation, loss = names

    def say(dose: Dose) -> str:
        row: Row = table[dose.label, sink]
        return f"{value(row)} % of heads sink on it ({effect(row, ' percentage points')})"

    strongest = best[POSITIONS]
    return (
        f"Pushed away from its mean over positions, token {config.position} is most of a sink in layer {strongest.layer} at s ="
        f" {strongest.factor:g}: {say(strongest)}; {value(table[strongest.label, first])} % on key 0, instead of"
        f" {value(table[NONE, first])} %.",
        f"Its largest |h| is then {value(table[strongest.label, activation])}, instead of {value(table[NONE, activation])}.",
        f"Away from the mean over dims, at best (layer {best[DIMS].layer}, s = {best[DIMS].factor:g}) {say(best[DIMS])}; scaled,"
        f" at best (layer {best[NORM].layer}, s = {best[NORM].factor:g}) {say(best[NORM])}.",
        f"At s = {config.factor:g} in layer {config.layers[0]}: "
        + "; ".join(f"{way}, {value(table[Dose(way, config.layers[0], config.factor).label, sink])} %" for way in CENTRES)
        + ".",
        f"The loss is {value(table[strongest.label, loss])} nats at the strongest dose, instead of {value(table[NONE, loss])}"
        f" ({effect(table[strongest.label, loss])}).",
    )


def _notes(config: Amplify, N: int, few: int) -> tuple[str, ...]:
    return (
        f"Means over {N} prompts with bootstrap 95 % intervals over prompts (BCa, 2,000 resamples); effects are mean differences"
        " from no edit, paired by prompt.",
        f"A head sinks on a key if its attention to it, averaged over all queries that see the key, is above {config.eps:g} (Gu"
        " et al. 2025).",
        f"Controls: for each of layers {_list(config.layers)}, {config.controls} random directions for each head and prompt,"
        f" with the size of the change that s = {config.factor:g} makes away from the mean over positions, on {few} prompts. A"
        " percentile says how many of them have a smaller effect on the same prompts. The identity is a factor of 1.",
        "After a first look at random weights the statement on scaling was made not applicable where no dose has an effect. On a"
        " second reading a sink must be half of what key 0 has, as in kiya/mask, where any effect was enough, and monotone means"
        " every step; scaling is judged by any effect at all, in every layer and at every factor. The paper gives no thresholds.",
    )
