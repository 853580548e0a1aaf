"""background/compression: the entropy of the hidden states by depth, and the ablation of the first token's MLP.

Queipo-de-Llano et al. (2026): the massive activation of the first token makes the matrix of hidden states nearly of rank one in
the middle layers, and dropping the MLP's output for this token alone, where it emerges, removes compression and sink.
Controls drop the MLP of random other positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals, metrics
from sinkjax.config_files.checks import MIN_QUERIES
from sinkjax.edits.site import Site
from sinkjax.errors import SinkjaxError
from sinkjax.experiments import identity, measures, words
from sinkjax.experiments.background.compression_figures import Results, drawings
from sinkjax.experiments.background.config import Compression
from sinkjax.experiments.background.spectra import SPECTRUM, anisotropy, bound_by, correlation, matrix_entropy
from sinkjax.experiments.base import Arm, Batch, Calculation, Claim, Job, Section, unedited
from sinkjax.experiments.illustrations import MAPS, TEXTS, maps, texts
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import Measure, Measured, summarise
from sinkjax.model.config import Config
from sinkjax.probes.probe import Probe
from sinkjax.probes.statistics import Statistic
from sinkjax.report.table import interval, number
from sinkjax.studies import folder as results

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model

STORES = ("sweep", "controls")
EXTRAS = (MAPS, TEXTS, identity.STORE)
NONE, SINGLE, ALL, CONTROL = "no edit", "one layer", "all layers", "control"
EARLY, LATE = 0.2, 0.85  # shares of the depth between which states are compressed (Queipo-de-Llano et al., section 5)
STRONG = -0.5  # the correlation below which an interval must lie
SLACK = 1e-4  # of the bound, for rounding in float32
CLAIM = (
    "Queipo-de-Llano et al. 2026: where the first token's activation emerges, the hidden states collapse to nearly one"
    " direction; without the MLP's output for that token there is neither compression nor sink."
)


def jobs(config: Compression, architecture: Config) -> tuple[Job | Calculation, ...]:
    """The MLP of the position dropped in no layer, each, and all; that of random positions."""
    needs("background/compression", architecture, "MLP")
    if architecture.layers < 4:
        raise SinkjaxError(
            f"background/compression compares early, middle and late layers, and this model has {architecture.layers}"
        )
    bound = Statistic("bound", Site.RESID, bound_by(config.position), ("prompt", "depth"))
    probe = Probe(attention_received=True, row_entropy=True, resid_norm=True, nll=True, extra=(SPECTRUM, bound))
    few = min(config.control_prompts, config.prompts)
    same = sinkjax.edit(Site.MLP_OUT, "scale", 1.0, queries=config.position)
    return (
        Job("sweep", arms(config, architecture.layers), probe, config.prompts),
        Job("controls", controls(config, architecture.layers), probe, few),
        maps(config, architecture, shown(config, 0), prepare=partial(prepared, config), prompts=few),
        texts(config, shown(config, 0), start=config.position + 1, prepare=partial(prepared, config), prompts=few),
        identity.job(config, probe, {f"MLP output at position {config.position} times 1": same}),
    )


def shown(config: Compression, layer: int) -> tuple[Arm, ...]:
    """The arms of the maps: no edit, the MLP dropped in one layer, and in all."""
    one = sinkjax.drop_mlp(config.position, layers=layer).named("MLP dropped in the layer where its norm grows most")
    return *unedited(), Arm(one, SINGLE), Arm(sinkjax.drop_mlp(config.position).named(ALL), ALL)


def prepared(config: Compression, model: Model, batch: Batch) -> tuple[Arm, ...]:
    """The arms of the maps for the layer of emergence on these prompts."""
    probe = Probe(resid_norm=True)
    run = sinkjax.forward(model.params, batch.tokens, model.config, probe=probe, lengths=batch.lengths, logits=False)
    norm = np.asarray(run.record["resid_norm"])[:, :, config.position].mean(axis=0)
    return shown(config, int(np.diff(norm).argmax()))


def arms(config: Compression, L: int) -> tuple[Arm, ...]:
    """No edit, each layer, and all layers."""
    dropped = (
        Arm(sinkjax.drop_mlp(config.position, layers=layer).named(f"layer {layer}"), SINGLE, layer, budget=1)
        for layer in range(L)
    )
    return (Arm(sinkjax.compose(label=NONE), NONE), *dropped, Arm(sinkjax.drop_mlp(config.position).named(ALL), ALL, budget=L))


def controls(config: Compression, L: int) -> tuple[Arm, ...]:
    """The MLP of another, random position dropped in one random layer or in all."""
    rng = intervals.generator(config.seed, "background/compression controls")
    others = [position for position in range(config.length - MIN_QUERIES) if position != config.position]
    drawn = []
    for budget in (1, L):
        for draw in range(config.controls):
            position, layer = int(rng.choice(others)), int(rng.integers(L))
            where, picked = (f"layer {layer}", [layer]) if budget == 1 else (ALL, range(L))
            edit = sinkjax.drop_mlp(position, layers=picked).named(f"control {draw}: position {position} in {where}")
            drawn.append(Arm(edit, CONTROL, budget=budget))
    return tuple(drawn)


def middle(depths: int) -> slice:
    """The depths at which states are said to be compressed."""
    return slice(int(np.ceil(EARLY * (depths - 1))), int(LATE * (depths - 1)) + 1)


def middle_entropy(data: xarray.Dataset) -> NDArray:
    """Mean matrix entropy over the middle depths, in bits: float[edit, prompt]."""
    return matrix_entropy(data["spectrum"])[..., middle(data.sizes["depth"])].mean(axis=-1)


def middle_anisotropy(data: xarray.Dataset) -> NDArray:
    """Mean share of the largest direction over the middle depths: float[edit, prompt]."""
    return anisotropy(data["spectrum"])[..., middle(data.sizes["depth"])].mean(axis=-1)


def mixing(data: xarray.Dataset) -> NDArray:
    """Mean entropy of the rows of attention, in bits: float[edit, prompt]."""
    return np.nanmean(data["row_entropy"], axis=(-3, -2, -1)) / np.log(2)


def section(config: Compression, stores: Mapping[str, xarray.Dataset]) -> Section:
    """Entropy, mixing and sinks by depth, what the ablation does, and whether the paper's statements hold."""
    data, random = (stores[name].load() for name in STORES)
    chosen = arms(config, data.sizes["layer"])
    measured = (
        Measure("matrix entropy of the middle depths (bits)", middle_entropy),
        measures.sink_rate(config.position, config.eps),
        Measure("mixing: mean entropy of attention rows (bits)", mixing),
        measures.loss(),
        Measure("anisotropy p_1 of the middle depths", middle_anisotropy),
    )
    table = summarise(Measured(data, chosen), measured, config.seed, Measured(random, controls(config, data.sizes["layer"])))
    found = Results(config, data, chosen, table, [measure.name for measure in measured], emergence(data, config.position))
    return Section(
        experiment="background/compression",
        title="Compression of the hidden states, and the first token's MLP",
        claim=CLAIM,
        findings=_findings(found),
        rows=tuple(table.values()),
        featured=tuple(dict.fromkeys((NONE, f"layer {found.emergence}", f"layer {_strongest(found, 1)}", ALL))),
        drawings=drawings(found),
        notes=_notes(found, random.sizes["prompt"]),
        provenance=results.provenance(data),
        claims=_claims(found),
    )


def emergence(data: xarray.Dataset, position: int) -> int:
    """The layer in which the norm of the position grows most, by the mean over prompts of the unedited run."""
    return int(np.diff(data["resid_norm"].values[0, :, :, position].mean(axis=0)).argmax())


def _strongest(found: Results, number: int) -> int:
    """The layer whose ablation lowers a measure most (sinks), or raises it most (entropy)."""
    sign = 1 if number == 0 else -1
    single = [arm for arm in found.arms if arm.group == SINGLE]
    effects = [sign * words.mean(found.table[arm.edit.label, found.measured[number]].effect) for arm in single]
    return int(np.nan_to_num(effects, nan=-np.inf).argmax())


def phases(found: Results) -> tuple[NDArray, NDArray, NDArray]:
    """Mean matrix entropy of the unedited run in the early, middle and late depths: float[prompt] each."""
    entropy = matrix_entropy(found.data["spectrum"].values[0])
    inside = middle(entropy.shape[-1])
    parts = entropy[:, : inside.start], entropy[:, inside], entropy[:, inside.stop :]
    return parts[0].mean(axis=-1), parts[1].mean(axis=-1), parts[2].mean(axis=-1)


def changes(found: Results) -> tuple[NDArray, NDArray]:
    """Correlations over layers of the change of the position's norm with that of entropy, and of the sink: float[prompt] each.

    The sink of layer l is paired with the stream that enters it.
    """
    unedited, position = found.data.isel(edit=0), found.config.position
    norm = np.diff(unedited["resid_norm"].values[..., position])
    entropy = np.diff(matrix_entropy(unedited["spectrum"]))
    sinks = np.diff(metrics.sink_rate(unedited, position, found.config.eps, per="layer"))
    return correlation(norm, entropy), correlation(norm[:, : sinks.shape[-1]], sinks)


def _slack(found: Results) -> tuple[float, intervals.Interval]:
    """The largest shortfall of p_1 below the bound anywhere, and p_1 less the bound over the middle depths of the unedited"
    " run."""
    gap = found.data["spectrum"].values[..., 0] - found.data["bound"].values
    inside = middle(gap.shape[-1])
    return float(-gap.min()), intervals.interval(gap[0][:, inside].mean(axis=-1), seed=found.config.seed)


def _findings(found: Results) -> tuple[str, ...]:
    """What the numbers say, in sentences."""
    table, (entropy, sinks, mixing, loss, share), seed = found.table, found.measured, found.config.seed
    early, inside, late = (interval(intervals.interval(part, seed=seed)) for part in phases(found))
    with_entropy, with_sinks = (interval(intervals.interval(values, seed=seed)) for values in changes(found))
    at, most = f"layer {found.emergence}", f"layer {_strongest(found, 1)}"
    freest = f"layer {_strongest(found, 0)}"
    low, gap = _slack(found)
    return (
        f"Without an edit the matrix entropy is {early} bits in the first fifth of depths, {inside} bits in the middle and"
        f" {late} bits in the last sixth.",
        f"Over layers, the change of the norm of position {found.config.position} correlates with that of the entropy at"
        f" {with_entropy}, and with that of the sinks at {with_sinks}.",
        f"The norm grows most in {at}. Without the MLP's output for position {found.config.position} there, the entropy of the"
        f" middle depths changes by {words.effect(table[at, entropy], ' bits')}, the share p_1 of their largest direction by"
        f" {words.effect(table[at, share])}, the heads that sink by"
        f" {words.effect(table[at, sinks], ' percentage points')}, the mixing by {words.effect(table[at, mixing], ' bits')} and"
        f" the loss by {words.effect(table[at, loss], ' nats')}.",
        f"Of all single layers, {freest} frees most entropy ({words.effect(table[freest, entropy], ' bits')}) and {most}"
        f" removes most sinks ({words.effect(table[most, sinks], ' percentage points')}); in all layers:"
        f" {words.effect(table[ALL, entropy], ' bits')} and {words.effect(table[ALL, sinks], ' percentage points')}.",
        f"The bound on the largest share p_1 holds everywhere (largest shortfall {number(max(low, 0))}); p_1 is {interval(gap)}"
        " above it in the middle depths.",
    )


def _claims(found: Results) -> tuple[Claim, ...]:
    """The paper's statements, each by its rule."""
    table, (entropy, sinks, *_), seed = found.table, found.measured, found.config.seed
    early, inside, late = phases(found)
    before, after = (intervals.interval(inside - part, seed=seed) for part in (early, late))
    with_entropy, with_sinks = (intervals.interval(values, seed=seed) for values in changes(found))
    at = f"layer {found.emergence}"
    freed, removed, plain = table[at, entropy], table[at, sinks], words.mean(table[NONE, sinks].value)
    low, gap = _slack(found)
    return (
        Claim(
            "Hidden states are compressed in the middle layers (Queipo-de-Llano et al. 2026, Fig. 1).",
            words.verdict(words.below(before, 0) and words.below(after, 0)),
            f"Entropy of the middle depths minus that of the early ones {interval(before, signed=True)} bits, minus that of the"
            f" late ones {interval(after, signed=True)} bits. Rule: both intervals below zero.",
            "LLaMA3-8B: 0.02 bits in the middle layers",
        ),
        Claim(
            "The first token's norm and the entropy change against each other (section 3).",
            words.verdict(words.below(with_entropy, STRONG), with_entropy.mean is not None),
            f"r = {interval(with_entropy)} over layers. Rule: the interval lies below {STRONG}.",
            "six models: -0.9 +- 0.18",
        ),
        Claim(
            "The first token's norm and the sink change together (section 3).",
            words.verdict(words.above(with_sinks, 0), with_sinks.mean is not None),
            f"r = {interval(with_sinks)} over layers. Rule: the interval lies above zero.",
            "six models: 0.58 +- 0.25",
        ),
        Claim(
            "Dropping the first token's MLP in the layer of emergence undoes the compression (section 4).",
            words.verdict(words.above(freed.effect, 0) and freed.percentile == 100),
            f"{at}: {words.effect(freed, ' bits')}. Rule: an interval above zero, and above every control.",
            "LLaMA3-8B, layer 0: 0.4 to 0.5 bits instead of 0.02",
        ),
        Claim(
            "It removes the sink too (section 4).",
            words.verdict(words.mean(removed.value) < plain / 2 and removed.percentile == 0, plain > 1),
            f"{at}: {words.value(table[NONE, sinks])} % of heads to {words.value(removed)} %, {words.effect(removed)}."
            " Rule: less than half is left, and the effect is below every control.",
            "LLaMA3-8B, layer 0: sink rate 0 instead of 0.85 to 1",
        ),
        Claim(
            "The largest share of the spectrum is bounded below by the token's norm and alignment (Theorem 1).",
            words.verdict(low < SLACK),
            f"Largest shortfall {number(max(low, 0))} over all edits, prompts and depths; without an edit p_1 is"
            f" {interval(gap)} above the bound in the middle depths. Rule: no shortfall above {SLACK}.",
        ),
    )


def _notes(found: Results, control_prompts: int) -> tuple[str, ...]:
    """How the numbers were made."""
    config = found.config
    return (
        f"Values are means over {found.data.sizes['prompt']} prompts with bootstrap 95 % intervals over prompts (BCa, 2,000"
        " resamples); effects are mean differences from no edit, paired by prompt.",
        "Matrix entropy: -sum p log2 p over the shares p of the squared singular values of a prompt's hidden states, in bits;"
        f" 0 is one direction, {np.log2(config.length):.0f} as many equal ones as tokens. Middle depths: {EARLY:.0%} to"
        f" {LATE:.0%} of all.",
        "The layer of emergence is the one in which the norm grows most. Correlations are over layers, in each prompt; a"
        " layer's sink is paired with the stream that enters it.",
        f"Controls: {config.controls} draws drop the MLP of another, random position in one random layer, and as many in all"
        f" layers. A percentile says how many of them have a smaller effect on the same {control_prompts} prompts.",
    )
