"""kiya/self: a query attends to itself alone, at various positions and in various layers (Figs. 5 and 9).

Controls remove as many links at random in the same layers. Whether the query must see itself is tested by one random other key
in its place.
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
from sinkjax.studies.papers.kiya._masks import (
    ALL,
    FIRST,
    ONSET,
    SINGLE,
    SOME,
    UP_TO_SINK,
    before_the_last,
    layer_sets,
    placed_measures,
    sink_forms,
    zero_added,
)
from sinkjax.studies.papers.kiya._readout import FIRST_LAYERS, attention_there, mean_attention, received
from sinkjax.studies.quantities import Label
from sinkjax.studies.specs import CONTROLS, SWEEP

OTHER = "another key, all layers"
MANY, GROWN = 10, 10  # per cent of heads that count as a sink; times its unedited size from which an activation is massive


@dataclass(frozen=True, kw_only=True)
class SelfOnly(st.ControlledSinks, st.Mapped):
    """The query at one position attends to itself alone: over positions, single layers, first layers and all (Figs. 5, 9)."""

    prompts: int = 16
    """passages of text"""
    positions: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 30, 36, 42, 48)
    """where the query is, one condition for each set of layers"""
    first_layers: tuple[int, ...] = (2, 3, 6, 10, 12, 15)
    """numbers n of first layers that are edited together; values of n that are not below the model's number of layers are
    skipped"""
    shown: int = 8
    """the one of these positions whose maps are drawn, and whose effects are ranked among random controls"""

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


def edited_layers(config: SelfOnly, architecture: Any, forms: int) -> dict[str, dict[str, range]]:
    """Every set of layers in which the query is alone, by series. forms: the layer in which the sink forms."""
    return layer_sets(architecture.layers, config.first_layers) | {UP_TO_SINK: {UP_TO_SINK: range(forms + 1)}}


def conditions(config: SelfOnly, architecture: Any, forms: int) -> Iterator[st.Condition]:
    """No edit; for each set of layers every position; and at every position one random earlier key in place of the query itself.

    A budget is a set of layers, at the position that has controls.
    """
    yield st.no_edit(at=config.positions)
    for series, sets in edited_layers(config, architecture, forms).items():
        for where, layers in sets.items():
            for place in config.positions:
                edit = sinkjax.attend_self(place, layers=layers).named(label(place, where))
                yield st.Condition(edit, series, place, where if place == config.shown else None, at=(place,))
    rng = generator(config.seed, "kiya/self other keys")
    for place in config.positions:
        seen = int(rng.integers(place))
        edit = sinkjax.edit("logits", "set", -np.inf, queries=place, keys=[key for key in range(place + 1) if key != seen])
        yield st.Condition(edit.named(f"position {place} sees key {seen} in {ALL}"), OTHER, place, at=(place,))


def random_links(config: SelfOnly, architecture: Any, forms: int) -> Iterator[st.Condition]:
    """In each set of layers, as many links removed as the query at the shown position loses: later queries to another key."""
    rng, place = generator(config.seed, "kiya/self controls"), config.shown
    keys = [key for key in range(config.length - place) if key != place]

    def links() -> tuple[int, tuple[int, ...]]:
        key = int(rng.choice(keys))
        return key, tuple(sorted(rng.choice(np.arange(key + 1, config.length), place, replace=False).tolist()))

    for sets in edited_layers(config, architecture, forms).values():
        for where, layers in sets.items():
            for draw, (key, queries) in enumerate(st.without_replacement(config.controls, links)):
                edit = sinkjax.edit("logits", "set", -np.inf, queries=queries, keys=key, layers=layers, relation="others")
                named = edit.named(f"control {draw}: {place} links to key {key} in {where}")
                yield st.Condition(named, st.CONTROL, place, budget=where, at=(place,))


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


def alone_at(place: int, where: Label) -> Label:
    """The query at one position alone in a set of layers, which may be found from the results."""
    return label(place, where) if isinstance(where, str) else lambda results: label(place, where(results))


def beyond_controls(config: SelfOnly, where: Label, measure: st.Measure) -> st.Rule:
    """The effect at the shown position, which the config states beforehand, is larger than those of its controls."""
    name = f"effect on {measure.name} at position {config.shown}"
    return st.above_controls(st.effect(measure, alone_at(config.shown, where), name))


def at_most_positions(config: SelfOnly, where: Label, rule: Callable[[Label], st.Rule], criterion: str) -> st.Rule:
    """A rule on each position holds at more than half of them."""
    return st.most_of([rule(alone_at(place, where)) for place in config.positions], "positions", criterion)


def placed(config: SelfOnly, where: Label, measure: st.Measure, least: st.Quantity) -> st.Rule:
    """The edit raises a measure to a least size at most positions, and at the shown one by more than every control does."""
    criterion = f"the interval of the effect on {measure.name} lies above 0, and that of its value above {least.name}, in pairs"

    def there(at: Label) -> st.Rule:
        return st.all_of(st.above(st.effect(measure, at)), st.at_least(st.value(measure, at), least))

    return st.all_of(at_most_positions(config, where, there, criterion), beyond_controls(config, where, measure))


def early(results: st.Results) -> str:
    """The layers up to that in which the sink forms, if there are later ones."""
    few = results.size("prompt", CONTROLS)
    return before_the_last(results.data["sinking_heads"].values[0, :few, :, 0], 0)


def claims(config: SelfOnly, architecture: Any) -> Iterator[st.Claim]:
    """A statement holds if it holds at more than half of the positions, and at the shown one beyond every control."""
    sink, size, on_first, seen = measures(config)
    some = st.above(st.value(on_first, st.NO_EDIT), SOME)
    half = st.value(on_first, st.NO_EDIT).times(0.5, "half of the heads that sink on key 0 without an edit (%)")
    grown = st.value(size, st.NO_EDIT).times(GROWN, f"{GROWN} times the largest |h| without an edit")

    def beside(measure: st.Measure, least: st.Quantity) -> tuple[st.Quantity, ...]:
        return over_positions(config, measure, ALL), st.value(measure, st.NO_EDIT), least

    yield st.Claim(
        "A query that attends to itself alone in all layers gets from later ones more than half of the sink that key"
        " 0 has without an edit.",
        placed(config, ALL, sink, half),
        given=some,
        source="Kiya et al. 2026, Fig. 5",
        also=(*beside(sink, half), over_positions(config, seen, ALL)),
    )
    yield st.Claim(
        f"A query that attends to itself alone in all layers gets an activation more than {GROWN} times its size before.",
        placed(config, ALL, size, grown),
        given=st.all_of(some, st.massive_on_first()),
        source="Kiya et al. 2026, Fig. 5",
        also=beside(size, grown),
    )
    criterion = "more heads sink on the position than on key 0, by the interval of the paired difference"
    more = at_most_positions(config, ALL, lambda at: st.above(st.value(sink, at), st.value(on_first, at)), criterion)
    yield st.Claim(
        "The attention sink moves from the first token to a query that attends to itself alone in all layers.",
        st.all_of(more, beyond_controls(config, ALL, sink)),
        given=some,
        source="Kiya et al. 2026, Fig. 5",
        also=(*(over_positions(config, measure, ALL) for measure in (sink, on_first)), st.value(on_first, st.NO_EDIT)),
    )
    yield st.Claim(
        "A query that attends to itself alone in the layers up to the one in which the sink forms gets from later"
        " ones more than half of that sink.",
        placed(config, early, sink, half),
        given=some,
        source="Kiya et al. 2026, Fig. 9, conclusion",
        also=(half,),
    )
    alone, other = in_pairs(config)
    twice = st.average(sink, alone).times(0.5, "half of that for the query alone with itself")
    yield st.Claim(
        "A query gets its sink from attending to itself: one that attends to a single other key gets less than half of it.",
        st.all_of(st.above(st.contrast(sink, alone, other, "difference of the two")), st.below(st.average(sink, other), twice)),
        given=st.above(st.average(sink, alone), SOME),
        source="Kiya et al. 2026, property 3",
        also=(st.average(sink, alone),),
    )


def in_pairs(config: SelfOnly) -> tuple[st.Pool, st.Pool]:
    """In all layers: the query alone with itself, and with one other key instead, each once at every position."""
    return (
        st.Pool(f"alone with itself in {ALL}, mean over positions", lambda entry: entry.series == ALL),
        st.Pool(f"alone with one random other key in {ALL}, mean over the same positions", lambda entry: entry.series == OTHER),
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
        return st.all_of(rule, beyond_controls(config, where, sink))

    rules = {where: raised(where) for where in sets[SINGLE]}
    name = f"single layers that place a sink at most positions, at position {config.shown} above their controls"
    yield st.number_of(rules, name)
    yield from together(sink, size)
    _, other = in_pairs(config)
    links = st.Pool(f"as many random links removed in {ALL}", lambda entry: entry.budget == ALL, CONTROLS)
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
    """Whether sinks and massive activations come together, over all runs of a query alone with itself: an edit on a prompt."""

    def number(which: int, results: st.Results) -> float:
        from scipy.stats import spearmanr

        alone = [entry.series in (SINGLE, FIRST, ALL) for entry in results.conditions()]
        found, growth = results.values(sink)[alone].ravel(), (results.values(size) / results.baseline(size))[alone].ravel()
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
        {series: (SWEEP, series) for series in (SINGLE, FIRST, ALL)} | {f"one other key, {ALL}": (SWEEP, OTHER)},
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


FORMS = sink_forms(lambda config: 0)
STUDY = st.Study(
    name="kiya/self",
    config=SelfOnly,
    title="A query that attends to itself alone",
    question="""Kiya et al. 2026: where the query at a chosen position attends to itself alone, as the first token always does,
        the sink and the massive activation move to that position (Figs. 5 and 9).""",
    probe=probe,
    conditions=conditions,
    values=FORMS,
    headline=lambda config, architecture: [ALL],
    controls=(st.Sweep(CONTROLS, random_links, prompts=st.control_prompts, values=FORMS),),
    measures=measures,
    claims=claims,
    findings=findings,
    featured=lambda results: [st.NO_EDIT, *(label(results.config.shown, where) for where in drawn_sets(results))],
    figures=figures,
    noop=lambda config, model, forms: zero_added(f"of query {config.shown} towards other keys", queries=config.shown),
    shown=shown,
    notes=lambda config, results: (
        f"""A condition is compared with no edit at its own position; the row of no edit is the mean over the positions. Only
        edits at position {config.shown}, chosen beforehand, are ranked among controls: each removes as many links in the same
        layers, from random later queries to one random key other than that position, and is read there too.""",
        f"""The sink forms in the first layer in which more than {ONSET:.0%} of the heads sink on key 0 without an edit, mean over
        the first {results.size("prompt", CONTROLS)} prompts. Until 2026-11-23 the claim about the layers up to that one was
        judged by the largest set of first layers that ended there or before.""",
        """After a review on 2026-11-22, with results known, the claim about the massive activation became not applicable where
        the first token has none. li/isolate makes the same edit at one position, with rules of its own.""",
    ),
)
