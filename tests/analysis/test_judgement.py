"""The rule of judgement: its words at their edges, what must not change them, and its rates of false words by simulation."""

from __future__ import annotations

import csv
import dataclasses
import importlib
import itertools
import lzma
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import stdtrit

from sinkjax.analysis.evidence import ContrastRank, Evidence
from sinkjax.analysis.judgement import identity, judge, not_applicable, with_twin, word_of
from sinkjax.errors import SinkjaxError

ROOT = Path(__file__).parents[2]
NAN = math.nan


@pytest.mark.parametrize(
    ("interval", "beyond", "word"),
    [
        ((0.11, 0.9), (True, False), "replicates"),
        ((0.1, 0.9), (True, False), "undecided"),  # 1/10 is not above 1/10
        ((0.11, 0.12), (True, False), "replicates"),  # the number says how large it is
        ((0.11, 0.9), (False, False), "undecided"),  # above 1/10, but not above the controls
        ((-0.9, -0.11), (False, True), "opposite"),
        ((-0.9, -0.11), (False, False), "undecided"),
        ((-0.9, -0.1), (True, True), "undecided"),
        ((-0.09, 0.09), (True, True), "absent"),
        ((-0.09, 0.09), (False, False), "absent"),  # needs no controls
        ((0.01, 0.09), (True, False), "absent"),
        ((-0.1, 0.09), (True, True), "undecided"),
        ((-0.09, 0.1), (True, True), "undecided"),
        ((-0.9, 0.9), (True, True), "undecided"),
    ],
)
def test_words_on_effects_at_their_edges(interval, beyond, word):
    assert word_of(*interval, beyond=beyond) == word


@pytest.mark.parametrize(
    ("interval", "word"),
    [((0.01, 0.09), "replicates"), ((-0.09, -0.01), "opposite"), ((-0.01, 0.01), "undecided"), ((0.0, 0.5), "undecided")],
)
def test_without_a_whole_nothing_is_absent(interval, word):
    assert word_of(*interval, share=False) == word


@pytest.mark.parametrize(
    ("interval", "word"),
    [
        ((-0.09, 0.09), "replicates"),
        ((-0.1, 0.09), "undecided"),
        ((-0.09, 0.1), "undecided"),
        ((0.05, 0.2), "undecided"),
        ((0.1, 0.2), "undecided"),
        ((0.11, 0.2), "moves"),
        ((-0.9, -0.11), "moves"),
        ((-0.9, 0.9), "undecided"),
    ],
)
def test_words_on_what_stays_at_their_edges(interval, word):
    for beyond in itertools.product((True, False), repeat=2):
        assert word_of(*interval, stays=True, beyond=beyond) == word


ENDS = st.tuples(st.floats(-1.5, 1.5), st.floats(-1.5, 1.5)).map(sorted)
PAIR = st.tuples(st.booleans(), st.booleans())
ORDER = {"opposite": -1, "absent": 0, "undecided": 0, "replicates": 1}


@given(ends=ENDS, beyond=PAIR, share=st.booleans(), stays=st.booleans())
def test_there_is_one_word_and_the_mirrored_contrast_has_the_mirrored_one(ends, beyond, share, stays):
    word, mirrored = word_of(*ends, share, stays, beyond), word_of(-ends[1], -ends[0], share, stays, beyond[::-1])
    assert word in ({"replicates", "moves", "undecided"} if stays and share else {*ORDER, "moves"})
    mirror = {"replicates": "opposite", "opposite": "replicates"}
    assert mirrored == (word if stays else mirror.get(word, word))


@given(ends=ENDS, up=st.floats(0, 1), share=st.booleans())
def test_a_larger_effect_never_has_a_lower_word(ends, up, share):
    low, high = ends
    assert ORDER[word_of(low + up, high + up, share)] >= ORDER[word_of(low, high, share)]


@given(ends=ENDS, by=st.floats(0, 1), share=st.booleans(), stays=st.booleans())
def test_a_wider_interval_says_the_same_or_nothing(ends, by, share, stays):
    word = word_of(*ends, share, stays)
    assert word_of(ends[0] - by, ends[1] + by, share, stays) in (word, "undecided")


def shares(n=64, effect=0.4, whole=0.6, spread=0.05, seed=0):
    """Contrast and whole of a measure between 0 and 1."""
    rng = np.random.default_rng(seed)
    return effect + spread * rng.uniform(-1, 1, n), whole + spread * rng.uniform(-1, 1, n)


def worded(effect, whole=0.6, n=400, sign=1, stays=False, **more):
    contrast, of_whole = shares(n, effect, whole)
    return judge(Evidence(contrast, whole=of_whole, range=(0, 1), **more), sign=sign, stays=stays)


def test_each_word_follows_from_samples():
    assert [worded(effect).word for effect in (0.5, 0.08, 0.06, 0.0, -0.4)] == [
        *("replicates", "replicates", "undecided", "absent", "opposite")
    ]
    assert [worded(effect, stays=True).word for effect in (0.5, 0.06, -0.15, 0.0)] == [
        *("moves", "undecided", "moves", "replicates")
    ]
    assert worded(-0.5, sign=-1).word == "replicates"
    found = worded(0.5)
    assert found.D.low < found.D.mean < found.D.high
    assert found.S.low < found.S.mean < found.S.high
    assert 0.59 < found.W.low < 0.6 < found.W.high < 0.61
    assert (found.n, found.method) == (400, "95% t interval, 400 documents")


@pytest.mark.parametrize("n", [8, 15, 16, 17, 64])
def test_a_large_steady_effect_replicates_at_every_n(n):
    assert worded(0.57, n=n).word == "replicates"


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
    assert bool(found.reason) != (found.word == "replicates")
    assert found.D.n == np.isfinite(contrast).sum()
    assert found.D.n + found.D.excluded == len(values)
    if not bounded and (found.D.n < 2 or np.ptp(contrast[np.isfinite(contrast)]) == 0):
        assert found.word in ("undecided", "not applicable")


def test_a_word_other_than_replicates_names_the_number_and_its_bound():
    def reason(effect, **more):
        return worded(effect, **more).reason

    assert re.fullmatch(r"S, -0\.\d+ \[.*\], lies below -0\.1\.", reason(-0.5))
    assert re.fullmatch(r"S, .* \[.*\], lies inside ±0\.1\.", reason(0.0))
    assert re.fullmatch(r"S, 0\.8.* \[.*\], lies above 0\.1\.", reason(0.5, stays=True))
    assert reason(0.5) == reason(0.0, stays=True) == ""
    assert re.search(r"lower end of S, .* 0\.1\.$", reason(0.1, n=4))
    assert re.search(r"upper end of S, .* -0\.1\.$", reason(-0.05, n=4))
    wide = judge(Evidence(np.array([-0.3, 0.0, 0.31]), whole=np.array([0.6, 0.61, 0.59])))
    assert re.search(r"lower end .*-0\.1 .*upper end .* 0\.1", wide.reason)
    bare = judge(Evidence(np.array([-1.0, 1.5, 2.0])))
    assert re.search(r"lower end of D, .* 0\.$", bare.reason)


@pytest.mark.parametrize(("recovery", "word"), [(False, "not applicable"), (True, "nothing to undo")])
def test_nothing_is_a_share_of_a_whole_that_may_be_0(recovery, word):
    rng = np.random.default_rng(0)
    contrast, whole = 5 + rng.normal(0, 0.1, 30), rng.normal(0, 1, 30)
    whole += 0.1 - whole.mean()
    found = judge(Evidence(contrast, whole=whole, recovery=recovery))
    assert (found.word, found.S) == (word, None)
    assert found.W.low < 0 < found.W.high
    assert "not shown to be above 0" in found.reason
    assert judge(Evidence(contrast, whole=whole, recovery=recovery), stays=True).word == word
    assert judge(Evidence(contrast, whole=whole - 5, recovery=recovery)).word == word  # a whole below 0 is none either
    assert judge(Evidence(contrast, whole=whole + 5, recovery=recovery)).word == "replicates"
    assert judge(Evidence(contrast)).word == "replicates"


def test_samples_that_do_not_differ_leave_room_for_one_at_the_end_of_the_range():
    """Of n samples that are all 0, up to about 3 / n may be anything: only many of them say that nothing is there."""
    whole = np.random.default_rng(0).uniform(0.5, 0.7, 200)
    found = {n: judge(Evidence(np.zeros(n), whole=whole[:n], range=(0, 1))) for n in (8, 30, 64, 200)}
    assert [one.word for one in found.values()] == ["undecided", "undecided", "absent", "absent"]
    assert found[64].D.high == pytest.approx((1 + stdtrit(64, 0.975)) / 65, rel=1e-3)
    assert judge(Evidence(np.zeros(30), whole=whole[:30], range=(0, 1)), stays=True).word == "undecided"
    assert judge(Evidence(np.zeros(64), whole=whole[:64], range=(0, 1)), stays=True).word == "replicates"
    unbounded = judge(Evidence(np.full(8, 2.0), whole=whole[:8]))
    assert unbounded.word == "undecided"
    assert "no spread among 8 documents" in unbounded.reason
    rounding = 1e-9 * np.random.default_rng(1).standard_normal(8)
    assert judge(Evidence(rounding, whole=whole[:8], range=(0, 1))).word == "undecided"
    multiple = judge(Evidence(0.9 * whole[:40], whole=whole[:40], range=(0, 1)))
    assert (multiple.word, multiple.S.mean) == ("replicates", pytest.approx(0.9))


@pytest.mark.parametrize(("of", "needed"), [(20, 20), (39, 38), (99, 95), (1, 1), (18, 18)])
def test_one_more_control_lies_above_the_others_in_5_percent_of_cases_at_most(of, needed):
    assert ContrastRank(needed, 0, of).above
    assert not ContrastRank(needed - 1, 1, of).above


def test_an_effect_must_lie_above_its_controls():
    contrast, whole = shares(40, 0.5)
    rng = np.random.default_rng(1)

    def found(means, **more):
        means = np.asarray(means, float)
        return judge(Evidence(contrast, means[:, None] + 0.01 * rng.uniform(-1, 1, (len(means), 40)), whole, (0, 1), **more))

    assert found(np.zeros(20)).word == "replicates"
    assert found(np.zeros(20)).rank == ContrastRank(20, 0, 20)
    one = found([*np.zeros(19), 0.8])
    assert (one.word, one.rank) == ("undecided", ContrastRank(19, 0, 20))
    assert re.search(r"above 0\.1, .*19 of 20 controls, .*20", one.reason)
    few = found(np.zeros(19))
    assert few.word == "undecided"
    assert re.search(r"above 0\.1, .*19 controls, .*20", few.reason)
    assert found(np.zeros(5), all_controls=True).word == "replicates"
    assert found([0, 0, 0, 0, 0.9], all_controls=True).word == "undecided"
    same = judge(Evidence(contrast, np.stack([contrast] * 20), whole, (0, 1)))
    assert (same.rank, same.word) == (ContrastRank(0, 20, 20), "undecided")


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
    assert judge(Evidence(np.full(5, NAN), whole=np.ones(5))).word == "not applicable"
    assert "no finite samples" in judge(Evidence(np.full(5, NAN))).reason


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
    assert "one sample" in judge(Evidence(contrast, clusters=np.zeros(16))).reason
    one_each = judge(Evidence(contrast, whole=whole, clusters=np.arange(16)))
    assert one_each.D.low == pytest.approx(judge(Evidence(contrast, whole=whole)).D.low)


def test_documents_and_positions_are_crossed():
    rng = np.random.default_rng(6)
    common = rng.normal(0, 0.3, (1, 16))  # an effect of the position, shared by all documents
    contrast = 0.1 + common + rng.normal(0, 0.02, (200, 16))
    found = judge(Evidence(contrast, whole=np.ones((200, 16)), range=(-1, 1)))
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
    ],
)
def test_what_does_not_fit_is_refused(wrong, text):
    with pytest.raises(SinkjaxError, match=text):
        judge(Evidence(**{"contrast": np.zeros(8), **wrong}))


def test_a_twin_counts_where_the_claim_replicates():
    contrast, whole = shares(200, 0.5)
    trained = judge(Evidence(contrast, whole=whole, range=(0, 1)))
    none = judge(Evidence(contrast / 100, whole=whole, range=(0, 1)))
    assert (trained.word, none.word) == ("replicates", "absent")
    assert with_twin(trained, trained).untrained
    assert not with_twin(trained, none).untrained
    assert not with_twin(none, trained).untrained
    assert not with_twin(trained, not_applicable("no sink")).untrained
    controlled = dataclasses.replace(trained, word="undecided")  # the twin's controls do not matter, its size does
    assert with_twin(trained, controlled).untrained
    stays = judge(Evidence(contrast / 100, whole=whole, range=(0, 1)), stays=True)
    assert with_twin(stays, stays).untrained
    assert not with_twin(stays, dataclasses.replace(trained, stays=True, word="moves")).untrained
    bare = judge(Evidence(contrast, range=(0, 1)))
    assert with_twin(bare, bare).untrained
    assert (identity(True).word, identity(False).word) == ("holds", "fails")


# The simulation: scripts/simulate_judgement.py.


@pytest.fixture(scope="module")
def scripts():
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(ROOT / "scripts"))
    yield {name: importlib.import_module(name) for name in ("simulate_judgement", "rejudge")}
    patch.undo()


@pytest.fixture(scope="module")
def script(scripts):
    return scripts["simulate_judgement"]


def lines_of(name):
    with (lzma.open if name.endswith(".xz") else open)(ROOT / "docs/results/data" / name, "rt", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_false_words_are_as_rare_as_the_sample_allows(script):
    """At most 7% but for the error of simulation, beside the samples in which no rare document shows."""
    rare = {"5% far": script.RARE, "1 in 8 far": script.FEW, "80% zeros": 0.2, "80% zeros, in proportion to W": 0.2}
    later = {
        "gamma of shape 0.1": 64,
        "undeclared groups of three": math.inf,
        "exponential": 16,
        "lognormal": 32,
        "80% zeros, then exponential": 52,
    }  # long tails of which a small sample shows too little
    lines = [line for line in lines_of("judgement_errors.csv.xz") if line["kind"] == "false"]
    for line in lines:
        n, most = int(line["n"]), script.MOST
        if line["shape"] in rare:
            most = min(most + (1 - rare[line["shape"]]) ** n, 1.0)
        if n >= later.get(line["shape"], 0):
            assert float(line["rate"]) < most + 2.5 * math.sqrt(most * (1 - most) / int(line["draws"])), line
    assert {int(line["n"]) for line in lines} == {*script.SIZES}
