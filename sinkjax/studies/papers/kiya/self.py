"""kiya/self: a query attends to itself alone, at various positions and in various layers (Figs. 5 and 9).

Controls remove as many links at random. Whether the query must see itself is tested by one random other key in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis.intervals import generator
from sinkjax.config_files.checks import MIN_QUERIES, at_least, positions_seen, refuse
from sinkjax.studies.papers.kiya._masks import ALL, FIRST, ONSET, SINGLE, SOME, layer_sets, onset, placed_measures, zero_added
from sinkjax.studies.papers.kiya._readout import FIRST_LAYERS, attention_there, mean_attention, received
from sinkjax.studies.quantities import Label, chosen
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

    def links(budget: int) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
        place = int(rng.choice(config.positions))
        key = int(rng.integers(config.length - place))
        queries = sorted(rng.choice(np.arange(key + 1, config.length), place, replace=False).tolist())
        return place, key, tuple(queries), tuple(sorted(rng.choice(L, budget, replace=False).tolist()))

    for budget in sorted({1, L}):
        drawn = st.without_replacement(config.controls, partial(links, budget))
        for draw, (place, key, queries, layers) in enumerate(drawn):
            edit = sinkjax.edit("logits", "set", -np.inf, queries=queries, keys=key, layers=layers, relation="others")
            name = f"control {draw}: {place} links to key {key} in {ALL if budget == L else f'layer {layers[0]}'}"
            yield st.Condition(edit.named(name), LINKS if budget == L else st.CONTROL, budget=budget, at=(place,))
    others = generator(config.seed, "kiya/self other keys")

    def other() -> tuple[int, int]:
        place = int(others.choice(config.positions))
        return place, int(others.integers(place))

    for draw, (place, seen) in enumerate(st.without_replacement(config.controls, other)):
        edit = sinkjax.edit("logits", "set", -np.inf, queries=place, keys=[key for key in range(place + 1) if key != seen])
        yield st.Condition(edit.named(f"draw {draw}: position {place} sees key {seen} in {ALL}"), OTHER, at=(place,))


def probe(config: SelfOnly) -> sinkjax.Probe:
    from sinkjax.probes.statistics import sinking_heads

    return sinkjax.Probe(resid_max=True, extra=(sinking_heads(config.eps), mean_attention()))


def measures(config: SelfOnly) -> tuple[st.Measure, ...]:
    note = f"""A head sinks on a key if its attention to it, averaged over all later queries, is above {config.eps:g} (Gu et al.
        2025, but without the query at the key itself, whose attention the edit sets to 1). Shares are of all heads."""
    return (*placed_measures("the position", note), attention_there("the position"))


def over_positions(config: SelfOnly, measure: st.Measure, where: str) -> st.Quantity:
    """A measure, averaged over the positions, with the query alone in a set of layers."""
    labels = everywhere(config, where)
    return st.average(measure, st.Pool(f"alone in {where}, mean over positions", lambda condition: condition.label in labels))


def gain(config: SelfOnly, measure: st.Measure, where: Label) -> st.Quantity:
    """The mean effect over the positions, ranked among the controls of a single layer or, of more, of all layers."""

    def of(results: st.Results) -> st.Estimate:
        found = chosen(where, results)
        rows = [results.labels().index(at) for at in everywhere(config, found)]
        effects = (results.values(measure) - results.baseline(measure))[rows].mean(axis=0)
        random = results.values(measure, CONTROLS) - results.baseline(measure, CONTROLS)
        budget = 1 if found in layer_sets(results.architecture.layers, ())[SINGLE] else results.architecture.layers
        drawn = [entry.budget == budget for entry in results.conditions(CONTROLS)]
        rank = st.Rank.among(effects[: random.shape[1]].mean(), random[drawn].mean(axis=1))
        return st.Estimate(f"effect on {measure.name} (alone in {found})", results.interval(effects), measure.unit, True, rank)

    return st.Quantity(f"the mean effect over positions on {measure.name}", of)


def at_most_positions(config: SelfOnly, where: Label, rule: Callable[[Label], st.Rule], words: str) -> st.Rule:
    """A rule on each position holds at more than half of them."""

    def at(place: int) -> Label:
        return label(place, where) if isinstance(where, str) else lambda results: label(place, where(results))

    return st.most_of([rule(at(place)) for place in config.positions], "positions", words)


def placed(config: SelfOnly, where: Label, measure: st.Measure, least: st.Quantity) -> st.Rule:
    """The edit raises a measure to a least size at most positions, and on their mean by more than every control does."""
    words = f"the interval of the effect on {measure.name} lies above 0, and that of its value above {least.name}, in pairs"

    def there(at: Label) -> st.Rule:
        return st.all_of(st.above(st.effect(measure, at)), st.at_least(st.value(measure, at), least))

    return st.all_of(at_most_positions(config, where, there, words), st.above_controls(gain(config, measure, where)))


def early(results: st.Results) -> str:
    """The largest set of first layers up to that in which the sink forms."""
    config, L = results.config, results.architecture.layers
    last = onset(results.data["sinking_heads"].values[0, ..., 0], 0)
    firsts = layer_sets(L, config.first_layers)[FIRST].items()
    return ["layer 0", *(where for where, layers in firsts if len(layers) <= last + 1)][-1]


def claims(config: SelfOnly, architecture: Any) -> Iterator[st.Claim]:
    """A statement holds if it holds at more than half of the positions, and for their mean beyond every control."""
    sink, size, on_first, seen = measures(config)
    some = st.above(st.value(on_first, st.NO_EDIT), SOME)
    half = st.value(on_first, st.NO_EDIT).times(0.5, "half of the heads that sink on key 0 without an edit (%)")
    grown = st.value(size, st.NO_EDIT).times(GROWN, f"{GROWN} times the largest |h| without an edit")

    def beside(measure: st.Measure, least: st.Quantity) -> tuple[st.Quantity, ...]:
        return over_positions(config, measure, ALL), st.value(measure, st.NO_EDIT), least

    yield st.Claim(
        "Alone in all layers, a query gets a sink.",
        placed(config, ALL, sink, half),
        given=some,
        source="Kiya et al. 2026, Fig. 5",
        also=(*beside(sink, half), over_positions(config, seen, ALL)),
    )
    yield st.Claim(
        "The massive activation comes with it.",
        placed(config, ALL, size, grown),
        given=some,
        source="Kiya et al. 2026, Fig. 5",
        also=beside(size, grown),
    )
    words = "more heads sink on the position than on key 0, by the interval of the paired difference"
    more = at_most_positions(config, ALL, lambda at: st.above(st.value(sink, at), st.value(on_first, at)), words)
    yield st.Claim(
        "The sink moves there, away from the first token.",
        st.all_of(more, st.above_controls(gain(config, sink, ALL))),
        given=some,
        source="Kiya et al. 2026, Fig. 5",
        also=(*(over_positions(config, measure, ALL) for measure in (sink, on_first)), st.value(on_first, st.NO_EDIT)),
    )
    yield st.Claim(
        "An edit in the early layers is enough: in those up to the layer in which the sink forms.",
        placed(config, early, sink, half),
        given=some,
        source="Kiya et al. 2026, Fig. 9, conclusion",
        also=(half,),
    )
    alone, other, _ = compared(config)
    twice = st.average(sink, alone).times(0.5, "half of that for the query alone with itself")
    yield st.Claim(
        "The cause is that the token attends to itself: one other key in its place does less than half.",
        st.all_of(st.above(st.contrast(sink, alone, other, "difference of the two")), st.below(st.average(sink, other), twice)),
        given=st.above(st.average(sink, alone), SOME),
        source="Kiya et al. 2026, property 3",
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
    sink, size, _, seen = measures(config)
    sets = layer_sets(architecture.layers, config.first_layers)
    by_position = [st.value(sink, at) for at in everywhere(config, ALL)]
    yield from (st.smallest_of(by_position, "smallest at any position"), st.largest_of(by_position, "largest at any position"))
    for where in ("layer 0", *sets[FIRST]):
        yield from (over_positions(config, measure, where) for measure in (sink, size))
    yield st.largest_of([over_positions(config, sink, where) for where in sets[SINGLE]], "largest of the single layers")

    def raised(where: str) -> st.Rule:
        rule = at_most_positions(config, where, lambda at: st.above(st.effect(sink, at)), "the effect lies above 0")
        return st.all_of(rule, st.above_controls(gain(config, sink, where)))

    rules = {where: raised(where) for where in sets[SINGLE]}
    yield st.number_of(rules, "single layers that place a sink at most positions, above every control")
    yield from together(sink, size)
    _, other, links = compared(config)
    yield from (st.average(size, other), st.average(sink, links))
    yield from (over_positions(config, seen, where) for where in (ALL, "layer 0"))  # Fig. 5
    for layer in range(1, min(FIRST_LAYERS, architecture.layers)):  # Fig. 9
        name = f"attention to the position in layer {layer}, mean over heads (%) (alone in {ALL}, mean over positions)"
        yield st.quantity(name, partial(in_layer, layer))


def in_layer(layer: int, results: st.Results) -> NDArray:
    """The readout in one layer, mean over positions: float[prompt]."""
    rows = [results.labels().index(at) for at in everywhere(results.config, ALL)]
    return np.asarray(results.read(received(results.data, layer))[rows].mean(axis=0))


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
    (sink, size, *_), L = measures(config), architecture.layers
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
        that position. The controls of an edit of several layers remove the links in all layers.""",
        f"""The sink forms in the first layer in which more than {ONSET:.0%} of the heads sink on key 0 without an edit, mean over
        prompts.""",
    ),
)
