"""kiya/self: a query attends to itself alone, at various positions and in various layers (Figs. 5 and 9).

Controls remove as many links at random. Whether the query must see itself is tested by one random other key in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis.intervals import generator
from sinkjax.config_files.checks import MIN_QUERIES, at_least, positions_seen, refuse
from sinkjax.studies.papers.kiya._masks import ALL, FIRST, SINGLE, layer_sets, placed_measures, zero_added
from sinkjax.studies.specs import CONTROLS, SWEEP

LINKS, OTHER = "random links, all layers", "another key, all layers"
MANY, GROWN = 10, 10  # per cent of heads that count as a sink; times its unedited size from which an activation is massive


@dataclass(frozen=True, kw_only=True)
class SelfOnly(st.ControlledSinks, st.Mapped):
    """The query at one position attends to itself alone: over positions, single layers, first layers and all (Figs. 5, 9)."""

    prompts: int = 16
    """passages of text"""
    positions: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 30, 36, 42, 48)
    """where the query is, one condition for each set of layers"""
    first_layers: tuple[int, ...] = (2, 3, 6, 10, 12, 15)
    """numbers n of first layers that are edited together; those that a model has no more of than n are left out"""
    shown: int = 8
    """the position of which attention maps are drawn"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, length=MIN_QUERIES + 2)
        positions_seen(self, self.length - MIN_QUERIES - 1, "later queries")
        for count in self.first_layers:
            refuse(count < 2, f"first_layers has {count}, but single layers are edited anyway; the smallest is 2")


def label(position: int, where: str) -> str:
    return f"position {position} in {where}"


def everywhere(config: SelfOnly, where: str) -> list[str]:
    """The labels of all positions in one set of layers."""
    return [label(place, where) for place in config.positions]


def conditions(config: SelfOnly, architecture: Any) -> Iterator[st.Condition]:
    """No edit, then for each set of layers every position; a budget is a number of layers."""
    yield st.no_edit(at=config.positions)
    for series, sets in layer_sets(architecture.layers, config.first_layers).items():
        for where, layers in sets.items():
            for place in config.positions:
                edit = sinkjax.attend_self(place, layers=layers).named(label(place, where))
                yield st.Condition(edit, series, place, None if series == FIRST else len(layers), at=(place,))


def at_random(config: SelfOnly, architecture: Any) -> Iterator[st.Condition]:
    """Random links removed, as many as a query loses, and queries that see one random earlier key instead of themselves."""
    L, rng = architecture.layers, generator(config.seed, "kiya/self controls")
    yield st.no_edit(at=config.positions)
    for budget in sorted({1, L}):
        for draw in range(config.controls):
            place = int(rng.choice(config.positions))
            key = int(rng.integers(config.length - place))
            queries = sorted(rng.choice(np.arange(key + 1, config.length), place, replace=False).tolist())
            layers = sorted(rng.choice(L, budget, replace=False).tolist())
            edit = sinkjax.edit("logits", "set", -np.inf, queries=queries, keys=key, layers=layers, relation="others")
            name = f"control {draw}: {place} links to key {key} in {ALL if budget == L else f'layer {layers[0]}'}"
            yield st.Condition(edit.named(name), LINKS if budget == L else st.CONTROL, budget=budget, at=(place,))
    rng = generator(config.seed, "kiya/self other keys")
    for draw in range(config.controls):
        place = int(rng.choice(config.positions))
        seen = int(rng.integers(place))
        edit = sinkjax.edit("logits", "set", -np.inf, queries=place, keys=[key for key in range(place + 1) if key != seen])
        yield st.Condition(edit.named(f"draw {draw}: position {place} sees key {seen} in {ALL}"), OTHER, at=(place,))


def probe(config: SelfOnly) -> sinkjax.Probe:
    from sinkjax.probes.statistics import sinking_heads

    return sinkjax.Probe(resid_max=True, extra=(sinking_heads(config.eps),))


def measures(config: SelfOnly) -> tuple[st.Measure, ...]:
    note = f"""A head sinks on a key if its attention to it, averaged over all later queries, is above {config.eps:g} (Gu et al.
        2025, but without the query at the key itself, whose attention the edit sets to 1). Shares are of all heads."""
    return placed_measures("the position", note)


def over_positions(config: SelfOnly, measure: st.Measure, where: str) -> st.Quantity:
    """A measure, averaged over the positions, with the query alone in a set of layers."""
    labels = everywhere(config, where)
    return st.average(measure, st.Pool(f"alone in {where}, mean over positions", lambda condition: condition.label in labels))


def claims(config: SelfOnly, architecture: Any) -> Iterator[st.Claim]:
    """A statement holds if it holds at more than half of the positions."""
    sink, size, on_first = measures(config)
    half = st.value(on_first, st.NO_EDIT).times(0.5, "half of the heads that sink on key 0 without an edit (%)")
    grown = st.value(size, st.NO_EDIT).times(GROWN, f"{GROWN} times the largest |h| without an edit")
    firsts = layer_sets(architecture.layers, config.first_layers)[FIRST].items()
    early = ["layer 0", *(where for where, layers in firsts if len(layers) <= max(architecture.layers / 3, 2))][-1]

    def most(statement: str, where: str, measure: st.Measure, least: st.Quantity) -> st.Claim:
        rules = [st.all_of(st.raised(measure, at), st.at_least(st.value(measure, at), least)) for at in everywhere(config, where)]
        words = (
            f"the effect on {measure.name} has an interval above 0 and lies above every matched control (where it has any), and"
        )
        words += f" the mean is at least {least.name}"
        beside = (over_positions(config, measure, where), st.value(measure, st.NO_EDIT), least)
        return st.Claim(statement, st.most_of(rules, "positions", words), also=beside)

    yield most("Alone in all layers, a query gets a sink (Fig. 5).", ALL, sink, half)
    yield most("The massive activation comes with it (Fig. 5).", ALL, size, grown)
    moved = [st.more_than(st.value(sink, at), st.value(on_first, at)) for at in everywhere(config, ALL)]
    yield st.Claim(
        "The sink moves there, away from the first token (Fig. 5).",
        st.most_of(moved, "positions", "more heads sink on the position than on key 0"),
        also=(*(over_positions(config, measure, ALL) for measure in (sink, on_first)), st.value(on_first, st.NO_EDIT)),
    )
    yield most(f"An edit in the early layers is enough (Fig. 9, conclusion): {early}.", early, sink, half)
    alone, other, _ = compared(config)
    twice = st.average(sink, alone).times(0.5, "half of that for the query alone with itself")
    more = st.contrast(sink, alone, other, "difference of the two")
    yield st.Claim(
        "The cause is that the token attends to itself (property 3): one other key in its place does less than half.",
        st.all_of(st.above(more), st.less_than(st.average(sink, other), twice)),
        also=(st.average(sink, alone),),
    )


def compared(config: SelfOnly) -> tuple[st.Pool, ...]:
    """In all layers and on the prompts of the controls: the query alone, with one other key instead, and random links removed."""
    return (
        st.Pool("alone with itself, prompts of the controls", lambda entry: entry.series == ALL, SWEEP, config.control_prompts),
        st.Pool("alone with one random other key", lambda entry: entry.series == OTHER, CONTROLS),
        st.Pool("as many random links removed", lambda entry: entry.series == LINKS, CONTROLS),
    )


def findings(config: SelfOnly, architecture: Any) -> Iterator[st.Quantity]:
    sink, size, _ = measures(config)
    sets = layer_sets(architecture.layers, config.first_layers)
    by_position = [st.value(sink, at) for at in everywhere(config, ALL)]
    yield from (st.smallest_of(by_position, "smallest at any position"), st.largest_of(by_position, "largest at any position"))
    for where in ("layer 0", *sets[FIRST]):
        yield from (over_positions(config, measure, where) for measure in (sink, size))
    yield st.largest_of([over_positions(config, sink, where) for where in sets[SINGLE]], "largest of the single layers")
    rules = {
        where: st.most_of([st.raised(sink, at) for at in everywhere(config, where)], "positions", "") for where in sets[SINGLE]
    }
    yield st.number_of(rules, "single layers that place a sink at most positions, above every control")
    yield from together(sink, size)
    _, other, links = compared(config)
    yield from (st.average(size, other), st.average(sink, links))


def together(sink: st.Measure, size: st.Measure) -> Iterator[st.Quantity]:
    """Whether sinks and massive activations come together, over all runs: an edit on a prompt."""

    def number(which: int, results: st.Results) -> float:
        from scipy.stats import spearmanr

        found, growth = results.values(sink)[1:].ravel(), (results.values(size) / results.baseline(size))[1:].ravel()
        many, massive = found >= MANY, growth >= GROWN
        shares = (100 * massive[runs].sum() / (runs.sum() or np.nan) for runs in (many, ~many))
        return (many.sum(), *shares, spearmanr(found, growth).statistic if np.ptp(found) else np.nan)[which]

    names = (
        f"runs (an edit on a prompt) in which at least {MANY} % of heads sink on the position",
        f"of these, runs with |h| at least {GROWN} times its unedited size there (%)",
        f"of the other runs, those with |h| at least {GROWN} times its unedited size there (%)",
        "Spearman correlation of the sink and that factor over runs",
    )
    yield from (st.quantity(name, partial(number, which)) for which, name in enumerate(names))


def drawn_sets(results: st.Results) -> list[str]:
    """The sets of layers of the short table and of the curves: layer 0, every second set of first layers, all."""
    sets = layer_sets(results.architecture.layers, results.config.first_layers)
    return ["layer 0", *[*sets[FIRST]][1::2], ALL]


def figures(config: SelfOnly, architecture: Any) -> Iterator[st.Figure]:
    (sink, size, _), L = measures(config), architecture.layers
    sets = layer_sets(L, config.first_layers)
    single = {str(layer): everywhere(config, f"layer {layer}") for layer in range(L)}
    several = {f"0–{layers[-1]}": everywhere(config, where) for where, layers in (sets[FIRST] | sets[ALL]).items()}
    yield st.attention_maps("attention-maps", config.drawn_layers(L), lambda label: label.replace(" in ", " alone\nin "))
    yield st.heat_maps(
        "sink-by-position-and-layers",
        "position",
        [str(place) for place in config.positions],
        [st.HeatMap("heads that sink on\nthe position (%)", sink), st.HeatMap("largest |h| at\nthe position", size, log=True)],
        [
            st.HeatColumn("alone in one layer", "edited layer (0-based)", single),
            st.HeatColumn("in several", "edited layers", several, baseline=True),
        ],
        """Heads that sink on the position whose query sees only itself (top) and the largest |h| there (bottom), by edited
        layers. Means over prompts; the column none is the unedited run.""",
    )
    yield st.curves(
        "by-depth",
        "layer (0-based)",
        by_depth,
        f"Sink (top) and activation (bottom) at the edited position, mean over the {len(config.positions)} positions.",
        legend_above=True,
    )
    yield st.against(
        "sink-against-activation",
        sink,
        size,
        {series: (SWEEP, series) for series in (SINGLE, FIRST, ALL)} | {f"one other key, {ALL}": (CONTROLS, OTHER)},
        """Each edit: heads that sink on the position whose query sees only itself, or only one random other key, against the
        largest |h| there, means over prompts.""",
        log_y=True,
    )


def by_depth(results: st.Results) -> list[list[Any]]:
    """Sink and activation at the edited position along the layers, without an edit and for some sets of edited layers."""
    labels, curves = results.labels(), {st.NO_EDIT: [0]}
    for where in drawn_sets(results):
        curves[f"alone in {where}"] = [labels.index(at) for at in everywhere(results.config, where)]

    def row(ylabel: str, values: NDArray, log: bool = False) -> list[Any]:
        there = results.read(values)
        return [results.panel("", ylabel, {name: there[rows].mean(axis=0) for name, rows in curves.items()}, log=log)]

    return [
        row("heads of the layer that\nsink on the position (%)", 100 * results.data["sinking_heads"].values),
        row("largest |h| after the layer\nat the position", results.data["resid_max"].values[:, :, 1:], log=True),
    ]


def shown(config: SelfOnly, architecture: Any) -> st.Shown:
    """No edit, and the shown position alone in the middle set of first layers and in all."""
    firsts = list(layer_sets(architecture.layers, config.first_layers)[FIRST])
    labels = (label(config.shown, where) for where in (*firsts[len(firsts) // 2 :][:1], ALL))
    return st.Shown((st.NO_EDIT, *labels), config.drawn_layers(architecture.layers), start=config.shown + 1)


STUDY = st.Study(
    name="kiya/self",
    config=SelfOnly,
    title="A query that attends to itself alone",
    question="""Kiya et al. 2026: where the query at a chosen position attends to itself alone, as the first token always does,
        the sink and the massive activation move to that position (Figs. 5 and 9).""",
    probe=probe,
    conditions=conditions,
    controls=(st.Sweep(CONTROLS, at_random, lambda config: measures(config)[:2], prompts=st.control_prompts),),
    measures=measures,
    rows=lambda results: [row for row in results.table_of(CONTROLS).values() if row.series == OTHER],
    claims=claims,
    findings=findings,
    featured=lambda results: [st.NO_EDIT, *(label(results.config.shown, where) for where in drawn_sets(results))],
    figures=figures,
    noop=lambda config, model: zero_added(f"of query {config.shown} towards other keys", queries=config.shown),
    shown=shown,
    notes=lambda config, results: (
        """A condition is compared with no edit at its own position; the row of no edit is the mean over the positions. A control
        removes as many links as a query at a random position loses, from one random key to random later queries, and is read at
        that position. Edits of first layers have no controls.""",
    ),
)
