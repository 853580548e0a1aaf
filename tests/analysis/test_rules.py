"""Rules: each at its boundary, how they compose, and how often they are wrong about simulated samples."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import Absent, Estimate, Quantity, constant, number, quantity
from sinkjax.analysis.rules import (
    LEVEL,
    Outcome,
    Rule,
    above,
    above_controls,
    all_of,
    all_present,
    any_of,
    at_least,
    at_most,
    below,
    below_controls,
    defined,
    every,
    most_of,
    never,
    not_,
    rising,
    some_of,
    within,
)
from sinkjax.analysis.summary import Rank

SPREAD = np.array([-1, -0.7, -0.4, -0.1, 0.1, 0.4, 0.7, 1])  # mean 0; its 95 % interval by Student's t ends at 0.576
END = 0.576
RESULTS = SimpleNamespace(config=SimpleNamespace(seed=0), interval=lambda values: intervals.interval(values, seed=0))


def samples(values) -> Quantity:
    return quantity("it", lambda results: np.asarray(values, float))


def ranked(below: int, tied: int, controls: int) -> Quantity:
    return Quantity("it", lambda results: Estimate("it", constant(1.0), rank=Rank(below, tied, controls)))


def exactly(value: float) -> Quantity:
    return number("it", lambda results: value)


def given(p: float, against: float = 1.0) -> Rule:
    return Rule("so", lambda results: Outcome(p, against))


def verdict(rule: Rule) -> str:
    found = rule(RESULTS)
    return "holds" if found.holds else "refuted" if found.refuted else "open"


HOLDS, REFUTED, OPEN = "holds", "refuted", "open"


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (above(samples(SPREAD + 2 + END + 0.01), 2), HOLDS),
        (above(samples(SPREAD + 2 + END - 0.01), 2), OPEN),  # the mean is above 2, its interval reaches it
        (above(samples(SPREAD + 2 - END - 0.01), 2), REFUTED),
        (above(samples(SPREAD + 2 - END + 0.01), 2), OPEN),
        (below(samples(SPREAD + 2 - END - 0.01), 2), HOLDS),
        (below(samples(SPREAD + 2 - END + 0.01), 2), OPEN),
        (below(samples(SPREAD + 2 + END + 0.01), 2), REFUTED),
        (within(samples(SPREAD), -END - 0.01, END + 0.01), HOLDS),
        (within(samples(SPREAD), -END - 0.01, END - 0.01), OPEN),  # not different from 0, but not shown to be near it either
        (within(samples(SPREAD), -END + 0.01, END + 0.01), OPEN),
        (within(samples(SPREAD + 3), -1, 1), REFUTED),
        (above(samples(SPREAD[:7] + 9)), OPEN),  # seven samples decide nothing
        (above(samples([*SPREAD[:7] + 9, np.nan])), OPEN),  # nor do eight of which one is undefined
        (above(samples(np.full(8, 3.0)), 2), HOLDS),
        (above(samples(np.full(8, 2.0)), 2), OPEN),
        (above(samples(np.full(64, np.nan))), OPEN),
        (above(exactly(2.1), 2), HOLDS),
        (above(exactly(2), 2), REFUTED),
        (at_least(exactly(2), 2), HOLDS),
        (at_least(exactly(1.9), 2), REFUTED),
        (at_most(exactly(2), 2), HOLDS),
        (at_most(exactly(2.1), 2), REFUTED),
        (below(exactly(2), 2), REFUTED),
        (above(exactly(float("nan"))), OPEN),
        (above(exactly(5), exactly(float("nan"))), OPEN),
        (defined(exactly(3)), HOLDS),
        (defined(exactly(float("nan"))), REFUTED),
        (never("the model has wings"), REFUTED),
    ],
)
def test_a_rule_at_its_bound(rule, expected):
    assert verdict(rule) == expected


def test_two_quantities_with_samples_are_compared_in_pairs():
    base = 10 * SPREAD
    higher = samples(base + 1 + 0.1 * SPREAD)
    assert verdict(above(higher, samples(base))) == HOLDS  # their own intervals overlap widely
    assert verdict(below(higher, samples(base))) == REFUTED
    assert verdict(above(higher, samples(base).times(0.5, "half"))) == OPEN
    assert verdict(above(samples(base[:8] + 1), samples([*base, 99.0, 99.0]))) == HOLDS  # controls run on the first prompts
    assert "in pairs" in above(higher, samples(base)).criterion


def test_a_number_without_samples_is_judged_only_if_it_is_declared_exact():
    drawn = quantity("the mean effect", lambda results: 3.0)
    found = above(drawn)(RESULTS)
    assert (found.holds, found.refuted) == (False, False)
    assert found.why == "the mean effect is a number without samples, and is not declared exact"
    assert verdict(above(samples(SPREAD + 9), drawn)) == OPEN
    assert verdict(above(exactly(3.0))) == HOLDS


def test_an_exact_number_beside_samples_has_their_error():
    assert verdict(above(exactly(END + 0.01), samples(SPREAD))) == HOLDS
    assert verdict(above(exactly(END - 0.01), samples(SPREAD))) == OPEN
    assert verdict(above(exactly(-END - 0.01), samples(SPREAD))) == REFUTED


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (above_controls(ranked(19, 0, 19)), HOLDS),  # 1 / 20
        (above_controls(ranked(18, 0, 18)), OPEN),  # 1 / 19: eighteen controls decide nothing
        (above_controls(ranked(18, 1, 19)), OPEN),  # a tie counts against it
        (above_controls(ranked(95, 0, 99)), HOLDS),  # 5 / 100
        (above_controls(ranked(94, 0, 99)), OPEN),
        (above_controls(ranked(0, 0, 19)), REFUTED),
        (below_controls(ranked(0, 0, 19)), HOLDS),
        (below_controls(ranked(0, 1, 19)), OPEN),
        (below_controls(ranked(19, 0, 19)), REFUTED),
        (above_controls(samples(SPREAD)), OPEN),  # no controls
    ],
)
def test_a_rank_among_controls(rule, expected):
    assert verdict(rule) == expected


@pytest.mark.parametrize(
    ("rule", "p", "against"),
    [
        (all_of(given(0.01, 0.9), given(0.04, 0.3)), 0.04, 0.6),
        (any_of(given(0.01, 0.9), given(0.04, 0.3)), 0.02, 0.9),
        (not_(given(0.01, 0.9)), 0.9, 0.01),
        (most_of([given(0.01), given(0.02), given(0.5)], "places", "so"), 0.04, 1.0),  # two of three: 2 x the second smallest
        (most_of([given(1, 0.01), given(1, 0.02), given(0.5)], "places", "so"), 1.0, 0.04),
        (some_of([given(0.01), given(0.5), given(0.5)], "places", "so"), 0.03, 1.0),
        (some_of([given(1, 0.01), given(1, 0.02), given(1, 0.04)], "places", "so"), 1.0, 0.04),
        (all_present([given(0.01), given(0.03)], "in every run"), 0.03, 1.0),
    ],
)
def test_how_p_values_compose(rule, p, against):
    found = rule(RESULTS)
    assert (found.p, found.against) == pytest.approx((p, against))


def test_most_of_four_are_three():
    holding, open_ = given(0.001), given(0.9)
    assert verdict(most_of([holding, holding, open_, open_], "places", "so")) == OPEN
    assert verdict(most_of([holding, holding, holding, open_], "places", "so")) == HOLDS


def test_rising_needs_every_step():
    steps = [samples(SPREAD + height) for height in (0, 1, 2)]
    assert verdict(rising(steps, "it")) == HOLDS
    assert verdict(rising([*steps, steps[1]], "it")) == REFUTED


def missing(results):
    raise Absent("no BOS")


MISSING = Rule("so", missing)


def test_a_rule_of_every_run_leaves_out_what_was_not_measured():
    assert verdict(all_present([MISSING, given(0.01)], "in every run")) == HOLDS
    with pytest.raises(Absent, match="no BOS"):
        all_present([MISSING, MISSING], "in every run")(RESULTS)


def test_words_state_the_rule():
    effect = quantity("the effect", lambda results: SPREAD)
    assert above(effect, 0.5).criterion == "the interval of the effect lies above 0.500"
    assert at_least(exactly(1), 2).criterion == "it is at least 2.00"
    assert within(effect, -0.1, 0.1).criterion == "the interval of the effect lies between -0.100 and 0.100"
    assert all_of(given(1), given(1)).criterion == "so, and so"
    assert all_of(given(1), criterion="both").criterion == "both"


# Error rates. A rule may be wrong in 5 % of samples drawn at its bound, where what it states is just not so.

DRAWS = 2_000
FEWER = 200  # enough to tell a power of 0.8 from that of a rule that finds nothing
MOST = LEVEL + 2 * np.sqrt(LEVEL * (1 - LEVEL) / DRAWS)
N = 24  # beyond `FEWEST_RESAMPLED`, so that the bootstrap decides


def rate(rule_of, draw, draws: int = DRAWS) -> float:
    """How often a rule holds, of samples of independent draws. rule_of: quantities -> rule. draw: generator -> samples."""
    rng = np.random.default_rng(0)
    return float(np.mean([rule_of(*map(samples, draw(rng)))(RESULTS).holds for _ in range(draws)]))


def normal(*means: float, n: int):
    return lambda rng: [mean + rng.standard_normal(n) for mean in means]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "rule_of", "at_bound", "at_effect", "power"),
    [
        ("above", lambda it: above(it, 1), normal(1, n=8), normal(2.5, n=8), 0.9),
        ("above, resampled", lambda it: above(it, 1), normal(1, n=N), normal(2, n=N), 0.9),
        ("below", lambda it: below(it, 1), normal(1, n=8), normal(-0.5, n=8), 0.9),
        ("within", lambda it: within(it, -1, 1), normal(1, n=N), normal(0, n=N), 0.9),
        ("above a half", lambda one, two: above(one, two.times(0.5, "half")), normal(1, 2, n=8), normal(3, 2, n=8), 0.9),
        ("all of", lambda one, two: all_of(above(one), above(two)), normal(0, 9, n=8), normal(1.5, 1.5, n=8), 0.8),
        ("any of", lambda one, two: any_of(above(one), above(two)), normal(0, 0, n=8), normal(1.5, 0, n=8), 0.8),
        (
            "most of",
            lambda *each: most_of([above(one) for one in each], "places", "so"),
            normal(9, 0, 0, n=8),
            normal(9, 1.8, 0, n=8),
            0.8,
        ),
        (
            "every",
            lambda *each: every([above(one) for one in each], "places", "so"),
            normal(0, 9, 9, n=8),
            normal(1.6, 1.6, 1.6, n=8),
            0.8,
        ),
        (
            "some of",
            lambda *each: some_of([above(one) for one in each], "places", "so"),
            normal(0, 0, 0, n=8),
            normal(2, 0, 0, n=8),
            0.8,
        ),
        (
            "all present",
            lambda *each: all_present([MISSING, *map(above, each)], "in every run"),
            normal(0, 9, n=8),
            normal(1.5, 1.5, n=8),
            0.8,
        ),
        ("not", lambda it: not_(below(it)), normal(0, n=8), normal(1.5, n=8), 0.9),
        ("rising", lambda *each: rising(each, "it"), normal(0, 2.5, 2.5, n=8), normal(0, 2.5, 5, n=8), 0.8),
    ],
)
def test_rates_of_false_support_and_power(name, rule_of, at_bound, at_effect, power):
    assert rate(rule_of, at_bound) <= MOST
    assert rate(rule_of, at_effect, FEWER) >= power


@pytest.mark.parametrize("m", [19, 20, 62, 99])
@pytest.mark.parametrize(("rule", "sign"), [(above_controls, 1), (below_controls, -1)])
def test_rates_of_a_rank_among_controls(rule, sign, m):
    """One more control has each of the m + 1 ranks equally often, so the rate is a count; power is simulated."""
    ranks = [rule(ranked(below, 0, m))(RESULTS).holds for below in range(m + 1)]
    assert np.mean(ranks) <= LEVEL
    draws = np.random.default_rng(0).standard_normal((DRAWS, m + 1))
    found = [Rank.among(values[0] + 4 * sign, values[1:]) for values in draws]
    assert np.mean([rule(ranked(rank.below, rank.tied, m))(RESULTS).holds for rank in found]) >= 0.9


@pytest.mark.long
def test_clustered_samples_do_not_count_as_many():
    """Passages of one document resemble each other: as if independent, a third of null samples would be called an effect."""
    rng = np.random.default_rng(1)
    documents = np.repeat(np.arange(10), 6)

    def rate(clusters, mean: float, draws: int) -> float:
        interval = partial(intervals.interval, clusters=clusters)
        results = SimpleNamespace(config=RESULTS.config, interval=interval)
        each = (mean + rng.standard_normal(10)[documents] + 0.5 * rng.standard_normal(60) for _ in range(draws))
        return float(np.mean([above(samples(values))(results).holds for values in each]))

    assert rate(documents, 0, DRAWS) <= MOST
    assert rate(documents, 1.5, FEWER) >= 0.9
    assert rate(None, 0, FEWER) > 0.15
