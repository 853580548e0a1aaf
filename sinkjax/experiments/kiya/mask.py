"""kiya/mask: what becomes of the sink and of the massive activation when no query may attend to the first key (Figs. 4 and 8).

The logits towards the key are -inf for every later query: in no layer, in each single layer, in layers 0 to l, in all layers, or
in some heads (`mask_heads.py`). Controls mask another, random key in as many random layers, or the key in as many random heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

import sinkjax
from sinkjax.analysis import intervals, metrics
from sinkjax.config_files.checks import layers_below
from sinkjax.edits.site import Site
from sinkjax.experiments import identity, measures, results, views
from sinkjax.experiments.base import Arm, Calculation, Claim, Job, Section, View
from sinkjax.experiments.continuations import PROMPTS, continuations, samples
from sinkjax.experiments.kiya import mask_heads
from sinkjax.experiments.kiya.config import Mask
from sinkjax.experiments.kiya.mask_figures import Results, drawings
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import Measured, Row, Table, summarise
from sinkjax.experiments.words import above, effect, verdict
from sinkjax.model.config import Config
from sinkjax.probes.probe import Probe
from sinkjax.report.table import interval, number

if TYPE_CHECKING:
    import xarray

STORES = ("sweep", "controls", "maps", "continuations", *mask_heads.STORES)
MORE = "first-controls"  # of masks of several first layers
EXTRAS = (MORE, identity.STORE)
STATISTICS = ("attention_received", "resid_max", "resid_norm", "resid_argmax")
NONE, SINGLE, FIRST, ALL, CONTROL = "no edit", "one layer", "layers 0 to l", "all layers", "control"
MOST_LISTED = 6  # layers in one sentence
CLAIM = (
    "Kiya et al. 2026: with the logits towards the first token at minus infinity in all layers, or in an early one, the sink"
    " moves to the second token and the massive activation appears on both; an edit in the early layers decides where later"
    " layers put them."
)


def jobs(config: Mask, architecture: Config) -> tuple[Job | Calculation, ...]:
    """Sweeps over layers and heads on all prompts, their controls on some, and maps and texts of a few arms on the first ones."""
    needs("kiya/mask", architecture)
    layers_below(config, "map_layers", architecture.layers)
    chosen, probe = arms(config, architecture.layers), Probe.of(*STATISTICS, *["nll"] * config.loss)
    drawn = tuple(arm for arm in chosen if arm.edit.label in (NONE, _early(architecture.layers), ALL))
    same = sinkjax.edit(Site.LOGITS, "add", 0.0, keys=config.key, relation="others")
    few = min(config.control_prompts, config.prompts)
    return (
        Job("sweep", chosen, probe, config.prompts),
        Job("controls", controls(config, architecture.layers), probe, few),
        Job("maps", drawn, views.probe(config.length), min(views.PROMPTS, config.prompts)),
        continuations("continuations", drawn, min(PROMPTS, config.prompts), start=config.key + 1),
        *mask_heads.jobs(config, architecture, probe),
        *([Job(MORE, first_controls(config, architecture.layers), probe, few)] if several(architecture.layers) else []),
        identity.job(config, probe, {f"0 added to the logits towards key {config.key}": same}),
    )


def arms(config: Mask, L: int) -> tuple[Arm, ...]:
    """No edit, layer l alone, layers 0 to l, and all layers."""

    def masked(group: str, place: int, layers: range, label: str, budget: int | None = None) -> Arm:
        return Arm(sinkjax.mask_key(config.key, layers=layers).named(label), group, place, budget)

    none = Arm(sinkjax.compose(label=NONE), NONE)
    single = (masked(SINGLE, layer, range(layer, layer + 1), f"layer {layer}", budget=1) for layer in range(L))
    budgets = {count: count for count in several(L)}
    first = (masked(FIRST, last, range(last + 1), f"layers 0 to {last}", budgets.get(last + 1)) for last in range(1, L - 1))
    whole = masked(ALL, L - 1, range(L), ALL, budget=L)
    return (none, *single, *first, whole)


def several(L: int) -> list[int]:
    """How many first layers the short table and the claims are about, if not one or all: a tenth, a third and half of them."""
    return sorted(count for count in {max(L // 10, 2), L // 3, L // 2} if 1 < count < L)


def controls(config: Mask, L: int) -> tuple[Arm, ...]:
    """Random arms of the same budget: another key, masked in one random layer or in all of them."""
    return _drawn(config, L, sorted({1, L}), intervals.generator(config.seed, "kiya/mask controls"))


def first_controls(config: Mask, L: int) -> tuple[Arm, ...]:
    """Random arms for the masks of several first layers: another key, masked in as many random layers."""
    return _drawn(config, L, several(L), intervals.generator(config.seed, "kiya/mask controls of first layers"))


def _drawn(config: Mask, L: int, budgets: Sequence[int], rng: np.random.Generator) -> tuple[Arm, ...]:
    others = [key for key in range(config.length - 1) if key != config.key]  # no later query sees the last key
    drawn = []
    for budget in budgets:
        for draw in range(config.controls):
            key, layers = int(rng.choice(others)), sorted(rng.choice(L, budget, replace=False).tolist())
            where = {1: f"layer {layers[0]}", L: ALL}.get(budget, f"{budget} layers")
            edit = sinkjax.mask_key(key, layers=layers).named(f"control {draw}: key {key} in {where}")
            drawn.append(Arm(edit, CONTROL, budget=budget))
    return tuple(drawn)


def random_masks(config: Mask, stores: Mapping[str, xarray.Dataset], L: int) -> Measured:
    """The controls; those of several first layers where their store is."""
    import xarray

    found = [(stores["controls"], controls(config, L))]
    if MORE in stores:
        found.append((stores[MORE], first_controls(config, L)))
    data = xarray.concat([data.load() for data, _ in found], "edit", data_vars="minimal", combine_attrs="override")
    return Measured(data, [arm for _, arms in found for arm in arms])


def section(config: Mask, stores: Mapping[str, xarray.Dataset]) -> Section:
    """The summary over prompts, the figures, and what they say in words."""
    data, maps = (stores[name].load() for name in ("sweep", "maps"))
    L = data.sizes["layer"]
    random = random_masks(config, stores, L)
    chosen = arms(config, L)
    summarised = (
        measures.sink_rate(config.key, config.eps),
        measures.sink_rate(config.key + 1, config.eps),
        measures.largest_activation(config.key),
        measures.largest_activation(config.key + 1),
        *[measures.loss()] * config.loss,
    )
    names = [measure.name for measure in summarised]
    table = summarise(Measured(data, chosen), summarised, config.seed, random)
    featured = _featured(table, chosen, names[1])
    columns = {
        "one layer l": [arm for arm in chosen if arm.group == SINGLE],
        "layers 0 to l": [arm for arm in chosen if arm.group in (FIRST, ALL) or (arm.group == SINGLE and arm.place == 0)],
    }
    found = Results(config, data, maps, columns, table, names, featured)
    heads = mask_heads.part(config, stores, summarised, found.origin)
    return Section(
        experiment="kiya/mask",
        title=f"Masking the logits towards key {config.key}",
        claim=CLAIM,
        findings=(*_findings(config, data, chosen, table, names), *heads.findings),
        rows=(*table.values(), *heads.rows),
        featured=(*featured, *heads.featured),
        drawings=(*drawings(found), heads.drawing),
        notes=(*_notes(config, data.sizes["prompt"], random), heads.note),
        provenance=results.provenance(data),
        claims=_claims(config, data, table, names),
        views=_views(data, maps, featured),
        samples=samples(stores["continuations"]),
    )


def _views(data: xarray.Dataset, maps: xarray.Dataset, featured: Sequence[str]) -> tuple[View, ...]:
    """Attention in every layer and head, and activations, of a few arms on a few prompts."""

    def named(labels: Sequence[str]) -> dict[str, str]:
        return {label: label if label == NONE else f"masked: {label}" for label in labels}

    drawn = named([str(label) for label in maps["edit"].values])
    return (views.attention("mask-attention", maps, drawn), views.activation("mask-activation", data, named(featured)))


def _early(L: int) -> str:
    """The label of the arm that masks the first tenth of the layers, at least two."""
    return f"layers 0 to {max(L // 10, 2) - 1}"


def _featured(table: Table, chosen: Sequence[Arm], measure: str) -> tuple[str, ...]:
    """The arms of the short table: none, layer 0, the one layer that does most, the first tenth and half of layers, all."""
    single = [arm for arm in chosen if arm.group == SINGLE]
    strongest = max(single, key=lambda arm: _size(table[arm.edit.label, measure]))
    L = len(single)
    wanted = ("layer 0", strongest.edit.label, _early(L), f"layers 0 to {L // 2 - 1}")
    labels = [arm.edit.label for arm in chosen]
    return tuple(label for label in dict.fromkeys((NONE, *wanted, ALL)) if label in labels)


def _findings(
    config: Mask, data: xarray.Dataset, chosen: Sequence[Arm], table: Table, measured: Sequence[str]
) -> tuple[str, ...]:
    """What the numbers say, in sentences."""
    key, moved = config.key, config.key + 1
    stays, moves, at_key, at_moved, *loss = measured

    def say(arm: str, measure: str) -> str:
        return interval(table[arm, measure].value)

    peak = metrics.largest_activation(data.isel(edit=0))
    where = np.take_along_axis(peak.position, peak.value.argmax(axis=-1)[:, None], axis=-1)[:, 0]
    usual = int(np.bincount(where).argmax())
    sentences = (
        f"Without an edit, {say(NONE, stays)} % of all heads sink on key {key}, and the largest activation stands at position"
        f" {usual} in {(where == usual).sum()} of {len(where)} prompts.",
        f"With key {key} masked in all layers, {say(ALL, moves)} % of heads sink on key {moved}"
        f" (effect {effect(table[ALL, moves], ' percentage points')}).",
        f"The largest |h| at position {moved} is then {say(ALL, at_moved)} instead of {say(NONE, at_moved)}"
        f" (effect {effect(table[ALL, at_moved])}), and at position {key} it is {say(ALL, at_key)} instead of"
        f" {say(NONE, at_key)}.",
        _single_layers(chosen, table, moves, moved),
        _first_layers(config, data, chosen),
        *(
            f"The loss of the next token is {say(ALL, name)} nats with the mask in all layers, instead of {say(NONE, name)}"
            f" (effect {effect(table[ALL, name])})."
            for name in loss
        ),
    )
    return tuple(sentence for sentence in sentences if sentence)


def _size(row: Row) -> float:
    """A mean effect, for comparisons; an undefined one is the smallest."""
    return -np.inf if row.effect.mean is None else row.effect.mean


def _single_layers(chosen: Sequence[Arm], table: Table, measure: str, moved: int) -> str:
    """Which single layers matter: an interval above zero, and more than every control."""
    effects = [table[arm.edit.label, measure] for arm in chosen if arm.group == SINGLE]
    strong = [layer for layer, row in enumerate(effects) if above(row.effect, 0) and row.percentile == 100]
    test = "an interval above zero and a larger effect than every control"
    if not strong:
        return f"No single layer's mask brings a sink to key {moved} with {test}."
    ordered = sorted(strong, key=lambda layer: -_size(effects[layer]))
    listed = ", ".join(f"layer {layer} ({interval(effects[layer].effect, signed=True)})" for layer in ordered[:MOST_LISTED])
    rest = f" and {len(ordered) - MOST_LISTED} more" if len(ordered) > MOST_LISTED else ""
    return (
        f"In {len(strong)} of {len(effects)} single layers a mask raises the percentage of heads that sink on key {moved} with"
        f" {test}: {listed}{rest}."
    )


def _first_layers(config: Mask, data: xarray.Dataset, chosen: Sequence[Arm]) -> str:
    """From how many first layers on most prompts have their strongest key elsewhere."""
    position = metrics.sink_position(data, min_queries=min(8, config.length // 2)).position
    groups = [(arm.place, (position[number] == config.key + 1).mean()) for number, arm in enumerate(chosen) if arm.group == FIRST]
    reached = [(place, share) for place, share in groups if share > 0.5]
    if not groups:
        return ""
    if not reached:
        return f"However many of the first layers are masked, most prompts do not give most attention to key {config.key + 1}."
    place, share = reached[0]
    return (
        f"Masking layers 0 to {place} is enough for key {config.key + 1} to receive more attention than any other key, over all"
        f" layers and heads, in most prompts ({share:.0%})."
    )


def _claims(config: Mask, data: xarray.Dataset, table: Table, measured: Sequence[str]) -> tuple[Claim, ...]:
    """The paper's statements: what appears at the next token must be new, above every control, and half of what the key had."""
    stays, moves, at_key, at_moved, *_ = measured
    third = f"layers 0 to {data.sizes['layer'] // 3 - 1}" if data.sizes["layer"] >= 6 else "layer 0"

    def judge(statement: str, arm: str, measure: str, before: str) -> Claim:
        row, had = table[arm, measure], table[NONE, before].value.mean or 0
        held = above(row.effect, 0) and (row.value.mean or 0) >= had / 2 and row.percentile in (None, 100)
        return Claim(
            statement,
            verdict(held),
            f"{measure}: {interval(row.value)}, effect {effect(row)}. Rule: an effect with an interval above 0 and above every"
            f" control, if it has any, and a value of at least half of {number(had)}, what key {config.key} has without an edit.",
        )

    return (
        judge("Masked in all layers, the sink moves to the next token (Figs. 4a, 8a).", ALL, moves, stays),
        judge("Then the next token has a massive activation too (Figs. 4, 8).", ALL, at_moved, at_key),
        judge("Masked in the first layer alone, the sink moves as well (Fig. 4b).", "layer 0", moves, stays),
        judge("An edit in early layers decides where later ones put the sink: in the first third of them.", third, moves, stays),
    )


def _notes(config: Mask, N: int, random: Measured) -> tuple[str, ...]:
    """How the numbers were made."""
    budgets = ", ".join(map(str, sorted({arm.budget for arm in random.arms if arm.budget})))
    return (
        f"Values are means over {N} prompts with bootstrap 95 % intervals over prompts (BCa, 2,000 resamples); effects are"
        " mean differences from no edit, paired by prompt.",
        f"A head sinks on a key if its attention to it, averaged over all queries that see the key, is above {config.eps}"
        " (Gu et al. 2025). Shares are of all heads of all layers; in a masked layer the masked key cannot be a sink.",
        f"Controls: {config.controls} random draws for each of some numbers of layers ({budgets}) mask another, random key in as"
        " many random layers. A percentile says how many of them have a smaller effect on the same"
        f" {random.data.sizes['prompt']} prompts. Masks of other numbers of first layers have none.",
        f"The mask spares query {config.key} itself, which would otherwise have no key left.",
    )
