"""gu/rope-positions: whether the sink sits at rotary index 0, as it does in the first position vector of GPT2-XL (Table 7).

Queries still see keys by position, whatever their indices. Controls exchange indices of other, random positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import intervals, metrics
from sinkjax.config_files.checks import at_least, refuse
from sinkjax.studies.papers.gu._first_token import ALIKE, NOTHING, largest_rate

TEXT, REPEAT = st.Inputs("text"), st.Inputs("repeat")
SAME, ZERO, REVERSED = "all indices as they are", "all indices 0", "indices in reverse"
TAKEN, SWAPPED, ALL = "first token at index t", "indices 0 and t swapped", "all indices"
LEAST = 10.0  # per cent of heads: above this a model has a sink
RATE = "heads that sink on the key (%)"


@dataclass(frozen=True, kw_only=True)
class RopePositions(st.ControlledSinks):
    """Rotary indices of the first token replaced and swapped, as Table 7 does with the position vectors of GPT2-XL."""

    places: tuple[int, ...] = (4, 9, 14, 19, 24, 29)
    """positions t, counted from 0, whose index the first token takes or swaps with its own"""
    shift: int = 100
    """number added to all indices, which must change nothing"""
    repeat_prompts: int = 16
    """prompts of one token repeated"""
    published_places: tuple[int, ...] = ()
    """positions t, counted from 0, for which Table 7 gives rates of GPT2-XL"""
    published_taken: tuple[float, ...] = ()
    """per cent of heads that sink on key 0 once p_1 is replaced by p_t, one for each of published_places"""
    published_swapped: tuple[float, ...] = ()
    """per cent of heads that sink on key 0 once p_1 and p_t are swapped"""
    published_moved: tuple[float, ...] = ()
    """per cent of heads that sink on key t once p_1 and p_t are swapped"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, length=8, repeat_prompts=1, shift=1)
        refuse(not self.places, "places is empty: at least one position is needed")
        for place in self.places:
            wrong = not 0 < place < self.length or self.places.count(place) > 1
            refuse(wrong, f"places must be different positions from 1 to {self.length - 1}, but contains {place}")
        for name in ("published_taken", "published_swapped", "published_moved"):
            count = len(self.published_places)
            refuse(len(getattr(self, name)) != count, f"{name} needs one number for each of published_places, {count}")


def edit(config: RopePositions, changed: Mapping[int, int], label: str) -> sinkjax.Edit:
    """Some positions get another rotary index than their own. changed: position -> index."""
    indices = np.arange(config.length)
    indices[list(changed)] = list(changed.values())
    return sinkjax.set_positions(query=indices, key=indices).named(label)


def conditions(config: RopePositions, architecture: Any) -> Iterator[st.Condition]:
    plain = np.arange(config.length)
    alike = {SAME: plain, f"all indices + {config.shift}": plain + config.shift, ZERO: 0 * plain, REVERSED: plain[::-1]}
    yield st.no_edit()
    for label, indices in alike.items():
        yield st.Condition(edit(config, dict(enumerate(indices.tolist())), label), ALL)
    for t in config.places:
        yield st.Condition(edit(config, {0: t}, f"index 0 becomes {t}"), TAKEN, t, budget=1)
    for t in config.places:
        yield st.Condition(edit(config, {0: t, t: 0}, f"indices 0 and {t} swapped"), SWAPPED, t, budget=2)


def labels(config: RopePositions, *series: str, of: st.Inputs | None = None) -> list[str]:
    """The labels of the conditions of some series; with `of`, those of their rows."""
    prefix = f"{of.name}: " if of else ""
    return [f"{prefix}{label}" for label in st.labels_of(conditions(config, None), *series)]


def random_exchanges(config: RopePositions, architecture: Any) -> Iterator[st.Condition]:
    """Controls of each budget: another position takes a random index, or two others swap theirs."""
    rng = intervals.generator(config.seed, "gu/rope-positions controls")

    def pair() -> tuple[int, int]:
        one, two = sorted(rng.choice(np.arange(1, config.length), 2, replace=False).tolist())
        return one, two

    for draw, (one, two) in enumerate(st.without_replacement(config.controls, pair)):
        taken = edit(config, {two: one}, f"control {draw}: index {two} becomes {one}")
        swapped = edit(config, {one: two, two: one}, f"control {draw}: indices {one} and {two} swapped")
        yield st.Condition(taken, st.CONTROL, budget=1)
        yield st.Condition(swapped, st.CONTROL, budget=2)


def measures(config: RopePositions) -> tuple[st.Measure, ...]:
    others, least = np.arange(config.length) > 0, config.length - config.length // 2
    elsewhere = st.Measure(
        "heads that sink on another key (%)",
        lambda data: 100 * metrics.sink_rate_among(data, others, config.eps, min_queries=least),
        unit="percentage points",
        note="Another key: at least one key of positions 1 to the middle, which at least half of the queries see.",
    )
    return st.sink_rate(0, config.eps), elsewhere, st.largest_activation(0), st.loss()


def at_place(config: RopePositions) -> st.Measure:
    """Heads that sink on key t; undefined for conditions without a t."""
    places = {condition.label: condition.x for condition in conditions(config, None)}

    def of(data: Any) -> NDArray:
        keys = np.array([places.get(str(label)) or 0 for label in data["edit"].values])[:, None]
        return np.where(keys > 0, 100 * metrics.sink_rate(data, keys, config.eps), np.nan)

    return st.Measure("heads that sink on key t (%)", of)


def on_any_key(config: RopePositions) -> st.Measure:
    """Heads that sink on the key on which most do."""
    name = "largest share of heads that sink on one key (%)"
    return st.Measure(name, lambda data: largest_rate(np.asarray(data["attention_received"]), config.eps))


def sweeps(config: RopePositions, architecture: Any) -> tuple[st.Sweep, ...]:
    controls = st.Sweep("controls", random_exchanges, prompts=st.control_prompts)
    text = st.Sweep("text", conditions, measures, controls=(controls,), prefix=TEXT.name, series=TEXT.name)
    repeat = st.Sweep(
        "repeat",
        conditions,
        measures,
        prompts=lambda config: config.repeat_prompts,
        inputs=lambda config: REPEAT,
        prefix=REPEAT.name,
        series=REPEAT.name,
    )
    return text, repeat


def claims(config: RopePositions, architecture: Any) -> Iterator[st.Claim]:
    at_first, moved = measures(config)[0], at_place(config)

    def rates(measure: st.Measure, inputs: st.Inputs, *series: str) -> list[st.Quantity]:
        return [st.value(measure, label) for label in labels(config, *series, of=inputs)]

    published = (config.published_taken, config.published_swapped, config.published_moved)
    spans = [f"{min(numbers):.2f} to {max(numbers):.2f} %" for numbers in published if numbers]
    paper = "GPT2-XL (62.28 % unedited; secondary): replaced {}, swapped {} on key 0 and {} on key t"
    yield st.Claim(
        "The position vector of the first token makes the sink of one token repeated.",
        st.never("without that vector the rate on key 0 falls below half, and key t has at least half where the two are swapped"),
        given=st.never("the model has learned position vectors; this one has rotary positions"),
        source="Gu et al. 2025, Table 7",
        paper=paper.format(*spans) if spans else "",
    )
    every = rates(on_any_key(config), REPEAT, st.NO_EDIT, ALL, TAKEN, SWAPPED)
    yield st.Claim(
        f"With one token repeated and rotary positions, less than {NOTHING:g} % of heads sink on any one key, whatever"
        " the indices.",
        st.every(
            [st.below(rate, NOTHING) for rate in every],
            "choices of indices",
            f"the interval of the largest share of heads that sink on one key, in each prompt, lies below {NOTHING:g} %",
        ),
        given=ALIKE,
        also=(st.largest_of(every, "the largest of them"),),
        source="Gu et al. 2025, Propositions 1 to 4",
        paper="Mistral-7B, LLaMA2-7B, LLaMA3-8B: 0.00 % (secondary)",
    )
    text = st.value(at_first, f"{TEXT.name}: {st.NO_EDIT}", "the rate on key 0 without an edit (%)")
    half = text.times(0.5, f"half of {text.name}")
    kept = [st.above(rate, half) for rate in rates(at_first, TEXT, TAKEN, SWAPPED)]
    gained = [st.below(rate, half) for rate in rates(moved, TEXT, TAKEN, SWAPPED)]
    yield st.Claim(
        "Where another token takes rotary index 0, the first token of natural text keeps more than half of its sink, and the"
        " other gets less.",
        st.every(
            [st.all_of(*both) for both in zip(kept, gained, strict=True)],
            "exchanges of the first token's index",
            f"the rate on key 0 lies above {half.name}, and that on key t below it, in pairs",
        ),
        given=st.above(text, LEAST),
        source="Kiya et al. 2026, Fig. 3, by other means",
        also=(
            st.smallest_of(rates(at_first, TEXT, TAKEN, SWAPPED), "the lowest rate on key 0 after an exchange (%)"),
            st.largest_of(rates(moved, TEXT, TAKEN, SWAPPED), "the highest rate on key t after an exchange (%)"),
            text,
        ),
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
        (REPEAT, TAKEN): {"GPT2-XL, key 0": config.published_taken},
        (REPEAT, SWAPPED): {"GPT2-XL, key 0": config.published_swapped, "GPT2-XL, key t": config.published_moved},
    }

    def panel(inputs: st.Inputs, series: str) -> st.Panel:
        found = labels(config, series, of=inputs)
        paper = published.get((inputs, series), {}) if config.published_places else {}
        return st.Panel(
            RATE,
            {"key 0": (at_first, found), "key t": (at_place(config), found)},
            f"{inputs.name}:\n{series}",
            baseline=f"{inputs.name}: {st.NO_EDIT}",
            published={name: (config.published_places, rates) for name, rates in paper.items()},
        )

    yield st.lines(
        "sink-by-exchanged-index",
        "position t (0-based)",
        [[panel(inputs, series) for inputs in (REPEAT, TEXT) for series in (SWAPPED, TAKEN)]],
        """Heads that sink on key 0 and on key t once the first token has the rotary index t, or the two are swapped; dashed: key
        0 without an edit. GPT2-XL: learned position vectors replaced or swapped (Gu et al. 2025, Table 7, from a summary). Where
        lines coincide, the one named last is on top.""",
        store=("text", "repeat"),
        legend_above=True,
    )
    yield st.points(
        "sink-by-all-indices",
        RATE,
        lambda results: {
            inputs.name: [
                results.point(label, measure, f"{inputs.name}: {label}", key)
                for label in labels(config, st.NO_EDIT, ALL)
                for measure, key in ((at_first, "key 0"), (other, "another key"))
            ]
            for inputs in (TEXT, REPEAT)
        },
        "Heads that sink on key 0, or on at least one other key of the first half, with all rotary indices edited.",
        store=("text", "repeat"),
        limits=(-4, 104),
    )


def featured(results: st.Results) -> list[str]:
    """The conditions without a t, and the swaps with the first and the last t."""
    shown = []
    for inputs in (TEXT, REPEAT):
        swaps = labels(results.config, SWAPPED, of=inputs)
        shown += [*labels(results.config, st.NO_EDIT, ALL, of=inputs), swaps[0], swaps[-1]]
    return shown


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
        (st.NO_EDIT, ZERO, REVERSED, labels(config, SWAPPED)[0]), sweeps=("text", "repeat"), texts=False
    ),
    notes=lambda config, results: (
        """Rotary indices of queries and of keys are set in all layers; which keys a query sees still depends on position alone.
        Positions and t count from 0; Table 7's t counts from 1. Effects on one token repeated are relative to its own unedited
        run.""",
        """Whether one token repeated has a sink is judged in each prompt by the key on which most heads sink, of keys 0 to the
        middle, which at least half of the queries see.""",
        """With a BOS in front, the claims of Propositions 1 to 4 about one token repeated are not judged, as in
        gu/repeat-bound.""",
        """The no-op edit sets all indices to their own values; shifting all of them by one number changes scores by rounding
        only.""",
    ),
)
