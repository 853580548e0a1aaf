"""Bounds of means and ratios: against scipy and closed forms, and as sets of tests."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import t, ttest_1samp

from sinkjax.analysis.mean_bounds import Ratio, crossed_side, t_side

SHARES = hnp.arrays(np.float64, st.integers(2, 40), elements=st.floats(0, 1).map(lambda x: round(x, 3)))
NUMBERS = st.floats(-3, 3).map(lambda x: round(x, 3))
ROWS = hnp.arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(2, 12)), elements=NUMBERS)


def mean_of(values, largest=1.0):
    """The interval of the mean of values."""
    values = np.asarray(values, float)
    return Ratio(values, np.ones_like(values), largest)


@given(ROWS)
@settings(max_examples=25, deadline=None)
def test_t_side_is_the_t_test_of_scipy_with_one_more_sample(values):
    found = t_side(values)
    for row, side in zip(values, found, strict=True):
        if np.ptp(row) == 0:
            continue
        tests = {1: [*row, row.min()], -1: [*row, row.max()]}
        tested = {sign: ttest_1samp(samples, 0.0) for sign, samples in tests.items()}
        if all(abs(test.pvalue - 0.05) > 1e-9 for test in tested.values()):
            sides = [sign for sign, test in tested.items() if test.pvalue < 0.05 and test.statistic * sign > 0]
            assert side == sum(sides)
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


def with_lowest_twice(values):
    """Values with the row of the lowest mean, then the column of the lowest mean, once more."""
    low = values[np.argmin([np.nanmean(row) for row in values])]
    values = np.vstack([values, low])
    return np.column_stack([values, values[:, np.argmin([np.nanmean(column) for column in values.T])]])


def test_crossed_side_is_the_two_way_clustered_t_with_the_lowest_row_and_column_twice():
    rng = np.random.default_rng(3)
    sides = set()
    for n, p, mean in [(4, 5, 0.3), (8, 3, 1.0), (6, 6, -1.0), (5, 9, 0.0), (2, 7, 0.5), (9, 4, -0.6)] * 8:
        values = mean + rng.standard_normal((n, 1)) * 0.5 + rng.standard_normal((1, p)) * 0.5 + rng.standard_normal((n, p))
        values[rng.random((n, p)) < 0.15] = np.nan
        values[:, 0] = values[0] = mean + rng.standard_normal()  # no row or column is empty
        above, below = (two_way_t(with_lowest_twice(sign * values)) for sign in (1, -1))
        expected = int(above[0] > t.ppf(0.975, above[1])) - int(below[0] > t.ppf(0.975, below[1]))
        assert crossed_side(values) == expected
        sides.add(expected)
    assert sides == {-1, 0, 1}
    assert crossed_side(np.ones((1, 5))) == 0


def test_an_interval_of_a_ratio_contains_fiellers():
    rng = np.random.default_rng(5)
    for _ in range(20):
        w = rng.normal(3, 0.5, 9)
        d = 0.4 * w + rng.normal(0, 0.6, 9)
        critical = t.ppf(0.975, 8) ** 2 / 9
        (dd, dw), (_, ww) = np.cov(d, w)
        quadratic = [w.mean() ** 2 - critical * ww, -2 * (d.mean() * w.mean() - critical * dw), d.mean() ** 2 - critical * dd]
        low, high = np.sort(np.roots(quadratic))
        found = Ratio(d, w).ends()
        assert found[0] < low < high < found[1]
        assert found[1] - found[0] < 2 * (high - low)


@given(SHARES)
@settings(max_examples=25)
def test_ends_are_where_the_test_changes_its_mind(values):
    ratio = mean_of(values)
    low, high = ratio.ends()
    assert low <= values.mean() <= high
    for c in np.linspace(-0.5, 1.5, 21):
        if min(abs(c - low), abs(c - high)) > 1e-6:
            assert ratio.side(c) == int(c < low) - int(c > high), c


@given(seed=st.integers(0, 10_000), n=st.sampled_from([8, 16, 64]), strength=st.floats(-1, 1), bounded=st.booleans())
@settings(max_examples=40)
def test_no_share_beyond_the_ends_is_possible_by_its_own_test(seed, n, strength, bounded):
    """The rule reads S's interval at 1/10, the simulation the test at 1/10."""
    rng = np.random.default_rng(seed)
    w = np.clip(rng.normal(0.5, 0.4, n), 0.0, 1.0)
    d = np.clip(strength * w + rng.normal(0, 0.2, n), -1, 1)
    ratio = Ratio(d, w, 1.0 if bounded else None)
    if Ratio(w, np.ones(n)).side(0.0) <= 0:
        return
    low, high = ratio.ends()
    for c in (-0.5, -0.1, 0.1, 0.5):
        assert ratio.side(c) == (c < low) - (c > high)
