"""gu/rope-positions: does the sink sit at rotary index 0, as it does in the position vector of the first token of GPT2-XL?

Table 7 replaces and swaps the learned position vectors of GPT2-XL on one token repeated. A model with rotary positions has no
such vectors, so the same is done here to the rotary indices of queries and keys, on natural text and on one token repeated.
Causality stays by position. Controls exchange indices of other, random positions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals, metrics
from sinkjax.analysis.intervals import Interval
from sinkjax.experiments import identity, measures
from sinkjax.experiments.base import NO_EDIT, Arm, Claim, Inputs, Job, Section
from sinkjax.experiments.gu.config import RopePositions
from sinkjax.experiments.gu.rope_positions_figures import Results, drawings
from sinkjax.experiments.illustrations import MAPS, labelled, maps
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import LEVEL, Measure, Measured, Row, Table, summarise
from sinkjax.experiments.words import high, low, verdict
from sinkjax.model.config import Config
from sinkjax.probes.probe import Probe
from sinkjax.report.table import interval, number
from sinkjax.studies import folder as results

if TYPE_CHECKING:
    import xarray

KINDS = {"text": "natural text", "repeat": "one token repeated"}
STORES = ("text", "repeat", "controls")
EXTRAS = (
    MAPS,
    "maps-repeat",
)
SAME, ZERO, REVERSED = "all indices as they are", "all indices 0", "indices in reverse"
TAKEN, SWAPPED, ALL, CONTROL = "first token at index t", "indices 0 and t swapped", "all indices", "control"
LEAST, NOTHING = 10.0, 1.0  # per cent of heads: from here on a model has a sink; below this it has none
CLAIM = (
    "Gu et al. 2025: in GPT2-XL the first position's vector makes the sink of one token repeated: replaced, the sink is gone;"
    " swapped, it moves. Rotary positions have no such vectors: no sink with one token repeated, whatever the indices."
)


def jobs(config: RopePositions, architecture: Config) -> tuple[Job, ...]:
    """The same arms on text and on one token repeated, and the controls on some of the text."""
    needs("gu/rope-positions", architecture, "rotary positions")
    probe, chosen = Probe.of("attention_received", "resid_max", "nll"), arms(config)
    shown = labelled(chosen, NO_EDIT, ZERO, REVERSED, f"indices 0 and {config.places[0]} swapped")
    return (
        Job("text", chosen, probe, config.prompts),
        Job("repeat", chosen, probe, config.repeat_prompts, Inputs("repeat")),
        Job("controls", controls(config), probe, min(config.control_prompts, config.prompts)),
        maps(config, architecture, shown),
        maps(config, architecture, shown, inputs=Inputs("repeat"), name=EXTRAS[1]),
    )


def arms(config: RopePositions) -> tuple[Arm, ...]:
    """No edit, all indices edited alike, and the first token's index replaced by t or swapped with it."""
    plain = np.arange(config.length)

    def swapped(t: int) -> NDArray:
        indices = plain.copy()
        indices[[0, t]] = t, 0
        return indices

    def arm(indices: NDArray, label: str, group: str, place: int | None = None, budget: int | None = None) -> Arm:
        return Arm(sinkjax.set_positions(query=indices, key=indices).named(label), group, place, budget)

    return (
        Arm(sinkjax.compose(label=NO_EDIT), NO_EDIT),
        arm(plain, SAME, ALL),
        arm(plain + config.shift, f"all indices + {config.shift}", ALL),
        arm(0 * plain, ZERO, ALL),
        arm(plain[::-1].copy(), REVERSED, ALL),
        *(arm(np.where(plain == 0, t, plain), f"index 0 becomes {t}", TAKEN, t, budget=1) for t in config.places),
        *(arm(swapped(t), f"indices 0 and {t} swapped", SWAPPED, t, budget=2) for t in config.places),
    )


def controls(config: RopePositions) -> tuple[Arm, ...]:
    """Random arms of the same budget: another position takes a random index, or two others swap theirs."""
    rng = intervals.generator(config.seed, "gu/rope-positions controls")
    plain = np.arange(config.length)
    drawn = []
    for draw in range(config.controls):
        one, two = sorted(rng.choice(plain[1:], 2, replace=False).tolist())
        swapped = plain.copy()
        swapped[[one, two]] = two, one
        for budget, indices, what in (
            (1, np.where(plain == two, one, plain), f"index {two} becomes {one}"),
            (2, swapped, f"indices {one} and {two} swapped"),
        ):
            edit = sinkjax.set_positions(query=indices, key=indices).named(f"control {draw}: {what}")
            drawn.append(Arm(edit, CONTROL, budget=budget))
    return tuple(drawn)


def section(config: RopePositions, stores: Mapping[str, xarray.Dataset]) -> Section:
    """Sink rates of the first key and of key t on both kinds of input."""
    chosen = arms(config)
    random = Measured(stores["controls"].load(), controls(config))
    summarised = (measures.sink_rate(0, config.eps), elsewhere(config), measures.largest_activation(0), measures.loss())
    tables: dict[str, Table] = {}
    moved: dict[str, dict[str, Interval]] = {}
    for store, kind in KINDS.items():
        data = stores[store].load()
        tables[kind] = summarise(Measured(data, chosen), summarised, config.seed, random if store == "text" else None)
        moved[kind] = at_place(data, chosen, config)
    rows = [
        dataclasses.replace(row, arm=f"{kind}: {row.arm}", group=kind) for kind, table in tables.items() for row in table.values()
    ]
    places = (config.places[0], config.places[-1])
    labels = [arm.edit.label for arm in chosen if arm.place is None or (arm.group == SWAPPED and arm.place in places)]
    found = Results(
        config, chosen, tables, moved, summarised[0].name, summarised[1].name, stores["text"], uneven(stores["repeat"])
    )
    return Section(
        experiment="gu/rope-positions",
        title="Rotary indices of the first token",
        claim=CLAIM,
        findings=(*_findings(found), identity.finding(stores["text"], [SAME])),
        rows=tuple(rows),
        featured=tuple(f"{kind}: {label}" for kind in tables for label in labels),
        drawings=drawings(found, (TAKEN, SWAPPED), ALL),
        notes=_notes(config),
        provenance=results.provenance(stores["text"]),
        claims=_claims(found),
    )


def elsewhere(config: RopePositions) -> Measure:
    """Heads that sink on some other key of the first half, in per cent."""
    least = config.length - config.length // 2

    def of(data: Any) -> NDArray:
        others = np.arange(data.sizes["key"]) > 0
        return 100 * metrics.sink_rate_among(data, others, config.eps, min_queries=least)

    return Measure("heads that sink on another key (%)", of)


def at_place(data: xarray.Dataset, chosen: Sequence[Arm], config: RopePositions) -> dict[str, Interval]:
    """Per cent of heads that sink on key t, for the arms that have a t."""
    placed = [(number, arm) for number, arm in enumerate(chosen) if arm.place is not None]
    values = np.stack([100 * metrics.sink_rate(data.isel(edit=number), arm.place or 0, config.eps) for number, arm in placed])
    found = intervals.intervals(values, level=LEVEL, seed=config.seed)
    return {arm.edit.label: value for (_, arm), value in zip(placed, found, strict=True)}


def uneven(data: xarray.Dataset) -> float:
    """How much the largest |h| differs between positions and edits, relative to its smallest, in the worst prompt."""
    largest = np.asarray(data["resid_max"]).max(axis=2)  # edit, prompt, position
    return float((largest.max(axis=(0, 2)) / largest.min(axis=(0, 2))).max() - 1)


def _extremes(found: Results, kind: str, group: str) -> tuple[list[Row], list[Interval]]:
    """Rows of key 0, and rates of key t, of the arms of a group."""
    labels = [arm.edit.label for arm in found.arms if arm.group == group]
    return [found.tables[kind][label, found.measure] for label in labels], [found.moved[kind][label] for label in labels]


def _findings(found: Results) -> tuple[str, ...]:
    sentences = []
    for kind, table in found.tables.items():
        none = table[NO_EDIT, found.measure].value
        said = [f"On {kind}, {interval(none)} % of heads sink on key 0 without an edit"]
        for group in (TAKEN, SWAPPED):
            first, moved = _extremes(found, kind, group)
            said.append(f"{_span([row.value for row in first])} % with the {group}, and {_span(moved)} % on key t")
        sentences.append("; ".join(said) + ".")
        alike = [arm.edit.label for arm in found.arms if arm.group == ALL]
        sentences.append(
            f"Of all indices at once, on {kind}: "
            + ", ".join(f"{interval(table[label, found.measure].value)} % with {label}" for label in alike)
            + "."
        )
    largest = found.tables[KINDS["repeat"]][NO_EDIT, measures.largest_activation(0).name].value
    sentences.append(
        f"With one token repeated the largest |h| at position 0 is {interval(largest)}; over all positions and edits it differs"
        f" by at most {100 * found.uneven:.2g} % within a prompt."
    )
    losses = [(label, row.value) for (label, name), row in found.tables[KINDS["text"]].items() if name.startswith("loss")]
    by_label = dict(losses)
    sentences.append(
        f"The loss on natural text is {interval(by_label[NO_EDIT])} nats without an edit, {interval(by_label[ZERO])} with {ZERO}"
        f" and {interval(by_label[REVERSED])} with {REVERSED}."
    )
    return tuple(sentences)


def _span(values: Sequence[Interval]) -> str:
    means = [value.mean for value in values if value.mean is not None]
    low, high = number(min(means)), number(max(means))
    return low if low == high else f"{low} to {high}"


def _claims(found: Results) -> tuple[Claim, ...]:
    config = found.config
    text, repeat = KINDS.values()
    none = found.tables[text][NO_EDIT, found.measure].value
    groups = [_extremes(found, text, group) for group in (TAKEN, SWAPPED)]
    stays = all(low(row.value) >= (none.mean or 0) / 2 for first, _ in groups for row in first)
    moves = any(high(value) >= (none.mean or 0) / 2 for _, moved in groups for value in moved)
    repeated = [_extremes(found, repeat, group) for group in (TAKEN, SWAPPED)]
    rates = [row.value for first, _ in repeated for row in first] + [value for _, moved in repeated for value in moved]
    rates += [found.tables[repeat][arm.edit.label, found.measure].value for arm in found.arms if arm.place is None]
    largest = max(high(value) for value in rates)
    gpt2 = (
        f"GPT2-XL (62.28 % unedited; secondary): replaced {_published(config.published_taken)}, swapped"
        f" {_published(config.published_swapped)} on key 0 and {_published(config.published_moved)} on key t"
        if config.published_places
        else ""
    )
    return (
        Claim(
            "The position vector of the first token makes the sink of one token repeated (Gu et al. 2025, Table 7).",
            "not applicable",
            "The model has rotary positions and no position vectors. With its rotary indices exchanged in their place, key 0 is"
            f" the sink of {_span([row.value for first, _ in repeated for row in first])} % of heads and key t of"
            f" {_span([value for _, moved in repeated for value in moved])} %.",
            gpt2,
        ),
        Claim(
            "With rotary positions one token repeated has no sink (Gu et al. 2025, Propositions 1 to 4), whatever the indices.",
            verdict(largest < NOTHING),
            f"At most {number(largest)} % of heads sink on key 0, or on key t, in any arm (largest upper bound); rule: below"
            f" {NOTHING:g} %.",
            "Mistral-7B, LLaMA2-7B, LLaMA3-8B: 0.00 % (secondary)",
        ),
        Claim(
            "The sink of natural text does not sit at rotary index 0 (Kiya et al. 2026, Fig. 3, by other means).",
            verdict(stays and not moves, low(none) >= LEAST),
            f"{interval(none)} % of heads sink on key 0 without an edit;"
            f" {_span([row.value for first, _ in groups for row in first])} % with its index exchanged, and"
            f" {_span([value for _, moved in groups for value in moved])} % on key t; rule: key 0 keeps at least half of its rate"
            " (every lower bound) and key t stays below that (every upper bound); not applicable if less than"
            f" {LEAST:g} % sink without an edit.",
        ),
    )


def _published(rates: Sequence[float]) -> str:
    return f"{min(rates):.2f} to {max(rates):.2f} %"


def _notes(config: RopePositions) -> tuple[str, ...]:
    return (
        "Rotary indices of queries and of keys are set in all layers; which keys a query sees stays by position. Positions and t"
        " count from 0; Table 7's t counts from 1.",
        f"Means over {config.prompts} prompts of text and {config.repeat_prompts} of one token repeated, with bootstrap 95 %"
        f" intervals; effects are differences from no edit on the same kind of input, paired by prompt, except that those of one"
        f" token repeated start from their own unedited run. A head sinks on a key at mean attention above {config.eps:g}.",
        "Another key: at least one key of positions 1 to the middle, which at least half of the queries see.",
        f"Controls: {config.controls} random draws for each budget: another position takes a random other's index (one index"
        f" changed), or two other positions swap theirs (two), on the first {config.control_prompts} prompts of text. Indices as"
        " they are is the identity edit; equal shifts of all indices leave every score as it is, up to rounding.",
    )
