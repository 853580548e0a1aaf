"""kiya/self: a query that attends to itself alone (Figs. 5 and 9): at which positions and in which layers does that place a sink,
and does a massive activation come with it?

The logits of the query towards all other keys are -inf: in each single layer, in the first few layers, or in all. The controls
take as many links away, at random. That it is itself that the query sees is tested by one random other key in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.config_files.checks import layers_below
from sinkjax.edits.site import Site
from sinkjax.experiments import identity, illustrations, measures, views
from sinkjax.experiments.base import Arm, Calculation, Claim, Job, Section
from sinkjax.experiments.kiya import self_other
from sinkjax.experiments.kiya.config import SelfOnly
from sinkjax.experiments.kiya.self_figures import Results, drawings
from sinkjax.experiments.kiya.self_other import ALL
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import Measure, Measured, Table, summarise
from sinkjax.experiments.words import above, verdict
from sinkjax.model.config import Config
from sinkjax.probes.probe import Probe
from sinkjax.probes.statistics import sinking_heads
from sinkjax.report.table import interval, number
from sinkjax.studies import folder as results

if TYPE_CHECKING:
    import xarray

STORES = ("sweep", "controls", "maps")
EXTRAS = (illustrations.TEXTS, identity.STORE)
NONE, SINGLE, FIRST = "no edit", "one layer", "first layers"
CONTROL = "control"
SINK, ACTIVATION, ON_FIRST = (
    "heads that sink on the position (%)",
    "largest |h| at the position",
    "heads that sink on key 0 (%)",
)
GROWN = 10  # times its unedited size, from which an activation counts as massive
CLAIM = (
    "Kiya et al. 2026: where the query at a chosen position attends to itself alone, as the first token always does, the sink and"
    " the massive activation move to that position (Figs. 5 and 9)."
)


def jobs(config: SelfOnly, architecture: Config) -> tuple[Job | Calculation, ...]:
    """The grid of positions and sets of layers, its controls, and full maps of one prompt for one position."""
    needs("kiya/self", architecture)
    L = architecture.layers
    layers_below(config, "map_layers", L)
    chosen, probe = arms(config, L), Probe(resid_max=True, extra=(sinking_heads(config.eps),))
    same = sinkjax.edit(Site.LOGITS, "add", 0.0, queries=config.shown, relation="others")
    return (
        Job("sweep", chosen, probe, config.prompts),
        Job("controls", (*controls(config, L), *self_other.arms(config)), probe, min(config.control_prompts, config.prompts)),
        Job("maps", drawn(config, L), Probe(attention=config.map_layers), prompts=1),
        illustrations.texts(config, drawn(config, L), start=config.shown + 1),
        identity.job(config, probe, {f"0 added to the logits of query {config.shown} towards other keys": same}),
    )


def sets(config: SelfOnly, L: int) -> Iterator[tuple[str, str, range]]:
    """Group, name and layers of each set of layers, in the order of the arms."""
    for layer in range(L):
        yield SINGLE, f"layer {layer}", range(layer, layer + 1)
    for count in sorted(set(config.first_layers)):
        if count < L:
            yield FIRST, f"layers 0 to {count - 1}", range(count)
    yield ALL, ALL, range(L)


def arms(config: SelfOnly, L: int) -> tuple[Arm, ...]:
    """No edit, then for each set of layers every position; an arm's place is its position."""
    budgets = {SINGLE: 1, ALL: L}
    alone = (
        Arm(sinkjax.attend_self(place, layers=layers).named(label(place, where)), group, place, budgets.get(group))
        for group, where, layers in sets(config, L)
        for place in config.positions
    )
    return (Arm(sinkjax.compose(label=NONE), NONE), *alone)


def controls(config: SelfOnly, L: int) -> tuple[Arm, ...]:
    """No edit, and for each budget of layers as many links taken away as a query at a random position loses, but at random.

    They are the links of one random key to as many random later queries; the place is that position.
    """
    rng = intervals.generator(config.seed, "kiya/self controls")
    found = [Arm(sinkjax.compose(label=NONE), NONE)]
    for budget in sorted({1, L}):
        for draw in range(config.controls):
            place = int(rng.choice(config.positions))
            key = int(rng.integers(config.length - place))
            queries = sorted(rng.choice(np.arange(key + 1, config.length), place, replace=False).tolist())
            layers = sorted(rng.choice(L, budget, replace=False).tolist())
            edit = sinkjax.edit(Site.LOGITS, "set", -np.inf, queries=queries, keys=key, layers=layers, relation="others")
            where = ALL if budget == L else f"layer {layers[0]}"
            found.append(Arm(edit.named(f"control {draw}: {place} links to key {key} in {where}"), CONTROL, place, budget))
    return tuple(found)


def drawn(config: SelfOnly, L: int) -> tuple[Arm, ...]:
    """The arms of the attention maps: no edit, and the shown position alone in the middle set of first layers and in all."""
    first = [where for group, where, _ in sets(config, L) if group == FIRST]
    wanted = {label(config.shown, where) for where in (*first[len(first) // 2 :][:1], ALL)}
    return tuple(arm for arm in arms(config, L) if arm.group == NONE or arm.edit.label in wanted)


def label(position: int, where: str) -> str:
    """The label of an arm."""
    return f"position {position} in {where}"


def section(config: SelfOnly, stores: Mapping[str, xarray.Dataset]) -> Section:
    """The summary over prompts, the figures, and what they say in words."""
    data, random, maps = (stores[name].load() for name in STORES)
    L = data.sizes["layer"]
    sweep, drawn_at_random = Measured(data, arms(config, L)), Measured(random, (*controls(config, L), *self_other.arms(config)))
    places = {arm.edit.label: [arm.place] for arm in (*sweep.arms, *drawn_at_random.arms) if arm.place is not None}
    places[NONE] = list(config.positions)
    measured = measures.at_places(SINK, places, sinks), measures.at_places(ACTIVATION, places, activations)
    on_first = Measure(ON_FIRST, lambda dataset: sinks(dataset)[..., 0])
    every = (*measured, on_first)
    table = summarise(sweep, every, config.seed, drawn_at_random)
    shown = (NONE, *(label(config.shown, where) for where in featured(config, L)))
    other = self_other.compare(config, sweep, drawn_at_random, measured)
    found = Results(
        config=config,
        sweep=sweep,
        maps=maps,
        table=table,
        sets=by_group(config, L),
        curves=featured(config, L),
        measured=measured,
        other=(other.sinks, other.activations),
        unedited={
            name: values(data)[0][:, list(config.positions)].mean(axis=0)
            for name, values in ((SINK, sinks), (ACTIVATION, activations))
        },
    )
    return Section(
        experiment="kiya/self",
        title="A query that attends to itself alone",
        claim=CLAIM,
        findings=(*_findings(config, sweep, table, every), other.finding),
        rows=(*table.values(), *other.rows),
        featured=shown,
        drawings=drawings(found),
        notes=_notes(config, data.sizes["prompt"], random.sizes["prompt"]),
        provenance=results.provenance(data),
        claims=(*_claims(config, L, table), other.claim),
        views=(
            views.attention("kiya-self-attention", maps),
            views.activation("kiya-self-activation", data, {arm: arm for arm in shown}),
        ),
    )


def by_group(config: SelfOnly, L: int) -> dict[str, list[str]]:
    """Group -> the names of its sets of layers, in the order of the arms."""
    groups: dict[str, list[str]] = {}
    for group, where, _ in sets(config, L):
        groups.setdefault(group, []).append(where)
    return groups


def featured(config: SelfOnly, L: int) -> list[str]:
    """The sets of layers of the short table and of the curves by depth: layer 0, every second set of first layers, all."""
    first = [where for group, where, _ in sets(config, L) if group == FIRST]
    return ["layer 0", *first[1::2], ALL]


def sinks(data: xarray.Dataset) -> NDArray:
    """Heads of all layers that sink on each key, in per cent: float[edit, prompt, key]."""
    return 100 * data["sinking_heads"].mean("layer").values


def activations(data: xarray.Dataset) -> NDArray:
    """Largest |h| over depths and dims at each position: float[edit, prompt, position]."""
    return data["resid_max"].max("depth", skipna=False).values


def _findings(config: SelfOnly, sweep: Measured, table: Table, measured: Sequence[Measure]) -> tuple[str, ...]:
    """What the numbers say, in sentences. measured: sinks and activation at the position, and sinks on key 0."""
    L, P = sweep.data.sizes["layer"], len(config.positions)
    sink, activation = (
        {where: _over(config, table, where, name) for _, where, _ in sets(config, L)} for name in (SINK, ACTIVATION)
    )
    none = {name: table[NONE, name].value for name in (SINK, ACTIVATION, ON_FIRST)}
    alone = [where for group, where, _ in sets(config, L) if group == SINGLE]
    best = max(alone, key=lambda where: sink[where])
    joint = [where for group, where, _ in sets(config, L) if group != SINGLE or where == "layer 0"]
    growth = "; ".join(f"{where}: {number(sink[where])} %, {number(activation[where])}" for where in joint)
    everywhere = _values(config, table, ALL, SINK)
    inside = [number for number, arm in enumerate(sweep.arms) if arm.group == ALL]
    whole = [interval(intervals.interval(measure.of(sweep.data)[inside].mean(axis=0), seed=config.seed)) for measure in measured]
    placed = [where for where in alone if 2 * _placed(config, table, where, SINK) > P]
    return (
        f"Without an edit, {interval(none[ON_FIRST])} % of all heads sink on key 0 and {interval(none[SINK])} % on one of the {P}"
        f" positions (on average), where the largest |h| is {interval(none[ACTIVATION])}.",
        f"With the query alone in all layers, {whole[0]} % of heads sink on its key (mean over positions; by position"
        f" {number(min(everywhere))} to {number(max(everywhere))} %), while {whole[2]} % still sink on key 0; the largest |h| at"
        f" the position is {whole[1]}.",
        f"By set of layers (heads that sink on the position, largest |h| there; mean over positions): {growth}.",
        f"Of the single layers, {best} does most ({number(sink[best])} %); layers that place a sink above every control at most"
        f" positions: {', '.join(placed) or 'none'}.",
        _together(config, sweep, measured),
    )


def _together(config: SelfOnly, sweep: Measured, measured: Sequence[Measure]) -> str:
    """Whether sinks and massive activations come together, over edits and prompts."""
    from scipy.stats import spearmanr

    sink, activation = measured[0].of(sweep.data)[1:].ravel(), measured[1].of(sweep.data)[1:]
    before = measured[1].against
    factor = (activation / before(sweep.data)[1:]).ravel() if before else activation.ravel()
    many, massive = sink >= 10, factor >= GROWN
    if not many.any() or not massive.any():
        return f"No edit brought a sink of 10 % of the heads, or a |h| of {GROWN} times its unedited size, to a position."
    return (
        f"Of the {many.sum():,} runs (an edit on a prompt) in which at least 10 % of heads sink on the position,"
        f" {massive[many].mean():.0%} have a |h| there of at least {GROWN} times its unedited size; of the other"
        f" {(~many).sum():,} runs, {massive[~many].mean():.1%}. Spearman correlation of the sink and that factor over all runs:"
        f" {spearmanr(sink, factor).statistic:.2f}."
    )


def _values(config: SelfOnly, table: Table, where: str, measure: str) -> list[float]:
    return [table[label(place, where), measure].value.mean or 0 for place in config.positions]


def _over(config: SelfOnly, table: Table, where: str, measure: str) -> float:
    return float(np.mean(_values(config, table, where, measure)))


def _placed(config: SelfOnly, table: Table, where: str, measure: str, least: float = 0) -> int:
    """At how many positions an effect has an interval above 0 and lies above every control, if any, and the value is `least`."""
    rows = [table[label(place, where), measure] for place in config.positions]
    return sum(above(row.effect, 0) and row.percentile in (None, 100) and (row.value.mean or 0) >= least for row in rows)


def _claims(config: SelfOnly, L: int, table: Table) -> tuple[Claim, ...]:
    """The paper's statements, judged by the number of positions at which they hold."""
    P = len(config.positions)
    first = table[NONE, ON_FIRST].value.mean or 0
    third = [where for group, where, layers in sets(config, L) if group == FIRST and len(layers) <= max(L / 3, 2)]
    early = third[-1] if third else "layer 0"

    def judge(statement: str, where: str, measure: str, least: float, what: str) -> Claim:
        count = _placed(config, table, where, measure, least)
        return Claim(
            statement,
            verdict(2 * count > P),
            f"At {count} of {P} positions; {measure}: {number(_over(config, table, where, measure))} on average over positions,"
            f" {interval(table[NONE, measure].value)} without an edit. Rule: at more than half of the positions an effect with an"
            f" interval above 0 and above every control, if it has any, and {what}.",
        )

    half = f"at least half of the {number(first)} % that sink on key 0 without an edit"
    grown = GROWN * (table[NONE, ACTIVATION].value.mean or 0)
    moved = sum(
        (table[label(place, ALL), SINK].value.mean or 0) > (table[label(place, ALL), ON_FIRST].value.mean or 0)
        for place in config.positions
    )
    return (
        judge("Alone in all layers, a query gets a sink (Fig. 5).", ALL, SINK, first / 2, half),
        judge(
            "The massive activation comes with it (Fig. 5).",
            ALL,
            ACTIVATION,
            grown,
            f"at least {number(grown)}, {GROWN} times the unedited size",
        ),
        Claim(
            "The sink moves there, away from the first token (Fig. 5).",
            verdict(2 * moved > P),
            f"More heads sink on the position than on key 0 at {moved} of {P} positions; on average"
            f" {number(_over(config, table, ALL, SINK))} % against {number(_over(config, table, ALL, ON_FIRST))} %; without an"
            f" edit {number(first)} % sink on key 0. Rule: more at more than half of the positions.",
        ),
        judge(f"An edit in the early layers is enough (Fig. 9, conclusion): {early}.", early, SINK, first / 2, half),
    )


def _notes(config: SelfOnly, N: int, control_prompts: int) -> tuple[str, ...]:
    """How the numbers were made."""
    return (
        f"Values are means over {N} prompts with bootstrap 95 % intervals over prompts (BCa, 2,000 resamples); effects are mean"
        " differences from no edit at the same position, paired by prompt. The line of no edit is the mean over the positions.",
        f"A head sinks on a key if its attention to it, averaged over all later queries, is above {config.eps} (Gu et al. 2025,"
        " but without the query at the key itself, whose attention the edit sets to 1). Shares are of all heads of all layers.",
        f"Controls: {config.controls} random draws for each budget of layers (one, all) on {control_prompts} prompts. As many"
        " links as a query at a random position loses are taken from one random key to random later queries instead, and that"
        " position is read. A percentile says how many of them have a smaller effect. Edits of first layers have no controls.",
    )
