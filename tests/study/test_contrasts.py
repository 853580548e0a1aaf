"""Contrasts on planted stores against numbers computed by hand, and the word that each planted effect gives a claim."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sinkjax import attend_self, mask_key
from sinkjax.analysis.verdicts import Verdict
from sinkjax.papers._shared import cut_links
from sinkjax.study import (
    ALL,
    MASKED,
    Contrast,
    Controlled,
    Lab,
    Layers,
    all_of,
    attention_to,
    difference,
    effect,
    largest_activation,
    layer,
    loss,
    moved,
    own,
    part,
    reaches,
    unedited,
)
from sinkjax.study.contrasts import Parts, compared, recovered
from sinkjax.study.lab import Study
from sinkjax.study.premises import below, same, unchanged
from sinkjax.study.prose import Prose, Statement
from sinkjax.study.results import verdicts
from sinkjax.study.work import Condition
from tests.study.planted import axes, planted
from tests.study.stores import Values

SEEN, NEXT, SIZE, SIZE_1, LOSS = attention_to(0, 0), attention_to(1, 0), largest_activation(0), largest_activation(1), loss()
THERE = own("spot", lambda spot: attention_to(spot, 0))
SAID = Statement("At {spots} of {length}, {other}.", "9%")
FEW = {"prompts": 4, "control_prompts": 3, "controls": 2, "length": 12}
BASE, EDITED = np.array([10.0, 20, 30, 40]), np.array([16.0, 28, 33, 44])
Planted = Callable[[str, Condition], Values]
Make = Callable[[Any], Any]  # the sweeps of the study -> a contrast


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled):
    spots: tuple[int, ...] = (2, 3)


def study(claims: Callable[[Lab, Any], None]) -> Study:
    """A study of several sweeps with some claims on them: `first` and `masked` are conditions of the first."""

    def function(lab: Lab, s: Settings) -> None:
        def another_key(rng: np.random.Generator, case: Layers) -> Any:
            return mask_key(lab.random_position(rng, but=(0,)), layers=case.layers)

        def earlier_alone(rng: np.random.Generator, case: Layers) -> Any:
            return attend_self(lab.random_position(rng, below=case["spot"]))

        def links(rng: np.random.Generator, case: Layers) -> Any:
            return cut_links(rng, case["spot"], s.length)

        places = (layer(0), ALL)
        masks = lab.sweep("masks", {one: mask_key(0, layers=one.layers) for one in places}, control=another_key)
        alone = {ALL.at(spot=spot): attend_self(spot) for spot in s.spots}
        made = SimpleNamespace(
            masks=masks,
            first=masks[layer(0)],
            masked=masks[ALL],
            axes=lab.sweep("axes", alone, control=links),
            earlier=lab.sweep("earlier", alone, control=earlier_alone, title="earlier"),
            text=lab.sweep("text"),
        )
        claims(lab, made)

    return Study("own/planted", function, Settings, Prose(claims={"it": SAID}), False, "")


def claim(make: Make, given: Make | None = None, beside: Make = lambda w: (), **facts: Any) -> Study:
    """The study with one claim."""
    return study(lambda lab, w: lab.claim("it", "here", make(w), given and given(w), beside(w), **{"took": MASKED, **facts}))


def parts(make: Make, numbers: Planted, **settings: Any) -> Parts:
    mine = claim(make)
    lab, read = planted(mine, numbers, **{**FEW, **settings})
    of: Any = lab.claims["it"].of
    found: Parts = of(read)
    return found


def simple(store: str, point: Condition) -> Values:
    """Key 0 from BASE to EDITED in all layers, key 1 from 1 to 7; control c adds c to key 0 and 2 c to key 1."""
    if point.draw >= 0:
        return {("seen", 0): BASE + point.draw, ("seen", 1): 1 + 2 * point.draw, ("size", 0): 100 * np.e**point.draw}
    if point.case is None:
        return {("seen", 0): BASE, ("seen", 1): 1, ("size", 0): 100, ("size", 1): 4, ("loss",): 2}
    if point.case == ALL:
        return {("seen", 0): EDITED, ("seen", 1): 7, ("size", 0): 50, ("size", 1): 400, ("loss",): 5}
    return {("seen", 0): BASE / 2, ("seen", 1): 3, ("size", 0): 80, ("size", 1): 10, ("loss",): 3}


NATS, LOG, PERCENT = (None, "nats"), (None, "log"), ((0.0, 100.0), "percentage points")
ARITHMETIC: dict[str, tuple[Make, Any, Any, Any, Any]] = {  # contrast, whole, controls (of two draws), (range, unit)
    "effect": (lambda w: effect(SEEN, w.masked), EDITED - BASE, BASE, (0, 1), PERCENT),
    "effect above": (lambda w: effect(SEEN, w.masked, above=NEXT), EDITED - BASE, BASE - 1, (0, 1), PERCENT),
    "effect without controls": (lambda w: effect(SEEN, w.masked, controls=False), EDITED - BASE, BASE, None, PERCENT),
    "effect of another unit": (lambda w: effect(SEEN, w.masked, whole=LOSS), EDITED - BASE, 2, (0, 1), (None, PERCENT[1])),
    "moved": (lambda w: moved(SEEN, NEXT, w.masked), 6, BASE, (0, 2), PERCENT),
    "size": (lambda w: effect(SIZE, w.masked), np.log(50 / 100), None, (0, 1), LOG),
    "size above": (lambda w: effect(SIZE, w.masked, above=SIZE_1), np.log(50 / 100), np.log(100 / 4), (0, 1), LOG),
    # The whole is the way from its unedited value to that of the first.
    "size moved": (lambda w: moved(SIZE, SIZE_1, w.masked), np.log(400 / 4), np.log(100 / 4), np.log(1 / 4), LOG),
    "difference": (lambda w: difference(SEEN, w.masked, w.first), EDITED - BASE / 2, EDITED, None, PERCENT),
    "difference of": (lambda w: difference(SEEN, w.masked, w.first, NEXT), EDITED - BASE / 2, 1, None, PERCENT),
    "size difference": (lambda w: difference(SIZE_1, w.masked, w.first), np.log(400 / 10), np.log(400 / 4), None, LOG),
    "size difference of": (lambda w: difference(SIZE_1, w.masked, w.first, SIZE), np.log(40), np.log(100 / 4), None, LOG),
    "recovered": (lambda w: recovered(LOSS, w.masked, w.first), 5 - 3, 5 - 2, 5 - 1, NATS),  # controls have a loss of 1
    "recovered of": (
        lambda w: recovered(SEEN, w.masked, w.first, whole=w.first),
        *(EDITED - BASE / 2, EDITED - BASE / 2, EDITED[:3] - BASE[:3] - [[0], [1]], PERCENT),
    ),
    "part": (lambda w: part(SEEN, w.masked, w.first), EDITED - BASE, -BASE / 2, (0, 1), PERCENT),
    "part above": (
        lambda w: part(SEEN, w.masked, w.masked, above=w.first),
        *(EDITED - BASE / 2, EDITED - BASE / 2, BASE[:3] / 2 + [[0], [1]], PERCENT),
    ),
    "part of a fall": (lambda w: part(SEEN, w.masked, w.first, falls=True), BASE - EDITED, BASE / 2, (0, -1), PERCENT),
    "unedited": (lambda w: unedited(SEEN, w.text), BASE, None, None, PERCENT),
    "unedited excess": (lambda w: unedited(SEEN, w.text, minus=NEXT), BASE - 1, BASE, None, PERCENT),
    "unedited sizes": (lambda w: unedited(SIZE, w.text, minus=SIZE_1), np.log(100 / 4), None, None, LOG),
    "compared": (lambda w: compared(SEEN, NEXT, w.masked), EDITED - 7, BASE, None, PERCENT),
    "compared sizes": (lambda w: compared(SIZE, SIZE_1, w.masked), np.log(50 / 400), None, None, LOG),
}


def same_numbers(found: Any, expected: Any) -> None:
    assert (found is None) == (expected is None)
    if expected is not None:
        np.testing.assert_allclose(found, np.broadcast_to(expected, np.shape(found)), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("make", "contrast", "whole", "drawn", "facts"), ARITHMETIC.values(), ids=[*ARITHMETIC])
def test_a_contrast_is_its_definition(make, contrast, whole, drawn, facts):
    found = parts(make, simple)
    assert found.contrast.shape == (4,)
    same_numbers(found.contrast, contrast)
    same_numbers(found.whole, whole)
    if drawn is not None:
        drawn = np.broadcast_to(np.reshape(drawn, (2, 1)) if np.size(drawn) == 2 else drawn, (2, 3))
        assert found.controls is not None
        assert found.controls.shape == (2, 3)
    same_numbers(found.controls, drawn)
    assert (found.range, found.unit) == facts


def by_spot(store: str, point: Condition) -> Values:
    """10 at position 2 and 20 at 3; edited 5 and 9 more at the query's own place, controls 1 and 2, and the next 1 more."""
    spot = axes(point).get("spot", 0)
    gain = {0: 0, 2: 5, 3: 9}[spot] if point.draw < 0 else spot - 1 + point.draw
    return {("seen", 2): 10 + gain * (spot == 2) + BASE, ("seen", 3): 20 + gain * (spot == 3) + BASE}


def test_each_position_is_read_at_its_own_place_and_compared_with_itself():
    found = parts(lambda w: effect(THERE, w.axes.every), by_spot)
    same_numbers(found.contrast, [[5, 9]] * 4)
    same_numbers(found.whole, np.stack([10 + BASE, 20 + BASE], axis=-1))
    assert found.controls is not None
    assert found.controls.shape == (2, 3, 2)
    same_numbers(found.controls, np.broadcast_to([[[1, 2]], [[2, 3]]], (2, 3, 2)))
    same_numbers(parts(lambda w: effect(THERE, w.axes.at(spot=3)), by_spot).contrast, 9)


@pytest.mark.parametrize(
    "make",
    [effect, part, lambda measure, where, of=None: recovered(measure, harmed=of, kept=where)],
    ids=["effect", "part", "kept"],
)
@pytest.mark.parametrize(("spot", "every"), [(2, True), (20, False)])
def test_the_controls_of_a_condition_are_counted_alone(make, spot, every):
    """Of two earlier positions there are two controls, and of twenty as many as were asked for."""

    def contrast(w: Any) -> Any:
        where = w.earlier.at(spot=spot)
        return make(SEEN, where) if make is effect else make(SEEN, where, of=where)

    found = parts(contrast, simple, controls=8, length=24, spots=(2, 20))
    assert found.controls is not None
    assert (len(found.controls), found.all_controls) == (2 if every else 8, every)


# Words.

N = 64
SPREAD = np.resize([-1.0, 1.0, -0.5, 0.5], N)
MANY = {"prompts": N, "control_prompts": N, "controls": 20, "length": 30}


def moves(whole: Any = 60.0, gain: Any = 50.0, control: Any = 1.0, twin: Any = 0.0) -> Planted:
    """Key 0 has `whole`; key 1 gains `gain`, `control` under controls, and `twin` in the untrained model."""

    def numbers(store: str, point: Condition) -> Values:
        if point.case is None:
            added: Any = 0
        elif store.endswith("-twin"):
            added = twin
        else:
            added = gain if point.draw < 0 else control + point.draw / 100
        return {("seen", 0): whole + SPREAD * (whole != 0), ("seen", 1): 5 + added + SPREAD / 2 * (point.case is not None)}

    return numbers


def falls(by: float, whole: float = 90.0) -> Planted:
    """The edit, and neither its controls nor the untrained model, takes something from key 0."""

    def numbers(store: str, point: Condition) -> Values:
        edited = point.case is not None and point.draw < 0 and not store.endswith("-twin")
        return {("seen", 0): whole + SPREAD - (by + SPREAD / 2) * edited}

    return numbers


def judged(mine: Study, numbers: Planted, random: str = "", **options: Any) -> Verdict:
    """The verdict on planted numbers. random: a sweep whose prompts are not text."""
    lab, read = planted(mine, numbers, **{**MANY, **options})
    if random:
        read.stores[random].attrs["study"] = {}
    (one,) = verdicts(lab, read)
    return one


def shift(w: Any) -> Contrast:
    return moved(SEEN, NEXT, w.masked)


@pytest.mark.parametrize(
    ("numbers", "word"),
    [
        (moves(), "replicates"),
        (moves(gain=20.0), "replicates"),  # the number says how large
        (moves(whole=90.0, gain=1.2), "absent"),  # less than a tenth
        (moves(gain=-5.0, control=15.0), "opposite"),
        (moves(gain=1.0 + 20 * SPREAD, whole=30.0), "undecided"),
        (moves(whole=0.0), "not applicable"),
        (moves(twin=50.0), "replicates (untrained too)"),
        (moves(twin=1.2, whole=90.0), "replicates"),  # less than a tenth
        (moves(whole=90.0, gain=1.2, twin=50.0), "absent"),
    ],
)
def test_a_planted_effect_has_its_word(numbers, word):
    found = judged(claim(shift), numbers)
    assert found.word == word, found.judgement
    assert (found.kind, found.name) == ("claim", "it")


def test_a_negative_sign_turns_the_claim_round():
    lost = judged(claim(lambda w: effect(SEEN, w.first), sign=-1), falls(75.0))
    label = judged(claim(lambda w: effect(SEEN, w.first, controls=False), sign=-1), falls(75.0)).label
    assert (label.startswith("minus"), SEEN.name in label) == (True, True)
    assert (lost.word, lost.label.startswith(label)) == ("replicates", True)
    assert "controls" in lost.label.removeprefix(label)
    assert judged(claim(lambda w: effect(SEEN, w.first)), falls(75.0)).word == "opposite"


def test_an_effect_among_those_of_its_controls_is_not_shown():
    def mixed(store: str, point: Condition) -> Values:
        """Three of twenty controls do more than the edit."""
        return moves(control=60.0 if point.draw >= 17 else 1.0)(store, point)

    beaten = judged(claim(shift), mixed)
    assert beaten.word == "undecided"
    assert beaten.judgement.rank is not None
    assert (beaten.judgement.rank.below, beaten.judgement.rank.of) == (17, 20)
    assert "17 of 20 controls" in beaten.judgement.reason


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (lambda w: reaches(SEEN, w.masks, 59.0), ""),
        (lambda w: reaches(SEEN, w.masks, 61.0), "attention to key 0 .* 60, .*at least 61"),
        (lambda w: below(SEEN, w.masks, 61.0), ""),
        (lambda w: below(SEEN, w.masks, 50.0), "below 50"),
        (lambda w: all_of(reaches(SEEN, w.masks, 59.0), below(NEXT, w.masks, 6.0)), ""),
        (lambda w: all_of(reaches(SEEN, w.masks, 59.0), below(NEXT, w.masks, 2.0)), " 5, .*below 2"),
    ],
)
def test_a_premise_of_the_paper_comes_first(given, reason):
    found = judged(claim(shift, given), moves())
    assert found.word == ("not applicable" if reason else "replicates")
    assert re.search(reason, found.judgement.reason)


def test_a_sweep_that_did_not_run_leaves_its_claims_without_a_word():
    found = judged(claim(shift), moves(), absent={"masks": "the model has no BOS"})
    assert (found.word, found.judgement.reason) == ("not applicable", "the model has no BOS")


@pytest.mark.parametrize(("apart", "word"), [(0.0009, "holds"), (0.0011, "fails")])
def test_an_identity_holds_in_every_document_or_fails(apart, word):
    def numbers(store: str, point: Condition) -> Values:
        masked = point.case is not None and point.case == ALL
        return {("loss",): 3.0 + apart * masked * (np.arange(N) == 7)}

    for test in (lambda w: same(LOSS, w.first, w.masked, 0.001), lambda w: unchanged(LOSS, w.masked, 0.001)):
        found = judged(study(lambda lab, w, test=test: lab.identity("it", "here", test(w))), numbers)
        assert (found.word, found.kind) == (word, "identity")
    assert judged(study(lambda lab, w: lab.identity("it", "here", unchanged(LOSS, w.first, 0.0))), numbers).word == "holds"


def test_genres_are_the_samples_where_there_are_some():
    genres = [f"genre {number % 16}" for number in range(N)]
    clustered = judged(claim(shift), moves(), about={"genres": genres})
    assert (judged(claim(shift), moves()).judgement.n, clustered.judgement.n) == (N, 16)
    assert "clusters of 64" in clustered.judgement.method
    assert judged(claim(shift), moves(), about={"genres": ["fiction"] * N}).judgement.n == N
    # Only the stores that a claim reads count.
    assert judged(claim(shift), moves(), about={"genres": genres}, random="text").judgement.n == 16
    excess = claim(lambda w: unedited(SEEN, w.text, minus=NEXT))
    assert judged(excess, moves(), about={"genres": genres}, random="text").judgement.n == N
