"""kiya/after-softmax: the edits of kiya/mask and kiya/self on the weights instead of the logits (footnote 8): does the output
collapse?

Weights that are set to 0 leave rows that sum to less than 1; renormalised, they are the weights that the logits would have given.
Controls: another key masked, or the query at a random position sees one other key, in the same way, in all layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.config_files.checks import MIN_QUERIES, layers_below
from sinkjax.edits.edit import Edit
from sinkjax.edits.site import Site
from sinkjax.experiments import identity, illustrations, measures, views
from sinkjax.experiments.base import Arm, Calculation, Claim, Job, Section
from sinkjax.experiments.kiya.after_softmax_figures import Results, drawings
from sinkjax.experiments.kiya.config import AfterSoftmax
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import Measure, Measured, Table, summarise
from sinkjax.experiments.words import verdict
from sinkjax.model.config import Config
from sinkjax.probes.probe import Probe
from sinkjax.probes.statistics import PairView, Statistic, sinking_heads
from sinkjax.report.table import interval, number
from sinkjax.studies import folder as results

if TYPE_CHECKING:
    import xarray

STORES = ("sweep", "controls", "maps")
EXTRAS = (illustrations.TEXTS, identity.STORE)
NONE, ALL = "no edit", "all layers"
WAYS: dict[str, dict[str, Any]] = {  # way -> what `sinkjax.edit` is told
    "logits": {"site": Site.LOGITS, "value": -np.inf},
    "weights, renormalised": {"site": Site.WEIGHTS, "value": 0.0, "renormalise": True},
    "weights": {"site": Site.WEIGHTS, "value": 0.0},
}
BEFORE, RENORMALISED, AFTER = WAYS
SINK, ON_FIRST = "heads that sink on the new place (%)", "heads that sink on key 0 (%)"
ACTIVATION, LEFT = "largest |h| at the new place", "attention left (% of a row)"
CLAIM = (
    "Kiya et al. 2026, footnote 8: the same edits on the probabilities after the softmax make the output collapse, so that only"
    " edits of logits are reported."
)


def row_sums(weights: jax.Array, view: PairView) -> jax.Array:
    """Sum over queries of a row's weights, mean over heads: [B]."""
    return jnp.where(view.real_rows[..., 0], weights.sum(axis=-1), 0).sum(axis=2).mean(axis=1)


def per_query(sums: jax.Array, lengths: jax.Array) -> jax.Array:
    """Sums over the queries of a prompt, divided by their number: [B]."""
    return sums / lengths


ROW_SUM = Statistic("row_sum", Site.WEIGHTS, row_sums, ("prompt", "layer"), per_query)


def jobs(config: AfterSoftmax, architecture: Config) -> tuple[Job | Calculation, ...]:
    """Both edits in three ways on all prompts, their controls on some, and full maps of one prompt for the first edit."""
    needs("kiya/after-softmax", architecture, "softmax")
    L = architecture.layers
    layers_below(config, "map_layers", L)
    probe = Probe(resid_max=True, nll=True, extra=(sinking_heads(config.eps, shares=True), ROW_SUM))
    written = illustrations.labelled(drawn(config, L), NONE, *(label(masked(config), way, ALL) for way in (BEFORE, AFTER)))
    return (
        Job("sweep", arms(config, L), probe, config.prompts),
        Job("controls", controls(config, L), probe, min(config.control_prompts, config.prompts)),
        Job("maps", drawn(config, L), Probe(attention=config.map_layers), prompts=1),
        illustrations.texts(config, written, start=config.key + 1),
        identity.job(config, probe, unchanged(config)),
    )


def unchanged(config: AfterSoftmax) -> dict[str, Edit]:
    """The identity edit of each way: 0 added to the logits that a mask hides, their weights times 1."""

    def same(site: Site, op: str, value: float, renormalise: bool = False) -> Edit:
        return sinkjax.edit(site, op, value, keys=config.key, relation="others", renormalise=renormalise)

    return {
        f"0 added to the logits towards key {config.key}": same(Site.LOGITS, "add", 0.0),
        f"weights of key {config.key} times 1, renormalised": same(Site.WEIGHTS, "scale", 1.0, renormalise=True),
        f"weights of key {config.key} times 1": same(Site.WEIGHTS, "scale", 1.0),
    }


def masked(config: AfterSoftmax) -> str:
    """The name of the edit of kiya/mask."""
    return f"key {config.key} masked"


def alone(config: AfterSoftmax) -> str:
    """The name of the edit of kiya/self."""
    return f"query {config.position} alone"


def change(way: str, layers: range | None, **selected: Any) -> Edit:
    """No weight, in one of the `WAYS`, from the selected queries to the selected keys. selected: as for `sinkjax.edit`."""
    told = WAYS[way] | {"layers": layers} | selected
    return sinkjax.edit(told.pop("site"), "set", told.pop("value"), **told)


def depths(config: AfterSoftmax, L: int) -> Iterator[tuple[int, str]]:
    """How many first layers are edited together, and their name; all of them last."""
    for count in sorted(set(config.first_layers)):
        if count < L:
            yield count, "layer 0" if count == 1 else f"layers 0 to {count - 1}"
    yield L, ALL


def label(what: str, way: str, where: str) -> str:
    """The label of an arm."""
    return f"{what} in {where} ({way})"


def arms(config: AfterSoftmax, L: int) -> tuple[Arm, ...]:
    """No edit, then for each edit and way the first layers and all; the group is edit and way, the place the number of layers."""
    chosen: dict[str, dict[str, Any]] = {masked(config): {"keys": config.key}, alone(config): {"queries": config.position}}
    edited = (
        Arm(
            change(way, range(count), relation="others", **selected).named(label(what, way, where)),
            f"{what}, {way}",
            count,
            budget=L if count == L else None,
        )
        for what, selected in chosen.items()
        for way in WAYS
        for count, where in depths(config, L)
    )
    return (Arm(sinkjax.compose(label=NONE), NONE), *edited)


def controls(config: AfterSoftmax, L: int) -> tuple[Arm, ...]:
    """No edit, then for each edit and way random ones in all layers: the arms' groups, and the place where each is read.

    Of a key's mask: another key that some later query sees. Of a query alone: a random one that sees one random earlier key.
    """
    rng = intervals.generator(config.seed, "kiya/after-softmax controls")
    found = [Arm(sinkjax.compose(label=NONE), NONE)]
    others = [key for key in range(config.length - 1) if key != config.key]
    for draw in range(config.controls):
        masked_key, query = int(rng.choice(others)), int(rng.integers(1, config.length - MIN_QUERIES))
        seen = int(rng.integers(query))
        hidden = [key for key in range(query + 1) if key != seen]
        for way in WAYS:
            for what, place, name, edit in (
                (masked(config), config.key + 1, f"key {masked_key}", change(way, None, keys=masked_key, relation="others")),
                (alone(config), query, f"query {query} on key {seen}", change(way, None, queries=query, keys=hidden)),
            ):
                found.append(Arm(edit.named(f"control {draw}: {name} ({way})"), f"{what}, {way}", place, budget=L))
    return tuple(found)


def drawn(config: AfterSoftmax, L: int) -> tuple[Arm, ...]:
    """The arms of the attention maps: no edit, and the key masked in all layers in each way."""
    wanted = {NONE} | {label(masked(config), way, ALL) for way in WAYS}
    return tuple(arm for arm in arms(config, L) if arm.edit.label in wanted)


def section(config: AfterSoftmax, stores: Mapping[str, xarray.Dataset]) -> Section:
    """The summary over prompts, the figures, and what they say in words."""
    data, random, maps = (stores[name].load() for name in STORES)
    L = data.sizes["layer"]
    sweep, at_random = Measured(data, arms(config, L)), Measured(random, controls(config, L))
    places = {arm.edit.label: [arm.place] for arm in at_random.arms if arm.place is not None}
    for arm in sweep.arms[1:]:
        places[arm.edit.label] = [config.key + 1 if arm.group.startswith(masked(config)) else config.position]
    places[NONE] = [config.key + 1, config.position]
    measured = (
        measures.loss(),
        measures.at_places(SINK, places, sinks),
        Measure(ON_FIRST, lambda dataset: sinks(dataset)[..., 0]),
        measures.at_places(ACTIVATION, places, lambda dataset: dataset["resid_max"].max("depth", skipna=False).values),
        Measure(LEFT, lambda dataset: 100 * dataset["row_sum"].mean("layer").values),
    )
    table: Table = {}
    for group in dict.fromkeys(arm.group for arm in sweep.arms[1:]):
        table |= summarise(part(sweep, group), measured, config.seed, part(at_random, group))
    everywhere = tuple(label(what, way, ALL) for what in (masked(config), alone(config)) for way in WAYS)
    return Section(
        experiment="kiya/after-softmax",
        title="Editing attention after the softmax",
        claim=CLAIM,
        findings=_findings(config, data, table, measured[0].name),
        rows=tuple(table.values()),
        featured=(NONE, *everywhere),
        drawings=drawings(
            Results(config, sweep, maps, table, (masked(config), alone(config)), tuple(WAYS), tuple(m.name for m in measured))
        ),
        notes=_notes(config, data.sizes["prompt"], random.sizes["prompt"]),
        provenance=results.provenance(data),
        claims=tuple(_claim(config, data, table, measured[0], way) for way in (AFTER, RENORMALISED)),
        views=(
            views.attention("kiya-after-softmax-attention", maps),
            views.activation("kiya-after-softmax-activation", data, {arm: arm for arm in (NONE, *everywhere)}),
        ),
    )


def part(measured: Measured, group: str) -> Measured:
    """No edit and the arms of one group."""
    arms = [arm for arm in measured.arms if arm.group in (NONE, group)]
    return Measured(measured.data.sel(edit=[arm.edit.label for arm in arms]), arms)


def sinks(data: xarray.Dataset) -> NDArray:
    """Heads of all layers that sink on each key, in per cent: float[edit, prompt, key]."""
    return 100 * data["sinking_heads"].mean("layer").values


def _findings(config: AfterSoftmax, data: xarray.Dataset, table: Table, loss: str) -> tuple[str, ...]:
    """What the numbers say, in sentences."""

    def say(arm: str, measure: str) -> str:
        return interval(table[arm, measure].value)

    def each(what: str) -> str:
        found = []
        for way in (BEFORE, AFTER):
            arm = label(what, way, ALL)
            row = table[arm, loss]
            rank = "" if row.percentile is None else f", percentile {row.percentile:.0f} among {row.controls} controls"
            found.append(
                f"by {way}, the loss is {say(arm, loss)} nats ({interval(row.effect, signed=True)}{rank}), {say(arm, SINK)} % of"
                f" heads sink on the new place, the largest |h| there is {say(arm, ACTIVATION)} and {say(arm, LEFT)} % of a row's"
                " attention is left"
            )
        return f"With {what} in all layers: {'; '.join(found)}."

    pairs = [(label(what, BEFORE, ALL), label(what, RENORMALISED, ALL)) for what in (masked(config), alone(config))]
    apart = max(float(np.nanmax(np.abs(data["nll"].sel(edit=one) - data["nll"].sel(edit=two)))) for one, two in pairs)
    return (
        f"Without an edit the loss is {say(NONE, loss)} nats, and {say(NONE, ON_FIRST)} % of heads sink on key 0.",
        each(masked(config)),
        each(alone(config)),
        f"Weights that are set to 0 and renormalised are those that the logits give: no token's loss differs by more than"
        f" {apart:.1g} nats between the two.",
    )


def _claim(config: AfterSoftmax, data: xarray.Dataset, table: Table, loss: Measure, way: str) -> Claim:
    """Whether either edit of the weights, in all layers, leaves no more information than guessing."""
    uniform = math.log(data.attrs["sweep"]["config"]["vocab_size"])
    losses = dict(zip((str(entry) for entry in data["edit"].values), loss.of(data), strict=True))
    found, collapsed = [], False
    for what in (masked(config), alone(config)):
        after, before = label(what, way, ALL), label(what, BEFORE, ALL)
        value = table[after, loss.name].value
        collapsed |= (value.mean or 0) >= uniform
        (more,) = intervals.paired_differences(losses[after][None], losses[before], seed=config.seed).tolist()
        found.append(f"{what} {interval(value)} ({interval(more, signed=True)} against the same edit of logits)")
    none = table[NONE, loss.name].value
    guesses = (none.mean or 0) >= uniform
    return Claim(
        f"Edits after the softmax collapse the output (footnote 8): {way}.",
        verdict(collapsed, not guesses),
        f"Loss in nats per token, edited in all layers: {'; '.join(found)}; no edit {interval(none)}. Rule: a loss of at least"
        f" {number(uniform)}, that of guessing evenly among all tokens, for either edit of a model that does better without one.",
    )


def _notes(config: AfterSoftmax, N: int, control_prompts: int) -> tuple[str, ...]:
    """How the numbers were made."""
    return (
        f"Values are means over {N} prompts with bootstrap 95 % intervals over prompts (BCa, 2,000 resamples); effects are mean"
        " differences from no edit, paired by prompt, at the same place.",
        f"The new place of the sink is position {config.key + 1} for the masked key, and position {config.position} for the query"
        f" alone. A head sinks on a key if the share of attention that it gives it, averaged over all later queries, is above"
        f" {config.eps} (Gu et al. 2025); shares, because without renormalising the rows do not sum to 1.",
        "The paper does not say whether rows were renormalised, nor in which layers; both are shown.",
        f"Controls: {config.controls} random draws for each edit and way, in all layers, on {control_prompts} prompts: another"
        " key is masked, or the query at a random position sees one random earlier key in place of itself. Edits of first layers"
        " have none.",
    )
