"""Intervals: their coverage on known distributions, what they must not depend on, and a label for each degenerate sample."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sinkjax.analysis.intervals import interval, intervals, paired_differences, pseudo_values


def bounds(found):
    return np.stack([found.low.ravel(), found.high.ravel()], -1)


@pytest.mark.parametrize("draw", ["normal", "exponential"])
def test_coverage_is_near_the_level_stated(draw):
    samples = getattr(np.random.default_rng(0), draw)(size=(600, 40))
    low, high = bounds(intervals(samples)).T
    truth = 0.0 if draw == "normal" else 1.0
    assert 0.90 <= np.mean((low <= truth) & (truth <= high)) <= 0.975
    narrow = bounds(intervals(samples, level=0.5)).T
    assert 0.42 <= np.mean((narrow[0] <= truth) & (truth <= narrow[1])) <= 0.57


@pytest.mark.parametrize("n", [2, 3, 8, 19])
def test_coverage_of_few_samples_is_the_level_stated(n):
    """A bootstrap covers 51, 75, 89 % with 2, 3 and 8 samples of a normal distribution."""
    low, high = bounds(intervals(np.random.default_rng(9).standard_normal((2000, n)))).T
    assert np.mean((low <= 0) & (0 <= high)) == pytest.approx(0.95, abs=0.015)


def test_coverage_with_several_passages_of_each_document():
    rng = np.random.default_rng(10)
    documents = np.repeat(np.arange(12), [1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6])
    samples = rng.standard_normal((2000, 12))[:, documents] + 0.3 * rng.standard_normal((2000, len(documents)))

    def coverage(found):
        low, high = bounds(found).T
        return np.mean((low <= 0) & (0 <= high))

    assert coverage(intervals(samples, clusters=documents)) == pytest.approx(0.95, abs=0.03)
    assert coverage(intervals(samples)) < 0.75
    assert intervals(samples[:1], clusters=documents)[0].method == "clustered t"
    assert intervals(samples[:1], clusters=np.arange(len(documents)))[0].method == "BCa"  # no two share one
    assert interval(samples[0, :5], clusters=np.zeros(5)).note == "one cluster"


def test_row_of_a_table_equals_the_row_alone():
    table = np.random.default_rng(2).random((3, 4, 30))
    table[0, 1, [3, 7]] = np.nan
    table[2, 3, 5] = np.inf
    table[1, 1] = 0.5
    together = intervals(table)
    assert together.shape == (3, 4)
    for index in np.ndindex(3, 4):
        alone, shared = interval(table[index]), together[index]
        assert (alone.low, alone.high, alone.mean) == pytest.approx((shared.low, shared.high, shared.mean), rel=1e-12)
        assert (alone.n, alone.excluded, alone.method, alone.note) == (shared.n, shared.excluded, shared.method, shared.note)


def test_a_table_is_named_arrays_and_its_entries_are_intervals():
    table = np.random.default_rng(6).random((3, 4, 25))
    table[0, 0] = np.nan
    table[1, 2, 1:] = np.nan
    found = intervals(table)
    assert np.isnan(found.mean[0, 0])
    assert (found[0, 0].mean, found[0, 0].low, found[0, 0].note) == (None, None, "no finite samples")
    assert (found[1, 2].mean, found[1, 2].low, found.note[1, 2]) == (table[1, 2, 0], None, "one sample")
    np.testing.assert_allclose(found.mean[2], table[2].mean(-1), rtol=1e-12)
    assert [row.shape for row in found] == [(4,)] * 3
    assert found[:, 1].samples.shape == (3, 25)
    assert [one.low for one in found[2]] == found.low[2].tolist()
    assert (found.n + found.excluded == 25).all()
    assert (type(found[2, 2].mean), type(found[2, 2].n), type(found[2, 2].method)) == (float, int, str)


def test_seed_is_the_only_source_of_chance():
    sample = np.random.default_rng(5).random(24)
    np.random.seed(0)  # noqa: NPY002
    first = interval(sample, seed=3)
    np.random.seed(1)  # noqa: NPY002
    assert interval(sample, seed=3) == first
    assert interval(sample, seed=4) != first


@given(
    hnp.arrays(
        np.float64,
        st.integers(0, 24),
        elements=st.one_of(st.floats(-1e6, 1e6), st.sampled_from([np.nan, np.inf, 0.0, 1.0, 1e-300])),
    )
)
def test_nothing_is_ever_nan_and_every_sample_is_counted(values):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = interval(values, resamples=100)
    assert found.n + found.excluded == len(values)
    assert found.n == np.isfinite(values).sum()
    numbers = [x for x in (found.mean, found.low, found.high) if x is not None]
    assert np.isfinite(numbers).all()
    if found.method == "none":
        assert found.note
    elif found.method in ("BCa", "percentile"):
        kept = values[np.isfinite(values)]
        rounding = 1e-12 * np.abs(kept).max()
        assert kept.min() - rounding <= found.low <= found.high <= kept.max() + rounding


def test_pairing_removes_the_spread_between_prompts():
    rng = np.random.default_rng(6)
    baseline = rng.random(32) * 100
    edited = baseline + 1 + rng.normal(scale=0.01, size=(4, 32))
    for effect in paired_differences(edited, baseline):
        assert effect.mean == pytest.approx(1, abs=0.01)
        assert effect.high - effect.low < 0.02


def test_pseudo_values_of_the_mean_are_the_samples():
    samples = np.random.default_rng(7).random(12)
    np.testing.assert_allclose(pseudo_values(samples, lambda mean: mean), samples)


def test_pseudo_values_give_the_interval_of_a_ratio_of_means():
    rng = np.random.default_rng(8)
    covered = []
    for _ in range(200):
        pairs = rng.exponential(size=(40, 2)) * [3.0, 2.0]
        found = interval(pseudo_values(pairs, lambda mean: mean[..., 0] / mean[..., 1]), resamples=400)
        covered.append(found.low <= 1.5 <= found.high)
    assert 0.88 <= np.mean(covered) <= 0.99
