"""Bounds of means and ratios: against exact and closed forms, on extreme distributions, and as sets of tests."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import binom, binomtest, t, ttest_1samp

from sinkjax.analysis.mean_bounds import (
    BETS,
    FEWEST_BOUNDED,
    STAKES,
    Ratio,
    betting_side,
    constant,
    crossed_side,
    log_capital,
    t_side,
)

SHARES = hnp.arrays(np.float64, st.integers(FEWEST_BOUNDED, 40), elements=st.floats(0, 1))


def mean_of(values, low=0.0, high=1.0):
    """The interval of the mean of values in a range."""
    values = np.asarray(values, float)
    return Ratio(values, np.ones_like(values), lambda c: (low - c, high - c))


def test_capital_is_the_mixture_of_products():
    values = np.random.default_rng(0).uniform(-0.7, 1.0, (3, 12))
    money = sum(stake * np.prod(1 + bet * values / 0.7, axis=-1) for bet, stake in zip(BETS, STAKES, strict=True))
    np.testing.assert_allclose(np.exp(log_capital(values, 0.7)), money, rtol=1e-12)
    assert STAKES.sum() == pytest.approx(1)
    ruined = log_capital(np.array([5.0, -1.0]), 1.0)  # the largest bet loses all, the others do not
    assert ruined == pytest.approx(math.log(sum(s * (1 + 5 * b) * (1 - b) for b, s in zip(BETS, STAKES, strict=True))))


@pytest.mark.parametrize("n", [16, 30, 100])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_bounds_of_coin_flips_contain_those_of_clopper_and_pearson(n, share):
    """Of all intervals that hold for every distribution on 0 and 1, theirs is the shortest on each side."""
    hits = round(share * n)
    exact = binomtest(hits, n).proportion_ci(0.95, method="exact")
    low, high = mean_of(np.arange(n) < hits).ends()
    assert low <= exact.low + 1e-9
    assert high >= exact.high - 1e-9
    assert high - low < 1.7 * (exact.high - exact.low) + 1e-9


EXTREME = {  # numbers in [0, 1] with their mean: shapes on which t fails
    "rare and far": (lambda rng, size: (rng.random(size) < 0.04).astype(float), 0.04),
    "rare and below": (lambda rng, size: (rng.random(size) > 0.04).astype(float), 0.96),
    "three values": (lambda rng, size: rng.choice([0.0, 0.3, 1.0], size, p=[0.1, 0.85, 0.05]), 0.305),
    "lognormal": (lambda rng, size: np.exp(-2 - np.abs(rng.standard_normal(size)) * 2), None),
    "arcsine": (lambda rng, size: rng.beta(0.05, 0.05, size), 0.5),
}


@pytest.mark.parametrize("n", [16, 64])
@pytest.mark.parametrize("name", EXTREME)
def test_bounds_miss_the_mean_of_an_extreme_distribution_in_at_most_5_percent(name, n):
    draw, mean = EXTREME[name]
    rng = np.random.default_rng(n)
    mean = draw(rng, 2_000_000).mean() if mean is None else mean
    samples = draw(rng, (4000, n))
    for side in (1, -1):
        wrong = np.mean(betting_side(samples - mean, -mean, 1 - mean) == side)
        assert wrong <= 0.025 + 2 * math.sqrt(0.025 * 0.975 / 4000), side
    if name == "rare and far" and n == 16:
        assert np.mean(t_side(samples - mean) != 0) > 0.4  # samples that are all 0 have no spread


@given(gain=st.floats(0.01, 50), loss=st.floats(0.1, 10), n=st.integers(1, 40))
@settings(max_examples=60)
def test_expected_capital_is_at_most_1_where_the_mean_is_0(gain, loss, n):
    """Exact: a gain with probability loss / (gain + loss), else the largest loss; the capital of each number of gains."""
    wins = np.arange(n + 1)
    samples = np.where(np.arange(n) < wins[:, None], gain * loss, -loss)
    chances = binom.pmf(wins, n, 1 / (gain + 1))
    assert np.exp(log_capital(samples, loss)) @ chances == pytest.approx(1, abs=1e-9)


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(2, 12)), elements=st.floats(-3, 3).map(lambda x: round(x, 3)))
)
def test_t_side_is_the_t_test_of_scipy(values):
    spread = np.ptp(values, axis=-1) > 0
    found = t_side(values)[spread]
    test = ttest_1samp(values[spread], 0.0, axis=-1)
    clear = np.abs(test.pvalue - 0.05) > 1e-9
    np.testing.assert_array_equal(found[clear], (np.sign(test.statistic) * (test.pvalue < 0.05))[clear])
    assert t_side(values[:, :1]).tolist() == [0] * len(values)


def two_way_t(values):
    """t of the mean with two-way clustered errors, cell by cell."""
    cells = [(i, j) for i, j in np.ndindex(values.shape) if np.isfinite(values[i, j])]
    mean = np.mean([values[cell] for cell in cells])
    rest = {cell: values[cell] - mean for cell in cells}
    n, p, count = *values.shape, len(cells)

    def variance(key, size):
        sums: dict = {}
        for cell in cells:
            sums[key(cell)] = sums.get(key(cell), 0.0) + rest[cell]
        return size / (size - 1) * sum(x**2 for x in sums.values()) / count**2

    a, b, c = variance(lambda x: x[0], n), variance(lambda x: x[1], p), variance(lambda x: x, count)
    return mean / math.sqrt(max(a, b, a + b - c)), min(n, p) - 1


def test_crossed_side_is_the_two_way_clustered_t():
    rng = np.random.default_rng(3)
    sides = set()
    for n, p, mean in [(4, 5, 0.3), (8, 3, 1.0), (6, 6, -1.0), (5, 9, 0.0), (2, 7, 0.5), (9, 4, -0.6)] * 8:
        values = mean + rng.standard_normal((n, 1)) * 0.5 + rng.standard_normal((1, p)) * 0.5 + rng.standard_normal((n, p))
        values[rng.random((n, p)) < 0.15] = np.nan
        values[:, 0] = values[0] = mean + rng.standard_normal()  # no row or column is empty
        statistic, freedom = two_way_t(values)
        expected = int(np.sign(statistic)) * (abs(statistic) > t.ppf(0.975, freedom))
        assert crossed_side(values) == expected
        sides.add(int(expected))
    assert sides == {-1, 0, 1}
    assert crossed_side(np.ones((1, 5))) == 0


def test_interval_of_a_ratio_by_t_is_fiellers():
    rng = np.random.default_rng(5)
    for _ in range(20):
        w = rng.normal(3, 0.5, 9)
        d = 0.4 * w + rng.normal(0, 0.6, 9)
        critical = t.ppf(0.975, 8) ** 2 / 9
        (dd, dw), (_, ww) = np.cov(d, w)
        quadratic = [w.mean() ** 2 - critical * ww, -2 * (d.mean() * w.mean() - critical * dw), d.mean() ** 2 - critical * dd]
        np.testing.assert_allclose(Ratio(d, w, None).ends(), np.sort(np.roots(quadratic)), rtol=1e-6)


@given(SHARES)
@settings(max_examples=25)
def test_ends_are_where_the_test_changes_its_mind(values):
    ratio = mean_of(values)
    low, high = ratio.ends()
    assert 0 <= low <= values.mean() + 1e-9
    assert values.mean() - 1e-9 <= high <= 1 + 1e-9
    for c in np.linspace(-0.5, 1.5, 21):
        if min(abs(c - low), abs(c - high)) > 1e-6:
            assert ratio.side(c) == int(c < low) - int(c > high), c


@pytest.mark.parametrize("recovery", [False, True])
@given(seed=st.integers(0, 10_000), n=st.sampled_from([16, 24, 64]), strength=st.floats(-1, 1))
@settings(max_examples=40)
def test_no_share_beyond_the_ends_is_possible_by_its_own_test(recovery, seed, n, strength):
    """The rule reads S's interval at 1/10 and 1/2; the level is proved for the test at these shares."""
    rng = np.random.default_rng(seed)
    w = np.clip(rng.normal(0.5, 0.4, n), -1.0 if recovery else 0.0, 1.0)
    d = np.clip(strength * w + rng.normal(0, 0.2, n), -1, 1)
    low = -1.0 if recovery else 0.0  # a loss that is recovered may be negative in a document
    ratio = Ratio(d, w, lambda c: (-1 - max(c, c * low), 1 - min(c, c * low)))
    if Ratio(w, np.ones(n), lambda c: (low - c, 1 - c)).side(0.0) <= 0:
        return
    ends = ratio.ends()
    for c in (-0.5, -0.1, 0.1, 0.5):
        assert ratio.side(c) == (c < ends[0]) - (c > ends[1])


@given(SHARES)
@settings(max_examples=15)
def test_the_order_a_mirror_and_the_unit_of_samples_change_nothing(values):
    low, high = mean_of(values).ends()
    np.testing.assert_allclose(mean_of(np.random.default_rng(0).permutation(values)).ends(), (low, high), atol=1e-9)
    np.testing.assert_allclose(mean_of(1 - values).ends(), (1 - high, 1 - low), atol=1e-7)
    np.testing.assert_allclose(mean_of(7 * values, 0.0, 7.0).ends(), (7 * low, 7 * high), atol=1e-6)


def test_more_samples_decide_more():
    """A constant effect of 0.3 in a range of length 1 is shown from 17 samples, one of 0.1 from 46: ln 80 / ln (1 + effect)."""
    for effect, enough in ((0.3, 17), (0.1, 46)):
        assert enough == math.ceil(math.log(80) / math.log(1 + effect))
        for n, shown in ((enough, 1), (enough - 1, 0)):
            assert betting_side(np.full(n, effect), -1.0, 1.0) == shown


def test_methods_follow_the_samples():
    rng, unit = np.random.default_rng(0), lambda c: (-1 - c, 1 - c)

    def method(d, support=unit):
        return Ratio(d, np.ones_like(d), support).method

    spread = rng.uniform(-1, 1, 40)
    assert [method(spread[:n]) for n in (2, 15, 16, 40)] == ["t", "t", "betting", "betting"]
    assert [method(spread[:n], None) for n in (1, 2, 40)] == ["none", "t", "t"]
    assert [method(np.full(n, 0.25)) for n in (1, 8, 40)] == ["betting"] * 3  # without spread, bets or nothing
    assert [method(np.full(n, 0.25), None) for n in (1, 8, 40)] == ["none"] * 3
    assert method(spread.reshape(8, 5)) == method(spread.reshape(8, 5), None) == "two-way t"
    assert method(spread.reshape(1, 40)) == "none"
    assert method(np.full((8, 5), 0.25)) == "betting"
    assert method(np.zeros(0)) == "none"
    w = rng.uniform(0.2, 0.9, 8)
    assert Ratio(0.5 * w, w, unit).method == "betting"  # a multiple of the whole has no spread either
    assert Ratio(0.5 * w, w, None).method == "none"


def test_constant_looks_at_the_last_axis():
    d = np.array([[0.0, 0.0, 0.0], [0.1, 0.2, 0.3], [0.1, 0.2, 0.4]])
    w = np.array([[1.0, 2.0, 3.0]] * 3)
    assert constant(d, w).tolist() == [True, True, False]
    assert constant(d[:, :1], w[:, :1]).all()
    assert constant(np.zeros((2, 3)), np.zeros((2, 3))).all()


def test_a_crossed_constant_counts_as_the_fewer_of_documents_and_positions():
    unit = lambda c: (-1 - c, 1 - c)  # noqa: E731
    wide, few = (Ratio(np.full(shape, 0.3), np.ones(shape), unit) for shape in ((40, 20), (40, 4)))
    assert (wide.side(0.0), few.side(0.0)) == (1, 0)
    assert few.ends() == pytest.approx(Ratio(np.full(4, 0.3), np.ones(4), unit).ends())
