"""gu/rope-positions: does the sink sit at rotary index 0, as it does in the position vector of the first token of GPT2-XL?

Table 7 replaces and swaps the learned position vectors of GPT2-XL on one token repeated. A model with rotary positions has no
such vectors, so the same is done here to the rotary indices of queries and keys, on natural text and on one token repeated.
Causality stays by position. Controls exchange indices of other, random positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import intervals, metrics
from sinkjax.config_files.checks import at_least, refuse
from sinkjax.studies.papers.gu._first_token import FirstTokenSinks
from sinkjax.studies.study import control_prompts

TEXT, REPEAT = st.Inputs("text"), st.Inputs("repeat")
SAME, ZERO, REVERSED = "all indices as they are", "all indices 0", "indices in reverse"
TAKEN, SWAPPED, ALL = "first token at index t", "indices 0 and t swapped", "all indices"
LEAST, NOTHING = 10.0, 1.0  # per cent of heads: from here on a model has a sink; below this it has none
RATE = "heads that sink on the key (%)"


@dataclass(frozen=True, kw_only=True)
class RopePositions(FirstTokenSinks):
    """Rotary indices of the first token replaced and swapped: what Table 7 does to the position vectors of GPT2-XL."""

    places: tuple[int, ...] = (4, 9, 14, 19, 24, 29)
    """positions t, counted from 0, whose index the first token takes or swaps with its own"""
    shift: int = 100
    """added to all indices alike, which must change nothing"""
    repeat_prompts: int = 16
    """prompts of one token repeated"""
    control_prompts: int = 8
    """prompts of text on which the controls are measured, the first of all"""
    published_places: tuple[int, ...] = ()
    """places, counted from 0, for which Table 7 gives rates of GPT2-XL"""
    published_taken: tuple[float, ...] = ()
    """there, per cent of heads that sink on key 0 once p_1 is replaced by p_t, one for each of published_places"""
    published_swapped: tuple[float, ...] = ()
    """there, per cent of heads that sink on key 0 once p_1 and p_t are swapped"""
    published_moved: tuple[float, ...] = ()
    """there, per cent of heads that sink on key t once p_1 and p_t are swapped"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, repeat_prompts=1, control_prompts=1, shift=1)
        refuse(not self.places, "places is empty: at least one position is needed")
        for place in self.places:
            wrong = not 0 < place < self.length or self.places.count(place) > 1
            refuse(wrong, f"places must be different positions from 1 to {self.length - 1}, and holds {place}")
        for name in ("published_taken", "published_swapped", "published_moved"):
            count = len(self.published_places)
            refuse(len(getattr(self, name)) != count, f"{name} needs one number for each of published_places, {count}")


def edit(config: RopePositions, changed: Mapping[int, int], label: str) -> sinkjax.Edit:
    """The rotary indices of queries and keys are those of their positions, but for some. changed: position -> index."""
    indices = np.arange(config.length)
    indices[list(changed)] = list(changed.values())
    return sinkjax.set_positions(query=indices, key=indices).named(label)


def conditions(config: RopePositions, architecture: Any) -> Iterator[st.Condition]:
    """No edit, all indices edited alike, and the first token's index replaced by t or swapped with it."""
    plain = np.arange(config.length)
    alike = {SAME: plain, f"all indices + {config.shift}": plain + config.shift, ZERO: 0 * plain, REVERSED: plain[::-1]}
    yield st.no_edit()
    for label, indices in alike.items():
        yield st.Condition(edit(config, dict(enumerate(indices.tolist())), label), ALL)
    for t in config.places:
        yield st.Condition(edit(config, {0: t}, taken(t)), TAKEN, t, budget=1)
    for t in config.places:
        yield st.Condition(edit(config, {0: t, t: 0}, swapped(t)), SWAPPED, t, budget=2)


def taken(t: int) -> str:
    return f"index 0 becomes {t}"


def swapped(t: int) -> str:
    return f"indices 0 and {t} swapped"


def random_exchanges(config: RopePositions, architecture: Any) -> Iterator[st.Condition]:
    """Random conditions of the same budgets: another position takes a random index, or two others swap theirs."""
    rng = intervals.generator(config.seed, "gu/rope-positions controls")
    for draw in range(config.controls):
        one, two = sorted(rng.choice(np.arange(1, config.length), 2, replace=False).tolist())
        replaced = edit(config, {two: one}, f"control {draw}: index {two} becomes {one}")
        both = edit(config, {one: two, two: one}, f"control {draw}: indices {one} and {two} swapped")
        yield from (st.Condition(replaced, st.CONTROL, budget=1), st.Condition(both, st.CONTROL, budget=2))


def measures(config: RopePositions) -> tuple[st.Measure, ...]:
    """Sinks on key 0 and on any other key of the first half, the largest |h| at position 0, and the loss."""
    others, least = np.arange(config.length) > 0, config.length - config.length // 2
    elsewhere = st.Measure(
        "heads that sink on another key (%)",
        lambda data: 100 * metrics.sink_rate_among(data, others, config.eps, min_queries=least),
        unit="percentage points",
        note="Another key: at least one key of positions 1 to the middle, which at least half of the queries see.",
    )
    return st.sink_rate(0, config.eps), elsewhere, st.largest_activation(0), st.loss()


def at_place(config: RopePositions) -> st.Measure:
    """Heads that sink on key t, where a condition has a t."""
    places = {label(t): t for label in (taken, swapped) for t in config.places}

    def of(data: Any) -> NDArray:
        keys = np.array([places.get(str(label), 0) for label in data["edit"].values])[:, None]
        rates = 100 * metrics.sink_rate(data, np.broadcast_to(keys, (len(keys), data.sizes["prompt"])), config.eps)
        return np.where(keys > 0, rates, np.nan)

    return st.Measure("heads that sink on key t (%)", of)


def sweeps(config: RopePositions, architecture: Any) -> tuple[st.Sweep, ...]:
    controls = st.Sweep("controls", random_exchanges, prompts=control_prompts)
    return (
        st.Sweep("text", conditions, measures, controls=(controls,), prefix=TEXT.name, series=TEXT.name),
        st.Sweep(
            *("repeat", conditions, measures, None, lambda config: config.repeat_prompts, lambda config: REPEAT),
            prefix=REPEAT.name,
            series=REPEAT.name,
        ),
    )


def rates(measure: st.Measure, inputs: st.Inputs, labels: Sequence[str]) -> list[st.Quantity]:
    """A measure under some conditions, on one kind of inputs."""
    return [st.as_point(st.value(measure, f"{inputs.name}: {label}")) for label in labels]


def labels(config: RopePositions, *series: str) -> list[str]:
    """Of the conditions of some series."""
    return [condition.label for condition in conditions(config, None) if condition.series in series]


def claims(config: RopePositions, architecture: Any) -> Iterator[st.Claim]:
    at_first, moved = measures(config)[0], at_place(config)
    alike, swaps = labels(config, st.NO_EDIT, ALL), labels(config, SWAPPED)
    both = [*labels(config, TAKEN), *swaps]
    text, repeat = (
        st.as_point(st.value(at_first, f"{inputs.name}: {st.NO_EDIT}", "the rate on key 0 without an edit (%)"))
        for inputs in (TEXT, REPEAT)
    )
    half, half_of_repeat = (none.times(0.5, "half of the rate on key 0 without an edit (%)") for none in (text, repeat))
    published = (config.published_taken, config.published_swapped, config.published_moved)
    spans = [f"{min(numbers):.2f} to {max(numbers):.2f} %" for numbers in published if numbers]
    yield st.Claim(
        "The position vector of the first token makes the sink of one token repeated (Gu et al. 2025, Table 7).",
        st.all_of(
            st.below(
                st.highest(rates(at_first, REPEAT, both), "the highest rate on key 0 after an exchange (%)"), half_of_repeat
            ),
            st.at_or_above(st.lowest(rates(moved, REPEAT, swaps), "the lowest rate on key t after a swap (%)"), half_of_repeat),
        ),
        given=st.never("the model has learned position vectors; this one has rotary positions"),
        paper="GPT2-XL (62.28 % unedited; secondary): replaced {}, swapped {} on key 0 and {} on key t".format(*spans)
        if spans
        else "",
    )
    every = [*rates(at_first, REPEAT, [*alike, *both]), *rates(moved, REPEAT, both)]
    yield st.Claim(
        "With rotary positions one token repeated has no sink (Gu et al. 2025, Propositions 1 to 4), whatever the indices.",
        st.below(st.highest(every, "the highest rate on key 0 or key t, whatever the indices (%)"), NOTHING),
        paper="Mistral-7B, LLaMA2-7B, LLaMA3-8B: 0.00 % (secondary)",
    )
    yield st.Claim(
        "The sink of natural text does not sit at rotary index 0 (Kiya et al. 2026, Fig. 3, by other means).",
        st.all_of(
            st.at_or_above(st.lowest(rates(at_first, TEXT, both), "the lowest rate on key 0 after an exchange (%)"), half),
            st.below(st.highest(rates(moved, TEXT, both), "the highest rate on key t after an exchange (%)"), half),
        ),
        given=st.at_or_above(text, LEAST),
    )


def findings(config: RopePositions, architecture: Any) -> Iterator[st.Quantity]:
    yield st.quantity("largest |h| with one token repeated, its range over positions and edits in the worst prompt", uneven, "%")
    yield st.noop_change(SAME, store="text")


def uneven(results: st.Results) -> float:
    """How much the largest |h| differs between positions and edits, relative to its smallest."""
    largest = np.asarray(results["repeat"]["resid_max"]).max(axis=2)  # edit, prompt, position
    return 100 * float((largest.max(axis=(0, 2)) / largest.min(axis=(0, 2))).max() - 1)


def figures(config: RopePositions, architecture: Any) -> Iterator[st.Figure]:
    at_first, other, *_ = measures(config)
    published = {
        TAKEN: {"GPT2-XL, key 0": config.published_taken},
        SWAPPED: {"GPT2-XL, key 0": config.published_swapped, "GPT2-XL, key t": config.published_moved},
    }

    def panel(inputs: st.Inputs, series: str) -> st.Panel:
        found = [f"{inputs.name}: {label}" for label in labels(config, series)]
        curves = {"key 0": (at_first, found), "key t": (at_place(config), found)}
        paper = published[series] if inputs == REPEAT and config.published_places else {}
        return st.Panel(
            *(RATE, curves, f"{inputs.name}:\n{series}"),
            baseline=f"{inputs.name}: {st.NO_EDIT}",
            published={name: (config.published_places, numbers) for name, numbers in paper.items()},
        )

    yield st.lines(
        *("sink-by-exchanged-index", "position t (0-based)"),
        [[panel(inputs, series) for inputs in (REPEAT, TEXT) for series in (SWAPPED, TAKEN)]],
        """Share of heads that sink on key 0 and on key t once the first token has the rotary index t, or both have swapped
        theirs; dashed: key 0 without an edit. GPT2-XL: learned position vectors replaced or swapped (Gu et al. 2025, Table 7,
        from a summary). Where lines coincide, the one named last is on top.""",
        store=("text", "repeat"),
        legend_above=True,
    )

    def column(results: st.Results, inputs: st.Inputs) -> list[st.Point]:
        return [
            st.Point(label, results.row(measure, f"{inputs.name}: {label}").value, key)
            for label in labels(config, st.NO_EDIT, ALL)
            for measure, key in ((at_first, "key 0"), (other, "another key"))
        ]

    yield st.points(
        *("sink-by-all-indices", RATE),
        lambda results: {inputs.name: column(results, inputs) for inputs in (TEXT, REPEAT)},
        """Share of heads that sink on key 0, or on at least one other key of the first half, with all rotary indices edited
        alike.""",
        store=("text", "repeat"),
        limits=(-4, 104),
    )


def featured(results: st.Results) -> list[str]:
    """The conditions without a t, and the swaps with the first and the last t."""
    config = results.config
    shown = [*labels(config, st.NO_EDIT, ALL), *(swapped(config.places[end]) for end in (0, -1))]
    return [f"{inputs.name}: {label}" for inputs in (TEXT, REPEAT) for label in shown]


STUDY = st.Study(
    name="gu/rope-positions",
    config=RopePositions,
    title="Rotary indices of the first token",
    question="""Gu et al. 2025: in GPT2-XL the first position's vector makes the sink of one token repeated: replaced, the sink is
        gone; swapped, it moves. Rotary positions have no such vectors: no sink with one token repeated, whatever the indices.""",
    needs=("rotary positions",),
    probe=lambda config: sinkjax.Probe.of("attention_received", "resid_max", "nll"),
    more=sweeps,
    claims=claims,
    findings=findings,
    featured=featured,
    figures=figures,
    shown=lambda config, architecture: st.Shown(
        (st.NO_EDIT, ZERO, REVERSED, swapped(config.places[0])), sweeps=("text", "repeat"), texts=False
    ),
    notes=lambda config, results: (
        """Rotary indices of queries and of keys are set in all layers; which keys a query sees stays by position. Positions and
        t count from 0; Table 7's t counts from 1. Effects on one token repeated start from its own unedited run.""",
        """All indices as they are is the no-op edit; equal shifts of all indices leave every score as it is, up to rounding.""",
    ),
)
