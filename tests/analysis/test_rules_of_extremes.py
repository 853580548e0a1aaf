"""Rules on whole intervals and on the extremes of several quantities, at their bounds and where a number is undefined."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import Estimate, Quantity, as_point, constant, highest, lowest
from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.rules import Claim, above, above_all_of, at_or_above, below, judge, never
from sinkjax.analysis.summary import own_rows

NOTHING = SimpleNamespace()
UNDEFINED = Interval(None, None, None, 0, 8, 0.95, "none", "no finite samples")


def planted(value: Interval, name: str = "x") -> Quantity:
    return Quantity(name, lambda results: Estimate(name, value))


def between(low: float, high: float, name: str = "x") -> Quantity:
    return planted(Interval((low + high) / 2, low, high, 8, 0, 0.95, "BCa"), name)


@pytest.mark.parametrize(("low", "holds"), [(2.0, True), (1.99, False)])
def test_at_or_above_takes_the_bound_itself(low, holds):
    assert at_or_above(between(low, 5), 2).test(NOTHING)[0] is holds
    assert not at_or_above(planted(UNDEFINED), 2).test(NOTHING)[0]


@pytest.mark.parametrize(("other", "holds"), [((0, 0.9), True), ((0, 1), False), ((0, 2), False)])
def test_an_interval_lies_above_all_of_another_one(other, holds):
    assert above_all_of(between(1, 3), between(*other)).test(NOTHING)[0] is holds
    assert not above_all_of(between(1, 3), planted(UNDEFINED)).test(NOTHING)[0]
    assert not above_all_of(planted(UNDEFINED), between(-3, -2)).test(NOTHING)[0]


def test_a_single_prompt_counts_as_a_point_only_where_it_is_asked_for():
    one = planted(constant(5.0))
    assert not above(one, 4).test(NOTHING)[0]
    assert above(as_point(one), 4).test(NOTHING)[0]
    assert below(as_point(one), 6).test(NOTHING)[0]
    assert not above(as_point(planted(UNDEFINED)), 4).test(NOTHING)[0]
    assert as_point(between(1, 3))(NOTHING) == between(1, 3)(NOTHING)


def test_extremes_are_those_of_the_intervals_ends():
    wide, narrow, none = between(0, 10, "wide"), between(4, 5, "narrow"), planted(UNDEFINED, "none")
    assert lowest([wide, narrow], "least")(NOTHING) == Estimate("least", wide(NOTHING).value)
    assert highest([narrow, wide], "most")(NOTHING) == Estimate("most", wide(NOTHING).value)
    assert lowest([wide, none], "least")(NOTHING).value is UNDEFINED
    assert highest([wide, none], "most")(NOTHING).value == wide(NOTHING).value
    assert highest([none], "most")(NOTHING).value is UNDEFINED


def test_what_holds_for_no_model_makes_a_claim_not_applicable():
    found = judge(Claim("s", above(between(1, 2)), given=never("the model has wings")), NOTHING)
    assert found.verdict == "not applicable"
    assert "Applies only if the model has wings." in found.evidence


def test_a_rank_counts_the_other_places_below_the_first():
    values = np.array([[[3.0, 1, 2, 5, 4], [3, 1, 2, 5, np.nan]], [[0, 0, 0, 0, 0], [1, 0, 0, 0, 0]]])
    first, second = own_rows(("a", "b"), "series", "measure", values[..., 0], 0, elsewhere=values[..., 1:])
    assert (first.value.mean, first.percentile, first.controls) == (3, 50, 4)
    assert (second.value.mean, second.percentile) == (0.5, 100)
    assert first.effect.mean is None


@pytest.mark.parametrize("elsewhere", [None, np.zeros((1, 2, 0)), np.full((1, 2, 3), np.nan)])
def test_without_other_places_there_is_no_rank(elsewhere):
    (row,) = own_rows(("a",), "series", "measure", np.ones((1, 2)), 0, elsewhere)
    assert (row.percentile, row.controls) == (None, 0)
    assert row.value == intervals.interval(np.ones(2))
