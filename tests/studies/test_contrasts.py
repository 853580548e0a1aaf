"""Contrasts on planted stores against numbers computed by hand, and the word that each planted effect gives a claim."""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from sinkjax.analysis.judgement import judge
from sinkjax.analysis.verdicts import Verdict, verdicts_csv
from sinkjax.errors import SinkjaxError
from sinkjax.studies.assemble import standard_notes
from sinkjax.studies.grids import Point
from sinkjax.studies.judging import evidence, readings, verdicts
from sinkjax.studies.readings import Parts
from sinkjax.studies.results import Results
from sinkjax.studies.scope import Contrast
from sinkjax.studies.vocabulary import *
from tests.studies.stores import Numbers, planted

SEEN, NEXT, SIZE, SIZE_1 = attention_to(0), attention_to(1), largest_activation(0), largest_activation(1)
THERE, SIZE_THERE = attention_to(F.spot), largest_activation(F.spot)
FIRST, MASKED, AXES, LEVELS = at("masks", layer(0)), at("masks", ALL), at("axes"), at("levels", ALL)
BASE, EDITED = np.array([10.0, 20, 30, 40]), np.array([16.0, 28, 33, 44])


def study(**claims: Claim) -> Study:
    return Study(
        name="mine/planted",
        settings={"spots": setting((2, 3)), "strengths": setting((-4.0, -1.0, -2.0))},
        grids={
            "masks": grid(mask_key(0), layer(0) | ALL),
            "axes": grid(attend_self(F.spot), over={"spot": F.spots}),
            "levels": grid(add_logit(F.spot, F.strength), layer(0) | ALL, over={"spot": F.spots, "strength": F.strengths}),
            "text": grid(),
        },
        controls={"masks": draws(mask_key(random_position(but=0))), "axes": draws(cut_links(F.spot))},
        claims=claims,
    )


def results(numbers: Callable[[str, Point], Numbers], contrast: Any, **settings: Any) -> Results:
    few = {"prompts": 4, "control_prompts": 3, "controls": 2, "length": 12, **settings}
    return planted(study(it=Claim(contrast)), numbers, **few)


def parts(contrast: Contrast, numbers: Callable[[str, Point], Numbers], **settings: Any) -> Parts:
    found = results(numbers, contrast, **settings)
    return contrast.evaluate(readings(study(it=Claim(contrast)), found))


def simple(store: str, point: Point) -> Numbers:
    """Key 0 from BASE to EDITED in all layers, key 1 from 1 to 7; control c adds c to key 0 and 2 c to key 1."""
    if point.draw >= 0:
        return {("seen", 0): BASE + point.draw, ("seen", 1): 1 + 2 * point.draw, ("size", 0): 100 * np.e**point.draw}
    if point.place == ALL:
        return {("seen", 0): EDITED, ("seen", 1): 7, ("size", 0): 50, ("size", 1): 400, ("loss",): 5}
    if point.place == layer(0):
        return {("seen", 0): BASE / 2, ("seen", 1): 3, ("size", 0): 80, ("size", 1): 10, ("loss",): 3}
    return {("seen", 0): BASE, ("seen", 1): 1, ("size", 0): 100, ("size", 1): 4, ("loss",): 2}


def same(found: Any, expected: Any) -> None:
    assert (found is None) == (expected is None)
    if expected is not None:
        np.testing.assert_allclose(found, np.broadcast_to(expected, np.shape(found)), rtol=1e-9, atol=1e-9)


def test_an_effect_is_edited_minus_unedited_and_its_whole_the_unedited_value():
    found = parts(effect(SEEN, MASKED), simple)
    same(found.contrast, EDITED - BASE)
    same(found.whole, BASE)
    assert found.controls is not None
    assert found.controls.shape == (2, 3)
    same(found.controls, [[0, 0, 0], [1, 1, 1]])
    assert (found.range, found.unit, found.relative) == ((0, 100), "percentage points", True)
    assert found.label == "effect on attention to key 0 in layer 0, mean over heads (%)"


def test_what_moved_is_a_share_of_another_measure():
    found = parts(moved(SEEN, NEXT, MASKED), simple)
    same(found.contrast, 6)
    same(found.whole, BASE)
    same(found.controls, [[0, 0, 0], [2, 2, 2]])
    assert not found.relative


def test_above_is_taken_from_the_whole():
    same(parts(effect(SEEN, MASKED, above=NEXT), simple).whole, BASE - 1)


def test_sizes_are_compared_in_logarithms():
    found = parts(effect(SIZE, MASKED), simple)
    same(found.contrast, np.log(50 / 100))
    same(found.controls, [[0, 0, 0], [1, 1, 1]])
    assert (found.whole, found.range, found.unit) == (None, None, "log")
    found = parts(moved(SIZE, SIZE_1, MASKED), simple)
    same(found.contrast, np.log(400 / 4))
    same(found.whole, np.log(100 / 4))  # the way from its unedited value to that of the first
    same(parts(effect(SIZE, MASKED, above=SIZE_1), simple).whole, np.log(100 / 4))


def test_a_difference_is_between_conditions():
    found = parts(difference(SEEN, MASKED, FIRST), simple)
    same(found.contrast, EDITED - BASE / 2)
    same(found.whole, EDITED)
    assert found.controls is None
    same(parts(difference(SEEN, MASKED, FIRST, whole=NEXT), simple).whole, 1)
    sizes = parts(difference(SIZE_1, MASKED, FIRST), simple)
    same(sizes.contrast, np.log(400 / 10))
    same(sizes.whole, np.log(400 / 4))
    same(parts(difference(SIZE_1, MASKED, FIRST, whole=SIZE), simple).whole, np.log(100 / 4))


def test_a_damage_is_undone_in_part():
    found = parts(recovered(loss(), MASKED, FIRST), simple)
    same(found.contrast, 5 - 3)
    same(found.whole, 5 - 2)
    assert (found.range, found.whole_range, found.unit) == (None, None, "nats")
    same(found.controls, 5 - 1)  # of controls with a loss of 1
    bounded = parts(recovered(SEEN, MASKED, FIRST, whole=FIRST), simple)
    same(bounded.whole, EDITED - BASE / 2)
    assert bounded.whole_range == (-100, 100)


def test_a_part_of_a_fall_is_counted_downwards():
    rise, fall = (parts(part(SEEN, MASKED, MASKED, falls=falls), simple) for falls in (False, True))
    same(rise.contrast, EDITED - BASE)
    same(rise.whole, EDITED - BASE)
    for name in ("contrast", "whole", "controls"):
        same(getattr(fall, name), -getattr(rise, name))


def test_an_unedited_number_and_what_it_has_more_than_another():
    same(parts(unedited(SEEN, "text"), simple).contrast, BASE)
    assert parts(unedited(SEEN, "text"), simple).whole is None
    found = parts(unedited(SEEN, "text", minus=NEXT), simple)
    same(found.contrast, BASE - 1)
    same(found.whole, BASE)
    sizes = parts(unedited(SIZE, "text", minus=SIZE_1), simple)
    same(sizes.contrast, np.log(100 / 4))
    assert sizes.whole is None


def test_two_measures_are_compared_under_the_same_conditions():
    found = parts(compared(SEEN, NEXT, MASKED), simple)
    same(found.contrast, EDITED - 7)
    same(found.whole, BASE)
    assert parts(compared(SIZE, SIZE_1, MASKED), simple).whole is None


def by_spot(store: str, point: Point) -> Numbers:
    """10 at position 2 and 20 at 3; edited 5 and 9 more at the query's own place, controls 1 and 2, and the next 1 more."""
    spot = dict(point.bound).get("spot", 0)
    gain = {0: 0, 2: 5, 3: 9}[spot] if point.draw < 0 else spot - 1 + point.draw
    return {("seen", 2): 10 + gain * (spot == 2) + BASE, ("seen", 3): 20 + gain * (spot == 3) + BASE}


def test_each_position_is_read_at_its_own_place_and_compared_with_itself():
    found = parts(effect(THERE, AXES), by_spot)
    same(found.contrast, [[5, 9]] * 4)
    same(found.whole, np.stack([10 + BASE, 20 + BASE], axis=-1))
    assert found.controls is not None
    assert found.controls.shape == (2, 3, 2)
    same(found.controls[0], [[1, 2]] * 3)
    same(found.controls[1], [[2, 3]] * 3)
    same(parts(effect(THERE, at("axes", fixed={"spot": 3})), by_spot).contrast, 9)


def levels(store: str, point: Point) -> Numbers:
    """Attention by strength: -4: 1, -2: 4, -1: 10, three times as much at position 3, and none in the first layer alone."""
    here = dict(point.bound)
    if point.place != ALL or "strength" not in here:
        return {}
    return {("seen", 0): {-4.0: 1, -2.0: 4, -1.0: 10}[here["strength"]] * (3 if here["spot"] == 3 else 1)}


def line(*values: float) -> float:
    """The rise of a straight line through values."""
    rise: float = (len(values) - 1) * np.polyfit(range(len(values)), values, 1)[0]
    return rise


def test_a_slope_is_a_line_over_the_order_of_an_axis_for_each_value_of_the_others():
    for fixed, expected in (({"spot": 2}, line(1, 4, 10)), ({"spot": 3}, line(3, 12, 30))):
        found = parts(slope(SEEN, at("levels", ALL, fixed), "strength"), levels)
        same(found.contrast, expected)
        assert (found.whole, found.controls) == (None, None)
    same(parts(slope(SEEN, at("levels", ALL), "strength"), levels).contrast, [[line(1, 4, 10), line(3, 12, 30)]] * 4)


def test_a_slope_needs_two_values():
    with pytest.raises(SinkjaxError, match=r"a slope needs two values of strength, and .* has 1"):
        parts(slope(SEEN, at("levels", ALL, {"strength": -1.0}), "strength"), levels)


def test_controls_that_are_all_there_are_count_as_such():
    assert not parts(effect(SEEN, MASKED), simple).all_controls
    found = parts(effect(SEEN, MASKED), simple, controls=40)
    assert found.all_controls
    assert found.controls is not None
    assert len(found.controls) == 12 - 2  # neither key 0 nor the last


BOUNDED = [
    effect(SEEN, MASKED),
    effect(SEEN, MASKED, whole=NEXT),
    effect(SEEN, MASKED, whole=NEXT, above=SEEN),
    effect(SEEN, MASKED, whole=loss()),
    difference(SEEN, MASKED, FIRST),
    difference(SEEN, MASKED, FIRST, whole=NEXT),
    recovered(SEEN, MASKED, FIRST, whole=FIRST),
    part(SEEN, MASKED, FIRST, falls=True),
    slope(SEEN, LEVELS, "strength"),
    unedited(SEEN, "text", minus=NEXT),
    compared(SEEN, NEXT, MASKED),
    compared(SEEN, loss(), MASKED),
]


@pytest.mark.parametrize("contrast", BOUNDED, ids=str)
@hypothesis.given(seed=st.integers(0, 2**32 - 1))
@hypothesis.settings(max_examples=10)
def test_no_value_of_a_measure_leaves_the_range_of_its_contrast(contrast, seed):
    """The judgement refuses numbers outside of their ranges; bets on a range that is too small could not lose."""
    rng = np.random.default_rng(seed)

    def extreme(store: str, point: Point) -> Numbers:
        return {key: 100.0 * rng.integers(0, 2, 4) for key in (("seen", 0), ("seen", 1), ("loss",))}

    found = results(extreme, contrast, strengths=(-5.0, -4.0, -3.0, -2.0, -1.0))
    read = readings(study(it=Claim(contrast)), found)
    numbers = contrast.evaluate(read)
    judge(evidence(contrast, numbers, read))


def test_the_range_of_a_slope_is_that_of_the_steepest_line():
    def step(store: str, point: Point) -> Numbers:
        return {("seen", 0): 100.0 * (dict(point.bound).get("strength", 0) > -3)}

    found = parts(slope(SEEN, LEVELS, "strength"), step, strengths=(-5.0, -4.0, -2.0, -1.0))
    assert found.range == (0.0, pytest.approx(found.contrast.max()))
    assert found.contrast.max() > 100


@pytest.mark.parametrize("contrast", [effect, functools.partial(recovered, harmed=at("axes", fixed={"spot": 20})), part])
@pytest.mark.parametrize(("spot", "every"), [(2, True), (20, False)])
def test_the_controls_of_a_condition_are_counted_alone(contrast, spot, every):
    """Of two earlier positions there are two controls, and of twenty as many as were asked for."""
    where = at("axes", fixed={"spot": spot})
    arguments = {effect: {"where": where}, part: {"where": where, "of": where}}.get(contrast, {"kept": where})
    word = contrast(SEEN, **arguments)
    mine = study(it=Claim(word))
    mine = dataclasses.replace(mine, controls={"axes": draws(attend_self(random_position(below=F.spot)))})
    found = planted(mine, simple, prompts=4, control_prompts=3, controls=8, length=24, spots=(2, 20))
    numbers = word.evaluate(readings(mine, found))
    assert (len(numbers.controls), numbers.all_controls) == (2 if every else 8, every)


# Words.

N = 64
SPREAD = np.resize([-1.0, 1.0, -0.5, 0.5], N)


def moves(whole: Any = 60.0, gain: Any = 50.0, control: Any = 1.0, twin: Any = 0.0) -> Callable[[str, Point], Numbers]:
    """Key 0 has `whole`, which rises by `gain`, and by `control` under controls, at key 1."""

    def numbers(store: str, point: Point) -> Numbers:
        if point.place is None:
            added: Any = 0
        elif store.endswith("-twin"):
            added = twin
        else:
            added = gain if point.draw < 0 else control + point.draw / 100
        return {("seen", 0): whole + SPREAD * (whole != 0), ("seen", 1): 5 + added + SPREAD / 2 * (point.place is not None)}

    return numbers


def judged(claim: Claim, numbers: Callable[[str, Point], Numbers], random: str = "", **options: Any) -> Verdict:
    """The verdict on planted numbers. random: a grid whose prompts are not text."""
    mine = study(it=claim)
    found = planted(mine, numbers, **{"prompts": N, "control_prompts": N, "controls": 20, "length": 30, **options})
    if random:
        found.stores[random].attrs["study"] = {}
    (one,) = verdicts(mine, found)
    return one


MOVES = moved(SEEN, NEXT, MASKED)


@pytest.mark.parametrize(
    ("numbers", "word"),
    [
        (moves(), "replicates"),
        (moves(gain=20.0), "weaker"),
        (moves(gain=30.0 + 10 * SPREAD), "shown"),  # half of 60
        (moves(whole=90.0, gain=1.2), "differs"),  # less than a tenth
        (moves(gain=-5.0, control=15.0), "differs"),
        (moves(gain=1.0 + 20 * SPREAD, whole=30.0), "undecided"),
        (moves(whole=0.0), "untested"),
        (moves(twin=50.0), "replicates (untrained too)"),
        (moves(twin=20.0), "replicates"),  # less than half
        (moves(gain=20.0, twin=50.0), "weaker"),
    ],
)
def test_a_planted_effect_has_its_word(numbers, word):
    found = judged(Claim(contrast=MOVES), numbers)
    assert found.word == word, found.judgement
    assert (found.kind, found.name) == ("claim", "it")


def test_a_negative_sign_turns_the_claim_round():
    falls = judged(Claim(contrast=effect(SEEN, FIRST), sign=-1), _falls(75.0))
    label = "minus the effect on attention to key 0 in layer 0, mean over heads (%), less the mean of its controls"
    assert (falls.word, falls.label) == ("replicates", label)
    assert judged(Claim(contrast=effect(SEEN, FIRST, controls=False), sign=-1), _falls(75.0)).label in label
    assert judged(Claim(contrast=effect(SEEN, FIRST)), _falls(75.0)).word == "differs"


def _falls(by: float, whole: float = 90.0) -> Callable[[str, Point], Numbers]:
    """The edit, and neither its controls nor the untrained model, takes something from key 0."""

    def numbers(store: str, point: Point) -> Numbers:
        edited = point.place is not None and point.draw < 0 and not store.endswith("-twin")
        return {("seen", 0): whole + SPREAD - (by + SPREAD / 2) * edited}

    return numbers


@pytest.mark.parametrize(
    ("by", "word"), [(0.0, "replicates (untrained too)"), (22.0, "weaker"), (70.0, "differs"), (45.0, "undecided")]
)
def test_what_stays_has_its_own_words(by, word):
    assert judged(Claim(contrast=effect(SEEN, MASKED), stays=True), _falls(by)).word == word


def test_an_effect_among_those_of_its_controls_is_not_shown():
    beaten = judged(Claim(contrast=MOVES), _mixed)
    assert beaten.word == "undecided"
    assert beaten.judgement.rank is not None
    assert (beaten.judgement.rank.below, beaten.judgement.rank.of) == (17, 20)
    assert "above 17 of 20 controls" in beaten.judgement.reason


def _mixed(store: str, point: Point) -> Numbers:
    """Three of twenty controls do more than the edit."""
    return moves(control=60.0 if point.draw >= 17 else 1.0)(store, point)


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        (Claim(contrast=difference(SEEN, FIRST, MASKED)), "the conditions that are subtracted are the comparison"),
        (Claim(contrast=effect(NEXT, MASKED, controls=False)), "no random edits were drawn for these conditions"),
        (Claim(contrast=effect(SEEN, MASKED, controls=False), stays=True), "a claim that something stays needs none"),
    ],
)
def test_a_row_without_controls_says_why(claim, why):
    found = judged(claim, moves())
    assert found.judgement.rank is None
    assert f"; no controls: {why}" in found.numbers
    assert found.twin is not None
    cells = next(csv.DictReader(io.StringIO(verdicts_csv("mine", [found]))))
    assert cells["method"] == f"{found.judgement.method}; no controls: {why}"


def test_a_row_with_controls_gives_no_reason_for_having_none():
    found = judged(Claim(contrast=MOVES), moves())
    assert found.judgement.rank is not None
    assert found.uncontrolled == ""
    assert "no controls" not in found.numbers + verdicts_csv("mine", [found])


def test_a_slope_says_why_it_has_no_controls():
    claim = Claim(contrast=slope(SEEN, at("levels", ALL), "strength"))
    found = judged(
        claim, lambda store, point: {("seen", key): 10.0 * key - dict(point.bound).get("strength", 0) for key in (2, 3)}
    )
    assert "; no controls: the other values of the axis are the comparison" in found.numbers


def test_too_few_controls_show_nothing_unless_there_are_no_more():
    assert judged(Claim(contrast=MOVES), moves(), controls=19).word == "undecided"
    assert judged(Claim(contrast=MOVES), moves(), controls=40, length=12).word == "replicates"


@pytest.mark.parametrize(
    ("premise", "word", "reason"),
    [
        (reaches(SEEN, "masks", 59.0), "replicates", ""),
        (reaches(SEEN, "masks", 61.0), "untested", r"attention to key 0 .* is 60, and must be at least 61"),
        (below(SEEN, "masks", 61.0), "replicates", ""),
        (below(SEEN, "masks", percent(0.5)), "untested", "must be below 50"),
        (all_of((reaches(SEEN, "masks", 59.0), below(NEXT, "masks", 2.0))), "untested", "key 1 .* is 5, and must be below 2"),
        (all_of((reaches(SEEN, "masks", 59.0), below(NEXT, "masks", 6.0))), "replicates", ""),
    ],
)
def test_a_premise_of_the_paper_comes_first(premise, word, reason):
    import re

    found = judged(Claim(contrast=MOVES, given=premise), moves())
    assert found.word == word
    assert re.search(reason, found.judgement.reason)


def test_a_grid_that_did_not_run_leaves_its_claims_untested():
    found = judged(Claim(contrast=MOVES), moves(), absent={"masks": "the model has no BOS"})
    assert (found.word, found.judgement.reason) == ("untested", "the model has no BOS")


@pytest.mark.parametrize(("apart", "word"), [(0.0, "holds"), (0.0009, "holds"), (0.0011, "fails")])
def test_an_identity_holds_in_every_document_or_fails(apart, word):
    def numbers(store: str, point: Point) -> Numbers:
        return {("loss",): 3.0 + apart * (point.place == ALL) * (np.arange(N) == 7)}

    found = judged(Claim(contrast=same_loss()), numbers)
    assert (found.word, found.kind) == (word, "identity")


def same_loss() -> Any:
    from sinkjax.studies.premises import same as identity

    return identity(loss(), FIRST, MASKED, 0.001)


def test_genres_are_the_samples_where_there_are_some():
    alone = judged(Claim(contrast=MOVES), moves())
    genres = [f"genre {number % 16}" for number in range(N)]
    clustered = judged(Claim(contrast=MOVES), moves(), about={"genres": genres})
    assert (alone.judgement.n, clustered.judgement.n) == (N, 16)
    assert "clusters of 64" in clustered.judgement.method
    one = judged(Claim(contrast=MOVES), moves(), about={"genres": ["fiction"] * N})
    assert one.judgement.n == N
    beside = judged(Claim(contrast=MOVES), moves(), about={"genres": genres}, random="text")
    assert beside.judgement.n == 16
    random = judged(Claim(contrast=unedited(SEEN, "text", minus=NEXT)), moves(), about={"genres": genres}, random="text")
    assert random.judgement.n == N


def test_four_genres_that_differ_decide_less_than_64_documents():
    """An effect in one genre of four is shown by documents, which are not independent, and by genres it is not."""
    genre = np.arange(N) % 4
    numbers = moves(gain=40.0 * (genre == 0))
    assert judged(Claim(contrast=MOVES), numbers).word in ("shown", "weaker")
    assert judged(Claim(contrast=MOVES), numbers, about={"genres": [str(one) for one in genre]}).word == "undecided"


def test_documents_and_positions_are_crossed():
    found = judged(Claim(contrast=effect(THERE, AXES)), _at_spots, spots=tuple(range(2, 14)), controls=2)
    assert found.judgement.n == 12
    assert "64 documents x 12 positions" in found.judgement.method
    assert found.judgement.D is not None
    assert found.judgement.D.mean == pytest.approx(np.mean(range(2, 14)) - 0.005, abs=0.01)


def _at_spots(store: str, point: Point) -> Numbers:
    """At each position the edit adds as many points as the position is far; a control adds a hundredth of its number."""
    spot = dict(point.bound).get("spot", 0)
    gain = spot if point.draw < 0 else point.draw / 100
    return {("seen", place): 10 + SPREAD + gain * (place == spot) for place in range(2, 14)}


def test_further_readouts_stand_beside_without_a_word():
    found = judged(Claim(contrast=MOVES, beside=(effect(SIZE, MASKED),)), moves())
    (line,) = found.beside
    assert line.startswith("effect on largest |h| at position 0, over the geometric mean of its controls: 1 times")


def test_settings_are_filled_into_the_statement():
    found = judged(Claim(contrast=MOVES, statement="At {spots} of {length}, {other}.", source="here", paper="9%"), moves())
    assert (found.statement, found.source, found.paper) == ("At 2, 3 of 30, {other}.", "here", "9%")


def test_controls_that_no_testable_claim_needs_are_not_named(monkeypatch: pytest.MonkeyPatch):
    def notes() -> list[str]:
        claim = Claim(contrast=effect(SEEN, MASKED), given=attention_unnormed())
        found = planted(study(it=claim), simple, prompts=4, control_prompts=3, controls=2, length=12)
        return [note for note in standard_notes(found) if note.startswith("Controls: ")]

    assert len(notes()) == 2
    monkeypatch.setattr("tests.studies.stores.SimpleNamespace", functools.partial(SimpleNamespace, head_norm="rms"))
    assert len(notes()) == 1  # of the other grid, which no claim reads
