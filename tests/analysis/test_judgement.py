"""The rule of judgement: its words at their edges, what must not change them, and its rates of false words by simulation."""

from __future__ import annotations

import csv
import dataclasses
import importlib
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sinkjax.analysis.evidence import Evidence, Judgement, Rank
from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.judgement import LARGE, SMALL, T_ERRORS, identity, judge, supports, t_error, untested, with_twin, word_of
from sinkjax.analysis.verdicts import Verdict
from sinkjax.errors import SinkjaxError

ROOT = Path(__file__).parents[2]
SIDES = st.sampled_from([-1, 0, 1])
NAN = math.nan


def place(low, high):
    """c -> the side of the interval [low, high]."""
    return lambda c: int(low > c) - int(high < c)


@pytest.mark.parametrize(
    ("d", "s", "word"),
    [
        (1, (0.51, 0.9), "replicates"),
        (1, (0.5, 0.9), "shown"),
        (1, (0.3, 0.8), "shown"),
        (1, (0.2, 0.5), "shown"),
        (1, (0.2, 0.49), "weaker"),
        (1, (0.05, 0.3), "weaker"),
        (1, (0.01, 0.09), "differs"),
        (1, (0.01, 0.1), "weaker"),
        (1, None, "replicates"),
        (0, (0.51, 0.9), "undecided"),  # S lies above 1/2, but not above the controls
        (0, (-0.09, 0.09), "differs"),
        (0, (-0.1, 0.09), "undecided"),
        (0, (-0.3, 0.3), "undecided"),
        (0, None, "undecided"),
        (-1, (-0.9, -0.2), "differs"),
        (-1, (-0.05, -0.01), "differs"),
        (-1, None, "differs"),
    ],
)
def test_words_on_effects_at_their_edges(d, s, word):
    assert word_of(d, None if s is None else place(*s)) == word


@pytest.mark.parametrize(
    ("s", "word"),
    [
        ((-0.09, 0.09), "replicates"),
        ((-0.1, 0.09), "weaker"),
        ((-0.09, 0.1), "weaker"),
        ((0.2, 0.49), "weaker"),
        ((-0.49, 0.49), "weaker"),
        ((-0.5, 0.3), "undecided"),
        ((0.3, 0.5), "undecided"),
        ((0.3, 0.7), "undecided"),
        ((0.5, 0.7), "undecided"),
        ((0.51, 0.7), "differs"),
        ((-0.9, -0.51), "differs"),
        ((-0.9, 0.9), "undecided"),
    ],
)
def test_words_on_what_stays_at_their_edges(s, word):
    for d in (-1, 0, 1):
        assert word_of(d, place(*s), stays=True) == word


@given(d=SIDES, stays=st.booleans(), ends=st.tuples(st.floats(-1, 1), st.floats(-1, 1)).map(sorted))
def test_there_is_always_one_word_and_a_mirrored_contrast_never_has_the_same_strong_one(d, stays, ends):
    word = word_of(d, place(*ends), stays)
    mirrored = word_of(-d, place(-ends[1], -ends[0]), stays)
    assert {word, mirrored} <= {"replicates", "weaker", "shown", "differs", "undecided"}
    if stays:
        assert word == mirrored
    elif d > 0:
        assert mirrored == "differs"


def shares(n=64, effect=0.4, whole=0.6, spread=0.05, seed=0):
    """Contrast and whole of a measure between 0 and 1."""
    rng = np.random.default_rng(seed)
    return effect + spread * rng.uniform(-1, 1, n), whole + spread * rng.uniform(-1, 1, n)


def worded(effect, whole=0.6, n=400, sign=1, stays=False, **more):
    contrast, of_whole = shares(n, effect, whole)
    return judge(Evidence(contrast, whole=of_whole, range=(0, 1), **more), sign=sign, stays=stays)


def test_each_word_follows_from_samples():
    assert [worded(effect).word for effect in (0.5, 0.3, 0.15, 0.0, -0.4)] == [
        "replicates",
        "shown",
        "weaker",
        "differs",
        "differs",
    ]
    assert [worded(effect, stays=True).word for effect in (0.5, 0.3, -0.15, 0.0)] == [
        "differs",
        "undecided",
        "weaker",
        "replicates",
    ]
    assert worded(0.05, n=20).word == "undecided"
    assert worded(-0.5, sign=-1).word == "replicates"
    found = worded(0.5)
    assert found.D.low < 0.5 < found.D.high
    assert found.S.low < 0.5 / 0.6 < found.S.high
    assert found.W.low < 0.6 < found.W.high
    assert (found.n, found.error, found.method) == (400, None, "95% betting interval, 400 documents")


@pytest.mark.parametrize("n", [8, 40])
@given(seed=st.integers(0, 1000), effect=st.floats(-0.5, 0.5), stays=st.booleans(), bounded=st.booleans())
@settings(max_examples=12)
def test_sign_scale_and_order_change_no_word(n, seed, effect, stays, bounded):
    contrast, whole = shares(n, effect, 0.7, 0.1, seed)
    controls = np.random.default_rng(seed).normal(0, 0.02, (20, n))
    span = (0.0, 1.0) if bounded else None
    first = Evidence(contrast, controls, whole, span)
    order = np.random.default_rng(seed).permutation(n)
    same = [
        (Evidence(-contrast, -controls, whole, span), -1),
        *((Evidence(k * contrast, k * controls, k * whole, span and (0.0, k)), 1) for k in (3.0, 2.0**-40, 2.0**40)),
        (Evidence(contrast[order], controls[:, order], whole[order], span), 1),
        (Evidence(contrast, controls[::-1], whole, span), 1),
    ]
    alone = [judge(Evidence(k * contrast, None, None, span and (0.0, k))).word for k in (1.0, 2.0**-40)]
    assert alone[0] == alone[1]
    expected = judge(first, stays=stays)
    for evidence, sign in same:
        found = judge(evidence, sign=sign, stays=stays)
        assert (found.word, found.rank, found.n, found.reason == "") == (expected.word, expected.rank, n, expected.reason == "")
        if found.S is not None:
            np.testing.assert_allclose((found.S.low, found.S.high), (expected.S.low, expected.S.high), rtol=1e-6, atol=1e-6)


@given(
    values=st.lists(st.sampled_from([-1.0, -0.3, 0.0, 0.25, 1.0, NAN, math.inf]), max_size=20),
    whole=st.sampled_from([-1.0, 0.0, 0.3, 1.0]),
    stays=st.booleans(),
    bounded=st.booleans(),
    controlled=st.booleans(),
)
@settings(max_examples=60)
def test_any_samples_have_one_word(values, whole, stays, bounded, controlled):
    assume(not bounded or whole >= 0)
    contrast = np.array(values, float)
    evidence = Evidence(
        contrast, np.zeros((20, len(values))) if controlled else None, np.full(len(values), whole), (0, 1) if bounded else None
    )
    found = judge(evidence, stays=stays)
    assert found.word in ("replicates", "weaker", "shown", "differs", "undecided", "untested")
    assert found.reason or found.word == "replicates"
    assert found.D.n == np.isfinite(contrast).sum()
    assert found.D.n + found.D.excluded == len(values)
    if not bounded and (found.D.n < 2 or np.ptp(contrast[np.isfinite(contrast)]) == 0):
        assert found.word in ("undecided", "untested")


def test_a_word_other_than_replicates_names_the_number_and_its_line():
    whole = np.full(400, 0.6)

    def reason(effect, **more):
        contrast, _ = shares(400, effect)
        return judge(Evidence(contrast, whole=whole, range=(0, 1)), **more).reason

    assert re.fullmatch(r"The interval of D, -0\.\d+ \[.*\], lies below 0\.", reason(-0.5))
    assert re.fullmatch(r"S, .* \[.*\], lies inside ±0\.1\.", reason(0.0))
    assert re.fullmatch(r"D is above 0, but S, .* \[.*\], lies below 0\.5\.", reason(0.15))
    assert re.fullmatch(r"S, .* \[.*\], lies wholly beyond ±0\.5\.", reason(0.5, stays=True))
    assert re.fullmatch(r"S, .* \[.*\], lies inside ±0\.5, but not inside ±0\.1\.", reason(-0.15, stays=True))
    assert reason(0.5) == reason(0.0, stays=True) == ""


def test_few_clusters_without_spread_are_counted_in_the_reason():
    genres, whole = np.repeat(["news", "code", "poems", "law"], 4), np.linspace(0.5, 0.7, 16)
    alike = judge(Evidence(np.full(16, 0.3), whole=whole, range=(0, 1), clusters=genres))
    said = "The samples do not differ (4 clusters of 16 documents), so Student's t has no spread to use, and bets judge."
    assert (alike.word, alike.n) == ("undecided", 4)
    assert alike.reason.endswith(said)
    unbounded = judge(Evidence(np.full(16, 0.3), clusters=genres))
    assert unbounded.reason == "There is no interval: no spread among 4 clusters of 16 documents."
    spread = judge(Evidence(whole - 0.5, whole=whole, range=(0, 1), clusters=genres))
    assert "do not differ" not in spread.reason


def test_nothing_is_a_share_of_a_whole_that_may_be_0():
    rng = np.random.default_rng(0)
    contrast, whole = 5 + rng.normal(0, 0.1, 30), rng.normal(0, 1, 30)
    whole += 0.1 - whole.mean()
    found = judge(Evidence(contrast, whole=whole))
    assert (found.word, found.S) == ("untested", None)
    assert found.W.low < 0 < found.W.high
    assert "not shown to be above 0" in found.reason
    assert judge(Evidence(contrast, whole=whole), stays=True).word == "untested"
    assert judge(Evidence(contrast, whole=whole - 5)).word == "untested"  # a whole below 0 is none either
    assert judge(Evidence(contrast, whole=whole + 5)).word == "replicates"
    assert judge(Evidence(contrast)).word == "replicates"


def test_samples_without_spread_prove_nothing_by_themselves():
    whole = np.random.default_rng(0).uniform(0.5, 0.7, 8)
    assert judge(Evidence(np.zeros(8), whole=whole, range=(0, 1))).word == "undecided"
    assert judge(Evidence(np.zeros(8), whole=whole, range=(0, 1)), stays=True).word == "undecided"
    unbounded = judge(Evidence(np.full(8, 2.0), whole=whole))
    assert (unbounded.word, unbounded.reason) == ("undecided", "There is no interval: no spread among 8 documents.")
    assert unbounded.error is None
    multiple = judge(Evidence(0.9 * whole, whole=whole, range=(0, 1)))
    assert (multiple.word, multiple.method) == ("shown", "95% t and betting interval, 8 documents")
    rounding = 1e-9 * np.random.default_rng(1).standard_normal(8)
    assert judge(Evidence(rounding, whole=whole, range=(0, 1))).word == "undecided"
    assert judge(Evidence(0.3 * whole + rounding, whole=whole)).reason.startswith("D is above 0, but S")
    many = np.random.default_rng(0).uniform(0.5, 0.7, 200)
    assert judge(Evidence(np.zeros(200), whole=many, range=(0, 1)), stays=True).word == "replicates"


@pytest.mark.parametrize(("of", "needed"), [(20, 20), (39, 38), (40, 39), (99, 95), (1, 1), (8, 8), (18, 18)])
def test_one_more_control_lies_above_the_others_in_5_percent_of_cases_at_most(of, needed):
    assert Rank(needed, 0, of).above
    assert not Rank(needed - 1, 1, of).above
    chance = (of - needed + 1) / (of + 1)  # a rank among exchangeable numbers
    assert chance <= 0.05 or needed == of
    assert needed == of or (of - needed + 2) / (of + 1) > 0.05  # no fewer would do


def test_an_effect_must_lie_above_its_controls():
    contrast, whole = shares(40, 0.5)
    rng = np.random.default_rng(1)

    def found(means, **more):
        means = np.asarray(means, float)
        return judge(Evidence(contrast, means[:, None] + 0.01 * rng.uniform(-1, 1, (len(means), 40)), whole, (0, 1), **more))

    assert found(np.zeros(20)).word == "replicates"
    assert found(np.zeros(20)).rank == Rank(20, 0, 20)
    one = found([*np.zeros(19), 0.8])
    assert (one.word, one.rank) == ("undecided", Rank(19, 0, 20))
    assert one.reason == "D is above 0, but the contrast lies above 19 of 20 controls, and 20 are needed."
    few = found(np.zeros(19))
    assert (few.word, few.reason) == ("undecided", "D is above 0, but there are 19 controls, and fewer than 20 show nothing.")
    assert found(np.zeros(5), all_controls=True).word == "replicates"
    assert found([0, 0, 0, 0, 0.9], all_controls=True).word == "undecided"
    same = judge(Evidence(contrast, np.stack([contrast] * 20), whole, (0, 1)))
    assert (same.rank, same.word) == (Rank(0, 20, 20), "undecided")


def test_controls_on_fewer_documents_limit_the_documents():
    contrast, whole = shares(64)
    found = judge(Evidence(contrast, np.zeros((20, 10)), whole, (0, 1)))
    alone = judge(Evidence(contrast[:10], np.zeros((20, 10)), whole[:10], (0, 1)))
    assert (found.D.n, found.D.excluded, found.n) == (10, 54, 10)
    assert (found.D.low, found.S.high) == (alone.D.low, alone.S.high)


def test_what_is_not_finite_leaves_out_its_document_everywhere():
    contrast, whole = shares(30)
    controls = np.random.default_rng(2).uniform(-0.1, 0.1, (20, 30))
    keep = np.ones(30, bool)
    keep[[3, 7, 11]] = False
    clean = judge(Evidence(contrast[keep], controls[:, keep], whole[keep], (0, 1)))
    contrast[3], whole[7], controls[5, 11] = NAN, math.inf, NAN
    found = judge(Evidence(contrast, controls, whole, (0, 1)))
    assert (found.D.n, found.D.excluded, found.W.n, found.S.n) == (27, 3, 27, 27)
    assert (found.word, found.rank, found.D.mean, found.D.low, found.S.low) == (
        *(clean.word, clean.rank, clean.D.mean, clean.D.low, clean.S.low),
    )
    assert judge(Evidence(np.full(5, NAN), whole=np.ones(5))).word == "untested"
    assert judge(Evidence(np.full(5, NAN))).reason == "There is no interval: no finite samples."


def test_a_cluster_counts_as_one_sample():
    rng = np.random.default_rng(4)
    genres = np.repeat(["news", "code", "poems", "law"], [3, 5, 2, 6])
    contrast, whole = rng.normal(1, 0.3, 16), rng.normal(2, 0.1, 16)
    controls = rng.normal(0, 0.1, (20, 16))
    found = judge(Evidence(contrast, controls, whole, clusters=genres))
    names = np.unique(genres)
    means = [np.stack([values[..., genres == name].mean(-1) for name in names], -1) for values in (contrast, controls, whole)]
    alone = judge(Evidence(*means))
    assert found.n == alone.n == 4
    np.testing.assert_allclose([found.D.low, found.S.high, found.W.low], [alone.D.low, alone.S.high, alone.W.low], rtol=1e-9)
    assert found.rank == alone.rank
    assert found.method == "95% t interval, 4 clusters of 16 documents"
    assert judge(Evidence(contrast, clusters=np.zeros(16))).reason == "There is no interval: one sample."
    one_each = judge(Evidence(contrast, whole=whole, clusters=np.arange(16)))
    assert one_each.D.low == pytest.approx(judge(Evidence(contrast, whole=whole)).D.low)


def test_a_rank_weighs_clusters_as_the_contrast_does():
    contrast = np.array([1.0, 1.1, 0.9, 9.0])
    controls = np.tile([2.0, 2.1, 1.9, 2.2], (20, 1)) + np.linspace(0, 0.01, 20)[:, None]
    assert judge(Evidence(contrast, controls, clusters=[0, 0, 0, 1])).rank == Rank(20, 0, 20)  # 5.0 against 2.1 by clusters
    assert judge(Evidence(contrast - 5, controls - 3, clusters=[0, 0, 0, 1])).rank == Rank(
        20, 0, 20
    )  # -2 against -0.98 by documents


def test_documents_and_positions_are_crossed():
    rng = np.random.default_rng(6)
    common = rng.normal(0, 0.3, (1, 16))  # an effect of the position, shared by all documents
    contrast = 0.1 + common + rng.normal(0, 0.02, (200, 16))
    found = judge(Evidence(contrast, whole=np.ones((200, 16)), range=(-1, 1), whole_range=(0, 1)))
    assert (found.n, found.method) == (16, "95% two-way t interval, 200 documents x 16 positions")
    assert found.D.high - found.D.low > 0.2  # 3,200 independent cells would have an interval of 0.02
    assert judge(Evidence(contrast.mean(1))).D.high - judge(Evidence(contrast.mean(1))).D.low < 0.01
    assert found.D.low < contrast.mean() < found.D.high
    holes = contrast.copy()
    holes[:3], holes[5, 2] = NAN, NAN
    fewer = judge(Evidence(holes))
    assert (fewer.D.n, fewer.D.excluded) == (197 * 16 - 1, 3 * 16 + 1)
    genres = np.repeat(np.arange(10), 20)
    grouped = judge(Evidence(contrast, clusters=genres))
    assert (grouped.n, grouped.method) == (10, "95% two-way t interval, 10 clusters of 200 documents x 16 positions")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"contrast": np.float64(1.0)}, "float"),
        ({"contrast": np.zeros((2, 2, 2))}, "shape"),
        ({"whole": np.ones(7)}, "whole has shape"),
        ({"whole": np.ones((8, 2))}, "whole has shape"),
        ({"clusters": np.zeros(7)}, "clusters"),
        ({"controls": np.zeros(8)}, "do not fit"),
        ({"controls": np.zeros((20, 9))}, "do not fit"),
        ({"controls": np.zeros((20, 8, 2))}, "do not fit"),
        ({"controls": np.zeros((0, 8))}, "pass None"),
        ({"contrast": np.full(8, 1.5), "range": (0, 1)}, "outside"),
        ({"whole": np.full(8, 1.5), "range": (0, 1)}, "the whole has values"),
        ({"whole": np.full(8, 0.5), "contrast": np.full(8, 0.6), "range": (0, 1), "relative": True}, "the edited value"),
    ],
)
def test_what_does_not_fit_is_refused(wrong, text):
    with pytest.raises(SinkjaxError, match=text):
        judge(Evidence(**{"contrast": np.zeros(8), **wrong}))


def test_signs_and_claims_that_mean_nothing_are_refused():
    with pytest.raises(SinkjaxError, match="sign"):
        judge(Evidence(np.zeros(8)), sign=0)
    with pytest.raises(SinkjaxError, match="needs a whole"):
        judge(Evidence(np.zeros(8)), stays=True)


def test_an_effect_on_the_whole_itself_has_a_shorter_interval():
    rng = np.random.default_rng(8)
    unedited = rng.uniform(0.5, 0.7, 40)
    edited = 0.2 * unedited + rng.uniform(0, 0.05, 40)
    plain, relative = (
        judge(Evidence(edited - unedited, whole=unedited, range=(0, 1), relative=flag), sign=-1) for flag in (False, True)
    )
    assert plain.S.low < relative.S.low
    assert (plain.word, relative.word) == ("shown", "replicates")


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("c", [-0.5, -0.1, 0.0, 0.1, 0.5, 2.0])
def test_ranges_are_the_extremes_of_all_possible_values(relative, sign, c):
    """Edited, unedited and whole at the ends of the range of a measure from 1 to 3."""
    ends = (1.0, 3.0)
    if relative:
        possible = [(sign * (edited - unedited), unedited) for edited in ends for unedited in ends]
    else:
        possible = [(sign * (edited - unedited), whole) for edited in ends for unedited in ends for whole in ends]
    d, w = np.array(possible).T
    found = supports(Evidence(sign * d, range=ends, relative=relative), sign, d, w)
    for values, span in zip((d - c, w - c, d - c * w), found, strict=True):
        assert span(c) == pytest.approx((values.min(), values.max()))


def test_a_twin_counts_where_the_claim_replicates():
    contrast, whole = shares(200, 0.5)
    trained = judge(Evidence(contrast, whole=whole, range=(0, 1)))
    weak = judge(Evidence(contrast / 5, whole=whole, range=(0, 1)))
    assert trained.word == "replicates"
    assert with_twin(trained, trained).printed == "replicates (untrained too)"
    assert with_twin(trained, weak).printed == "replicates"
    assert with_twin(weak, trained).printed == weak.word == "weaker"
    assert with_twin(trained, untested("no sink")).printed == "replicates"
    controlled = dataclasses.replace(trained, word="undecided")  # the twin's controls do not matter, its size does
    assert with_twin(trained, controlled).untrained
    stays = judge(Evidence(contrast / 100, whole=whole, range=(0, 1)), stays=True)
    assert with_twin(stays, stays).printed == "replicates (untrained too)"
    assert with_twin(stays, dataclasses.replace(trained, stays=True, word="differs")).printed == "replicates"
    bare = judge(Evidence(contrast, range=(0, 1)))
    assert with_twin(bare, bare).untrained
    assert (identity(True).word, identity(False).word) == ("holds", "fails")


def test_t_states_its_simulated_error():
    contrast, whole = shares(8)
    found = judge(Evidence(contrast, whole=whole, range=(0, 1)))
    assert found.error == t_error("t", "bounded", 8)
    normal, worst = found.error
    assert normal < 0.07 < 0.3 < worst
    said = Verdict("name", "statement", "source", "paper", found).method
    rates = f"simulated rate of false words {normal:.1%}, on the least favourable shape of data {worst:.0%}"
    assert said == f"95% t interval, 8 documents; {rates}"
    assert judge(Evidence(contrast[:7], range=(0, 1))).error == t_error("t", "bounded", 6)
    assert judge(Evidence(np.tile(contrast, 5) + np.arange(40))).error == t_error("t", "unbounded", 24)
    assert judge(Evidence(contrast.reshape(4, 2), range=(0, 1))).error == t_error("two-way t", "bounded", 2)
    assert t_error("t", "bounded", 1) is None
    assert judge(Evidence(*shares(16)[:1], range=(0, 1))).error is None


# The simulation: scripts/simulate_judgement.py.


@pytest.fixture(scope="module")
def script():
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(ROOT / "scripts"))
    yield importlib.import_module("simulate_judgement")
    patch.undo()


def test_the_simulation_says_the_words_of_judge(script):
    """All draws at once, by the sides at 1/10 and 1/2, as `judge` does one by one by intervals."""
    chosen = [case for case in script.cases((8, 16), (), (64,)) if case.n != 64 or case.shape in script.GAUSSIAN]
    said = set()
    for case in chosen[:: len(chosen) // 40]:
        samples = script.drawn(case, 4, np.random.default_rng(case.n))
        found = script.words(case, samples)
        one_by_one = [
            judge(script.evidence(case, samples, draw), sign=samples.sign, stays=case.claim == "stays").word
            for draw in range(len(found))
        ]
        assert found.tolist() == one_by_one, case
        said |= set(one_by_one)
    assert said >= {"replicates", "weaker", "shown", "differs", "undecided"}


@pytest.mark.parametrize("measure", ["bounded", "unbounded"])
def test_the_truth_of_each_shape_is_at_the_edge(script, measure):
    for case in script.cases((16,), (), ()):
        if case.measure == measure and case.kind == "edge" and case.claim != "stays" and not case.controls.endswith("more"):
            found = script.drawn(case, 1000, np.random.default_rng(0))
            d = found.sign * (found.contrast - (0 if found.controls is None else found.controls.mean(1)))
            w = 1.0 if found.whole is None else found.whole
            rest = (d - case.share * w).mean(axis=tuple(range(1, d.ndim)))
            assert abs(rest.mean()) < 4.5 * rest.std() / math.sqrt(len(rest)), case


def test_false_words_are_as_rare_as_promised(script):
    """A few shapes and sizes of the full simulation, in fewer draws."""
    chosen = [
        case
        for case in script.cases((8, 16, 24), (), ())
        if case.kind == "edge"
        and (case.shape in ("normal", "lognormal", "4% far below", "zero but for 4%", script.CLUSTERED, "crossed, normal"))
    ]
    lines = [script.simulated(case, 300, seed=1) for case in chosen]
    promised = [line for line in lines if line["promised"] == "yes"]
    assert len(promised) > 100
    for line in promised:
        for word in ("replicates", "shown", "differs"):
            assert word not in line["counted"].split() or line[word] <= line["limit"], line
    assert sum(line["rate"] > line["limit"] for line in promised) <= 0.06 * len(promised)
    broken = [line for line in lines if line["promised"] == "no" and line["rate"] > 0.3]
    assert {line["method"] for line in broken} == {"t"}  # and that is said beside the word


def lines_of(name):
    with (ROOT / "docs" / "data" / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_recorded_simulation_keeps_the_promise(script):
    lines = lines_of("judgement_errors.csv")
    assert {(line["shape"], line["n"], line["claim"], line["truth"]) for line in lines} == {
        (case.shape, str(case.n), case.claim, case.truth) for case in script.cases()
    }
    promised = [line for line in lines if line["kind"] == "edge" and line["promised"] == "yes"]
    for line in promised:
        assert int(line["draws"]) >= 2000
        for word in ("replicates", "shown", "differs"):
            assert word not in line["counted"].split() or float(line[word]) <= float(line["limit"]), line
    assert sum(float(line["rate"]) > float(line["limit"]) for line in promised) <= 0.03 * len(promised)
    assert {line["n"] for line in promised} >= {"8", "16", "24", "64"}


def test_the_recorded_lines_are_those_of_the_code(script):
    kept = {tuple(line[name] for name in script.CASE): line for line in lines_of("judgement_errors.csv")}
    for case in list(script.cases())[::190]:
        line = script.simulated(case, 1000)
        same = kept[tuple(str(line[name]) for name in script.CASE)]
        assert {word: float(same[word]) for word in script.WORDS} == pytest.approx(
            {word: line[word] for word in script.WORDS}, abs=0.06
        )


def test_the_page_and_the_errors_of_t_are_made_from_the_recorded_simulation(script, tmp_path):
    (tmp_path / "data").mkdir()
    shutil.copy(ROOT / "docs" / "data" / "judgement_errors.csv", tmp_path / "data")
    page = ROOT / "docs" / "judgements.md"
    shutil.copy(page, tmp_path)
    script.write_page(tmp_path)
    assert (tmp_path / "judgements.md").read_text("utf-8") == page.read_text("utf-8")
    with T_ERRORS.open(encoding="utf-8") as file:
        kept = {
            (row["method"], row["measure"], int(row["n"])): (float(row["normal"]), float(row["worst"]))
            for row in csv.DictReader(file)
        }
    made = script.t_errors(lines_of("judgement_errors.csv"))
    assert kept == {(row["method"], row["measure"], row["n"]): pytest.approx((row["normal"], row["worst"])) for row in made}


def test_a_line_is_the_same_whatever_ran_before_it(script):
    first, *_, last = list(script.cases((8,), (), ()))
    alone = script.simulated(last, 50)
    script.simulated(first, 50)
    assert script.simulated(last, 50) == alone
    assert script.simulated(last, 50, seed=1) != alone


def test_the_script_writes_its_three_files(script, tmp_path):
    chosen = [case for case in script.cases((8, 16), (), ()) if case.shape == "normal"]
    script.main(tmp_path, tmp_path / "t.csv", 50, chosen)
    assert len((tmp_path / "data" / "judgement_errors.csv").read_text().splitlines()) == len(chosen) + 1
    assert (tmp_path / "t.csv").read_text().startswith("method,measure,n,normal,worst\nt,bounded,8,")
    assert "| bounded | effect, S = 0.8 | replicates |" in (tmp_path / "judgements.md").read_text()


def test_a_judgement_is_plain_data():
    found = judge(Evidence(np.arange(8.0)))
    assert isinstance(found, Judgement)
    assert isinstance(found.D, Interval)
    assert (LARGE, SMALL) == (0.5, 0.1)
