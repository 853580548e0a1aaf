"""background/patch: which values carry the sink, by activation patching from a run whose sink was moved.

In the donor run no query may attend to the first key, in any layer, so that the sink and a massive activation stand at the second
position (Kiya et al. 2026, Fig. 4). What that run has at this position is put into the unedited run: the residual stream, the
outputs of attention and MLP, keys (before the rotation) and values, in one layer or in all. Controls put there what the donor
run has at random later positions. `patch_positions.py` patches one position at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.checkpoints.model import Model
from sinkjax.edits.site import Site
from sinkjax.experiments import identity, measures, views, words
from sinkjax.experiments.background import patch_positions
from sinkjax.experiments.background.config import Patch
from sinkjax.experiments.background.patch_donor import Donor, blank, put, values_of
from sinkjax.experiments.background.patch_figures import ALL, DONOR, NONE, SINGLE, SITES, drawings
from sinkjax.experiments.base import Arm, Batch, Calculation, Claim, Job, Section
from sinkjax.experiments.illustrations import MAPS, TEXTS, labelled, maps, texts
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import Measured, Row, Table, summarise
from sinkjax.model.config import Config
from sinkjax.probes.probe import Probe
from sinkjax.studies import folder as results

if TYPE_CHECKING:
    import xarray

STORES = ("sweep", "controls")
EXTRAS = (MAPS, TEXTS, patch_positions.STORE, identity.STORE)
CONTROL = "control"
MOVED = 10.0  # percentage points of heads by which the donor's sink must move, for its values to be worth a patch
WHOLE = f"{SITES[Site.RESID]}, {ALL}"  # all that the position hands on
CLAIM = (
    "Kiya et al. 2026: the stream of an early layer decides where later layers put the sink. Gu et al. 2025: a sink is made by"
    " its key's direction, not by its value. Queipo-de-Llano et al. 2026: the MLP writes the massive activation."
)


def jobs(config: Patch, architecture: Config) -> tuple[Job | Calculation, ...]:
    """Every site in each layer and in all; random positions of the donor run in their place."""
    needs("background/patch", architecture, "MLP")
    probe = Probe(attention_received=True, resid_max=True, nll=True)
    few = min(config.control_prompts, config.prompts)

    drawn = [blank(architecture, few)] * config.controls
    whole = (f"{SITES[site]}, {ALL}" for site in (Site.RESID, Site.KEY, Site.VALUE))
    shown = labelled(arms(config, blank(architecture, min(views.PROMPTS, config.prompts))), NONE, DONOR, *whole)
    own = unchanged(config, blank(architecture, min(identity.PROMPTS, config.prompts)))
    return (
        Job("sweep", arms(config, blank(architecture, config.prompts)), probe, config.prompts, prepare=partial(prepared, config)),
        Job("controls", controls(config, drawn), probe, few, prepare=partial(prepared_controls, config)),
        maps(config, architecture, shown, prepare=partial(prepared, config)),
        texts(config, shown, start=config.key + 2, prepare=partial(prepared, config)),
        patch_positions.job(config, architecture, probe),
        identity.job(config, probe, own, prepare=partial(prepared_unchanged, config)),
    )


def arms(config: Patch, donor: Donor) -> tuple[Arm, ...]:
    """No edit, the donor run, each site in one layer, each site in all layers. A budget is a site, and one layer or all."""
    L = len(next(iter(donor.values())))
    found = [Arm(sinkjax.compose(label=NONE), NONE), Arm(sinkjax.mask_key(config.key).named(DONOR), DONOR)]
    for number, (site, name) in enumerate(SITES.items()):
        for layer in range(L):
            edit = put(config.key + 1, site, donor[site], [layer], f"{name}, layer {layer}")
            found.append(Arm(edit, f"{name}, {SINGLE}", layer, budget=number))
    for number, (site, name) in enumerate(SITES.items()):
        edit = put(config.key + 1, site, donor[site], range(L), f"{name}, {ALL}")
        found.append(Arm(edit, f"{name}, {ALL}", budget=len(SITES) + number))
    return tuple(found)


def unchanged(config: Patch, own: Donor) -> dict[str, sinkjax.Edit]:
    """The run's own values put at all sites of the position, in all layers."""
    L = len(next(iter(own.values())))
    same = sinkjax.compose(*(put(config.key + 1, site, value, range(L), SITES[site]) for site, value in own.items()))
    return {"the run's own values at every site and layer": same}


def controls(config: Patch, donors: Sequence[Donor]) -> tuple[Arm, ...]:
    """Each site of a random position of the donor run, in one random layer and in all."""
    rng, drawn = intervals.generator(config.seed, "background/patch control layers"), []
    for draw, donor in enumerate(donors):
        for number, (site, name) in enumerate(SITES.items()):
            L = len(donor[site])
            layer = int(rng.integers(L))
            for budget, picked, where in ((number, [layer], f"layer {layer}"), (len(SITES) + number, range(L), ALL)):
                edit = put(config.key + 1, site, donor[site], picked, f"control {draw}: {name} of a random position, {where}")
                drawn.append(Arm(edit, CONTROL, budget=budget))
    return tuple(drawn)


def prepared(config: Patch, model: Model, batch: Batch) -> tuple[Arm, ...]:
    """The arms with the values of the donor run at the position that is patched."""
    values = values_of(sinkjax.mask_key(config.key), model, batch, (config.key + 1,))
    return arms(config, {site: array[:, :, 0] for site, array in values.items()})


def prepared_controls(config: Patch, model: Model, batch: Batch) -> tuple[Arm, ...]:
    """The controls with the values of the donor run at random later positions, one for each prompt and draw."""
    values = values_of(sinkjax.mask_key(config.key), model, batch, None)
    rng = intervals.generator(config.seed, "background/patch control positions")
    prompts = np.arange(len(batch.lengths))
    drawn = [rng.integers(config.key + 2, batch.lengths) for _ in range(config.controls)]
    return controls(config, [{site: array[:, prompts, at] for site, array in values.items()} for at in drawn])


def prepared_unchanged(config: Patch, model: Model, batch: Batch) -> dict[str, sinkjax.Edit]:
    """The identity edit with the values of the unedited run."""
    values = values_of(sinkjax.compose(), model, batch, (config.key + 1,))
    return unchanged(config, {site: array[:, :, 0] for site, array in values.items()})


def section(config: Patch, stores: Mapping[str, xarray.Dataset]) -> Section:
    """What each site moves, and whether the papers' statements hold."""
    data, random = (stores[name].load() for name in STORES)
    nothing = {site: np.zeros((data.sizes["layer"], 1, 1)) for site in SITES}
    chosen = arms(config, nothing)
    measured = (measures.sink_rate(config.key + 1, config.eps), measures.largest_activation(config.key + 1), measures.loss())
    drawn = controls(config, [nothing] * config.controls)
    table = summarise(Measured(data, chosen), measured, config.seed, Measured(random, drawn))
    names = [measure.name for measure in measured]
    places = patch_positions.part(config, stores)
    best = {name: _best(table, chosen, name, names[0]) for name in SITES.values()}
    return Section(
        experiment="background/patch",
        title=f"Values of a moved sink, put at position {config.key + 1} of the unedited run",
        claim=CLAIM,
        findings=(*_findings(config, table, names, best), *places.findings),
        rows=(*table.values(), *places.rows),
        featured=(NONE, DONOR, *(f"{name}, {ALL}" for name in SITES.values()), *best.values()),
        drawings=(*drawings(config, data, chosen, table, names, best), *places.drawings),
        notes=_notes(config, data.sizes["prompt"], random.sizes["prompt"]),
        provenance=results.provenance(data),
        claims=_claims(config, chosen, table, names, data.sizes["layer"]),
    )


def _best(table: Table, chosen: Sequence[Arm], name: str, measure: str, below: int | None = None) -> str:
    """The label of the single layer of a site with the largest effect, perhaps only of the layers below one."""
    single = [arm for arm in chosen if arm.group == f"{name}, {SINGLE}" and (below is None or (arm.place or 0) < below)]
    return max(single, key=lambda arm: words.mean(table[arm.edit.label, measure].effect)).edit.label


def _findings(config: Patch, table: Table, names: Sequence[str], best: Mapping[str, str]) -> tuple[str, ...]:
    """What the numbers say, in sentences."""
    sinks, activation, loss = names
    target = config.key + 1

    def listed(measure: str, unit: str) -> str:
        return "; ".join(f"{name} {words.effect(table[f'{name}, {ALL}', measure], unit)}" for name in SITES.values())

    single = "; ".join(f"{label} {words.effect(table[label, sinks])}" for label in best.values())
    return (
        f"In the donor run {words.value(table[DONOR, sinks])} % of heads sink on key {target}, instead of"
        f" {words.value(table[NONE, sinks])} %, and the largest |h| there is {words.value(table[DONOR, activation])}"
        f" instead of {words.value(table[NONE, activation])}.",
        f"Its values at position {target}, patched in all layers, change the heads that sink there by (percentage points):"
        f" {listed(sinks, '')}.",
        f"The largest |h| there by: {listed(activation, '')}.",
        f"The single layer of each site that moves most sinks (percentage points): {single}.",
        f"The loss by: {listed(loss, ' nats')}.",
    )


def _parts(table: Table, label: str, measure: str) -> tuple[float, float]:
    """A mean effect over that of the donor run, and over that of the whole stream patched in all layers.

    In the donor run the sink has no other key to go to; in the unedited run the first key keeps a part of it.
    """
    wholes = (words.mean(table[arm, measure].effect) for arm in (DONOR, WHOLE))
    donor, stream = (words.mean(table[label, measure].effect) / whole if whole else float("nan") for whole in wholes)
    return donor, stream


def _most(table: Table, label: str, measure: str) -> bool:
    """Whether an effect is more than half of both wholes."""
    return min(_parts(table, label, measure)) > 0.5


def _hardly(table: Table, label: str, measure: str, bound: float = 0.1) -> bool:
    """Whether an effect is less than a part of both wholes, either way."""
    return max(map(abs, _parts(table, label, measure))) < bound


def _beyond(row: Row) -> bool:
    """An interval above zero, and above every control."""
    return words.above(row.effect, 0) and row.percentile == 100


def _claims(config: Patch, chosen: Sequence[Arm], table: Table, names: Sequence[str], L: int) -> tuple[Claim, ...]:
    """The papers' statements, each by its rule."""
    sinks, activation, _ = names
    moved = words.above(table[DONOR, sinks].effect, MOVED)
    massive = moved and words.above(table[DONOR, activation].effect, 0)
    stream = _best(table, chosen, SITES[Site.RESID], sinks, below=max(L // 4, 1))
    keys, values = (f"{SITES[site]}, {ALL}" for site in (Site.KEY, Site.VALUE))
    mlp, attention = (_best(table, chosen, SITES[site], activation) for site in (Site.MLP_OUT, Site.ATTN_OUT))

    def say(label: str, measure: str, unit: str = "") -> str:
        donor, whole = _parts(table, label, measure)
        part = f" ({donor:.0%} of the donor run's, {whole:.0%} of the whole stream's)" if moved else ""
        return f"{label} {words.effect(table[label, measure], unit)}{part}"

    points_, both = " percentage points", "more than half of what the donor run has and of what the whole stream does"
    everywhere = f"{SITES[Site.ATTN_OUT]}, {ALL}"
    return (
        Claim(
            "What early layers write decides where later layers put the sink (Kiya et al. 2026, section 4).",
            words.verdict(_beyond(table[stream, sinks]) and _most(table, stream, sinks), moved),
            f"Of the first quarter of layers: {say(stream, sinks, points_)}. Rule: above zero, above every control, and {both}.",
        ),
        Claim(
            "The key makes the sink, not the value (Gu et al. 2025, section 7).",
            words.verdict(
                _beyond(table[keys, sinks]) and _most(table, keys, sinks) and _hardly(table, values, sinks),
                moved,
            ),
            f"{say(keys, sinks, points_)}; {say(values, sinks, points_)}. Rule: keys above every control and {both}, values less"
            " than a tenth of either.",
        ),
        Claim(
            "The sink needs no massive activation once the keys are given (after Gu et al. 2025, section 4: angles, not norms).",
            words.verdict(_beyond(table[keys, sinks]) and _most(table, keys, sinks) and _hardly(table, keys, activation), moved),
            f"{say(keys, sinks, points_)}; largest |h|: {say(keys, activation)}. Rule: sinks above every control and {both}, and"
            " less than a tenth of either's activation.",
        ),
        Claim(
            "The MLP, not attention, writes the massive activation (Queipo-de-Llano et al. 2026; Li et al. 2026).",
            words.verdict(
                _beyond(table[mlp, activation])
                and _most(table, mlp, activation)
                and _hardly(table, attention, activation, bound=0.5),
                massive,
            ),
            f"Largest |h|: {say(mlp, activation)}; {say(attention, activation)}. In one layer each; {say(everywhere, activation)}"
            " rebuilds the whole stream, of which the MLPs are a function. Rule: in one layer, MLP output above every control"
            f" and {both}, attention output less than half of either.",
        ),
    )


def _notes(config: Patch, N: int, control_prompts: int) -> tuple[str, ...]:
    """How the numbers were made."""
    target = config.key + 1
    return (
        f"Values are means over {N} prompts with bootstrap 95 % intervals over prompts (BCa, 2,000 resamples); effects are mean"
        " differences from no edit, paired by prompt.",
        f"The donor is the same prompt with the logits towards key {config.key} at minus infinity in all layers. Keys are"
        f" patched before the rotation, so that they get the rotation of position {target}, where they come from too. The"
        " residual stream is patched after its layer, all else inside of it.",
        f"In the unedited run key {config.key} stays visible and keeps a part of the sink. For that reason parts were taken of"
        " what the whole stream does, instead of the donor run, after a first look at SmolLM2; since a second reading a verdict"
        " asks for both. That MLP and attention are compared in single layers was chosen after that look too.",
        f"Controls: {config.controls} draws put at position {target} what the donor run has at a random later position of each"
        " prompt, for each site in one random layer and in all. A percentile says how many of them have a smaller effect on"
        f" the same {control_prompts} prompts.",
    )
