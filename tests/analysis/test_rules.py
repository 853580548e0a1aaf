"""Each rule at its boundary: what is just enough, what is not, and what is undefined; and what a verdict keeps as data."""

from __future__ import annotations

import csv
import io
from types import SimpleNamespace

import numpy as np
import pytest

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import Absent, Estimate, Quantity, constant, in_digits, in_words, number, quantity, sentence
from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.rules import (
    Claim,
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
    equals,
    judge,
    less_than,
    mean_within,
    more_than,
    most_of,
    none_of,
    not_,
    ranked_from,
    rising,
    some_of,
    verdicts_csv,
    within,
)
from sinkjax.analysis.summary import Row

RESULTS = SimpleNamespace(interval=lambda values: intervals.interval(values, seed=0))
NOTHING = Interval(None, None, None, 0, 8, 0.95, "none", "no finite samples")


def fixed(low: float | None, mean: float | None, high: float | None, percentile: float | None = None) -> Quantity:
    """A quantity that is always this interval."""
    value = NOTHING if mean is None else Interval(mean, low, high, 8, 0, 0.95, "planted")
    found = Estimate("it", value, "nats", percentile=percentile, controls=0 if percentile is None else 20)
    return Quantity("it", lambda results: found)


def holds(rule: Rule) -> bool:
    return rule.test(RESULTS)[0]


CASES = [
    (above(fixed(0.51, 1, 2), 0.5), True),
    (above(fixed(0.5, 1, 2), 0.5), False),  # the bound itself is not above it
    (above(fixed(0.4, 1, 2), 0.5), False),  # the mean is not enough
    (above(fixed(None, 1, None), 0.5), False),  # one prompt has no interval
    (above(fixed(None, None, None), -1e9), False),
    (above(fixed(3, 4, 5), fixed(0, 2.9, 9)), True),  # of another quantity its mean counts
    (above(fixed(3, 4, 5), fixed(0, 3.1, 9)), False),
    (below(fixed(-2, -1, -0.51), -0.5), True),
    (below(fixed(-2, -1, -0.5), -0.5), False),
    (below(fixed(None, -1, None), 0), False),
    (within(fixed(-0.04, 0, 0.04), -0.05, 0.05), True),
    (within(fixed(-0.05, 0, 0.04), -0.05, 0.05), False),
    (within(fixed(-0.04, 0, 0.05), -0.05, 0.05), False),
    (within(fixed(-0.04, 0, 0.06), -0.05, 0.05), False),
    (within(fixed(-0.05, 0, 0.05), -0.05, 0.05, ends=True), True),
    (within(fixed(-0.06, 0, 0.05), -0.05, 0.05, ends=True), False),
    (within(fixed(-0.05, 0, 0.06), -0.05, 0.05, ends=True), False),
    (within(fixed(None, 0, None), -1, 1), False),  # that nothing is known shows no equality
    (at_least(fixed(0, 2, 9), 2), True),
    (at_least(fixed(2, 1.9, 9), 2), False),
    (at_least(fixed(0, 40, 80), fixed(79, 80, 81).times(0.5, "half")), True),
    (at_least(fixed(0, 39, 80), fixed(79, 80, 81).times(0.5, "half")), False),
    (at_least(fixed(None, None, None), 0), False),
    (at_least(fixed(0, 1, 2), fixed(None, None, None)), False),
    (at_most(fixed(0, 2, 9), 2), True),
    (at_most(fixed(0, 2.1, 9), 2), False),
    (more_than(fixed(0, 2, 9), 2), False),
    (more_than(fixed(0, 2.1, 9), 2), True),
    (less_than(fixed(0, 2, 9), 2), False),
    (less_than(fixed(0, 1.9, 9), 2), True),
    (less_than(fixed(None, None, None), 2), False),
    (mean_within(fixed(0, 0.51, 9), 0.5, 0.6), True),  # its interval does not count
    (mean_within(fixed(0, 0.59, 9), 0.5, 0.6), True),
    (mean_within(fixed(0, 0.5, 9), 0.5, 0.6), False),
    (mean_within(fixed(0, 0.6, 9), 0.5, 0.6), False),
    (mean_within(fixed(None, None, None), -1e9, 1e9), False),
    (defined(fixed(0, 0, 0)), True),  # zero is a number
    (defined(fixed(None, 1, None)), True),
    (defined(fixed(None, None, None)), False),
    (rising([fixed(0, mean, 9) for mean in (1, 2, 3)], "them"), True),
    (rising([fixed(0, mean, 9) for mean in (1, 2, 2)], "them"), False),
    (rising([fixed(0, mean, 9) for mean in (1, 1, 2)], "them"), False),
    (rising([fixed(0, mean, 9) for mean in (2, 1, 3)], "them"), False),
    (rising([fixed(0, 1, 2), fixed(None, None, None)], "them"), False),
    (ranked_from(fixed(0, 1, 2, percentile=95), 95), True),
    (ranked_from(fixed(0, 1, 2, percentile=94.9), 95), False),
    (ranked_from(fixed(0, 1, 2), 0), False),
    (above_controls(fixed(0, 1, 2, percentile=100)), True),
    (above_controls(fixed(0, 1, 2, percentile=97.5)), False),  # a tie with one control is no rank above all
    (above_controls(fixed(0, 1, 2)), False),
    (above_controls(fixed(0, 1, 2), where_any=True), True),
    (above_controls(fixed(0, 1, 2, percentile=95), where_any=True), False),
    (below_controls(fixed(0, 1, 2, percentile=0)), True),
    (below_controls(fixed(0, 1, 2, percentile=2.5)), False),
    (below_controls(fixed(0, 1, 2)), False),
]
TRUE, FALSE = above(fixed(1, 2, 3)), above(fixed(-1, 2, 3))


@pytest.mark.parametrize(("rule", "expected"), CASES)
def test_a_rule_holds_only_beyond_its_bound(rule, expected):
    assert holds(rule) is expected


def test_rules_of_rules():
    assert [holds(all_of(TRUE, other)) for other in (TRUE, FALSE)] == [True, False]
    assert [holds(any_of(FALSE, other)) for other in (TRUE, FALSE)] == [True, False]
    assert [holds(not_(rule)) for rule in (TRUE, FALSE)] == [False, True]
    assert [holds(most_of([TRUE] * yes + [FALSE] * 2, "positions", "it rises")) for yes in (1, 2, 3)] == [False, False, True]
    for number_true in range(3):
        rules = [TRUE] * number_true + [FALSE] * (2 - number_true)
        assert holds(some_of(rules, "positions", "it rises")) is (number_true > 0)
        assert holds(none_of(rules, "positions", "it rises")) is (number_true == 0)


def test_a_claim_is_judged_only_where_its_premise_holds():
    verdicts = [judge(Claim("s", rule, given=given), RESULTS).verdict for rule in (TRUE, FALSE) for given in (None, TRUE, FALSE)]
    assert verdicts == ["supported", "supported", "not applicable", "inconclusive", "inconclusive", "not applicable"]
    assert "applies only if the interval of it lies above 0" in judge(Claim("s", TRUE, FALSE), RESULTS).reason


def test_an_identity_holds_or_fails():
    assert [judge(Claim("s", rule, kind="identity"), RESULTS).verdict for rule in (TRUE, FALSE)] == ["holds", "fails"]


def test_evidence_states_each_estimate_once_with_its_rank_and_the_rule():
    both = all_of(above(fixed(0.51, 1, 2, percentile=100)), above_controls(fixed(0.51, 1, 2, percentile=100)))
    evidence = judge(Claim("s", both), RESULTS).evidence
    assert evidence == (
        "It: 1.00 [0.510, 2.00] nats, percentile 100 among 20 controls. Rule: the interval of it lies above 0, and it lies above"
        " every matched control."
    )


def test_a_claim_on_what_was_not_measured_is_not_applicable_and_says_why():
    def absent(results: object) -> Estimate:
        raise Absent("the model has no BOS")

    missing, there = above(Quantity("that", absent)), above(fixed(0.51, 1, 2), 0.5)
    found = judge(Claim("one", all_of(there, missing)), RESULTS)
    assert (found.verdict, found.reason, found.estimates) == ("not applicable", "the model has no BOS", ())
    assert judge(Claim("one", there, also=(Quantity("that", absent),)), RESULTS).verdict == "supported"
    assert holds(all_present([missing, there], "in every run"))
    assert not holds(all_present([missing, there, FALSE], "in every run"))
    assert all_present([there, missing], "in every run").words == "in every run, the interval of it lies above 0.500"
    assert judge(Claim("one", all_present([missing, missing], "in every run")), RESULTS).reason == "the model has no BOS"


def test_a_number_without_an_interval_is_exactly_the_bound_or_not():
    assert holds(equals(fixed(None, 1, None), 1))
    assert not holds(equals(fixed(None, 1.5, None), 1))
    assert not holds(equals(fixed(None, None, None), 1))


def test_a_quantity_takes_numbers_intervals_rows_and_samples():
    samples = np.array([1.0, 2.0, 6.0])
    found = Interval(1.0, 0.5, 2.0, 3, 0, 0.95, "BCa")
    row = Row("edit", "series", "size", found, percentile=60.0, controls=5)
    made = [quantity("it", lambda results, value=value: value)(RESULTS) for value in (2, found, row, samples)]
    assert [entry.value.mean for entry in made] == [2.0, 1.0, 1.0, 3.0]
    assert (made[0].value.low, made[2].percentile, made[2].controls) == (None, 60.0, 5)
    assert made[3].value == intervals.interval(samples, seed=0)
    assert quantity("it", lambda results: float("nan"))(RESULTS).value.mean is None


def test_verdicts_are_data():
    claims = [Claim("one, two", above(fixed(0.51, 1, 2, percentile=100), 0.5), paper="5.47"), Claim("three", FALSE, given=FALSE)]
    lines = list(csv.DictReader(io.StringIO(verdicts_csv("paper/study", [judge(claim, RESULTS) for claim in claims]))))
    first = {name: lines[0][name] for name in ("study", "statement", "kind", "verdict", "estimate", "low", "high", "n", "unit")}
    assert first == {
        "study": "paper/study",
        "statement": "one, two",
        "kind": "empirical",
        "verdict": "supported",
        "estimate": "1",
        "low": "0.51",
        "high": "2",
        "n": "8",
        "unit": "nats",
    }
    assert (lines[0]["percentile"], lines[0]["controls"], lines[0]["paper"]) == ("100", "20", "5.47")
    assert lines[1]["verdict"] == "not applicable"


def test_numbers_have_three_or_four_digits():
    written = {
        23512.3: "23,512",
        100.4: "100",
        100.0: "100",
        66.91: "66.9",
        10.0: "10.0",
        4.178: "4.18",
        1.0: "1.00",
        0.0123: "0.012",
    }
    assert {value: in_digits(value) for value in written} == written
    assert (in_digits(0.0), in_digits(-0.0001), in_digits(-4.178)) == ("0", "0.000", "-4.18")
    assert [(found.n, found.note) for found in (constant(5.0), constant(float("nan")))] == [(1, ""), (0, "undefined")]


def test_a_sentence_begins_with_a_capital_and_ends():
    assert [sentence(text) for text in ("loss: 3", "|h| is 1.", "Is it?")] == ["Loss: 3.", "|h| is 1.", "Is it?"]


def test_an_interval_in_words():
    words = {signed: [in_words(number("it", float)(mean).value, signed) for mean in (3, 2.5, 0, -3)] for signed in (False, True)}
    assert words == {False: ["3", "2.50", "0", "-3"], True: ["+3", "+2.50", "0", "-3"]}
    assert in_words(fixed(0.5, 1, 2)(RESULTS).value, signed=True) == "+1.00 [0.500, 2.00]"
    assert in_words(fixed(None, 1, None)(RESULTS).value) == "1.00"
    assert in_words(Interval(1.0, 1.0, 1.0, 8, 0, 0.95, "none", "no spread")) == "1.00"  # ends that say nothing
    assert in_words(Interval(1.0, None, 2.0, 8, 0, 0.95, "BCa")) == "1.00"  # half an interval is none
    assert in_words(NOTHING) == "no finite samples"
