"""Claims, the rules that judge them, and the evidence: numbers in, verdicts out.

A rule is composed from quantities: `all_of(above(effect, 0), above_controls(effect))`. It was fixed before its numbers were seen,
it states itself in words, and what it was judged by goes into the verdict as data; sentences are made from that.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sinkjax.analysis.estimates import (
    Absent,
    Estimate,
    Quantity,
    constant,
    high_end,
    in_digits,
    low_end,
    present,
    sentence,
)
from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.summary import bounds

Kind = Literal["empirical", "identity"]
Verdict = Literal["supported", "inconclusive", "not applicable", "holds", "fails"]
VERDICT_COLUMNS = (
    "study",
    "statement",
    "kind",
    "verdict",
    "rule",
    "quantity",
    "estimate",
    "low",
    "high",
    "n",
    "unit",
    "percentile",
    "controls",
    "evidence",
    "paper",
)


@dataclass(frozen=True)
class Rule:
    """words: what must hold, as the end of a sentence. test: results -> whether it does, and the estimates that decide."""

    words: str
    test: Callable[[Any], tuple[bool, tuple[Estimate, ...]]]


@dataclass(frozen=True)
class Claim:
    """A statement and how it is judged.

    Attributes:
        statement: With its source (paper, figure or section).
        rule: What must hold for it to be supported.
        given: What must hold for the claim to apply at all; None: it always does.
        paper: The paper's own number, on its own model; "" if it gives none.
        kind: "identity" for a proposition that cannot fail if the code is right.
        also: Further quantities that are reported beside.
    """

    statement: str
    rule: Rule
    given: Rule | None = None
    paper: str = ""
    kind: Kind = "empirical"
    also: tuple[Quantity, ...] = ()


@dataclass(frozen=True)
class Judgement:
    """A claim with its verdict.

    estimates: what the verdict rests on, the first one before all. rule: in words. reason: why it is not applicable, else "".
    """

    statement: str
    verdict: Verdict
    rule: str
    estimates: tuple[Estimate, ...] = ()
    reason: str = ""
    paper: str = ""
    kind: Kind = "empirical"

    @property
    def evidence(self) -> str:
        """The estimates, the rule and the reason in words."""
        parts = ("; ".join(map(str, self.estimates)), self.rule and f"Rule: {self.rule}", self.reason)
        return " ".join(sentence(part) for part in parts if part)


def judge(claim: Claim, results: Any) -> Judgement:
    """The verdict on a claim; one on what was not measured is not applicable."""
    try:
        holds, estimates = claim.rule.test(results)
    except Absent as error:
        return Judgement(
            claim.statement, "not applicable", claim.rule.words, reason=str(error), paper=claim.paper, kind=claim.kind
        )
    estimates = _once([*estimates, *present(claim.also, results)])
    reason = ""
    if claim.given is not None:
        applies, premises = claim.given.test(results)
        if not applies:
            listed = "; ".join(map(str, _once(premises)))
            reason = f"applies only if {claim.given.words}" + (f" ({listed})" if listed else "")
    verdict: Verdict = "supported" if holds else "inconclusive"
    if claim.kind == "identity":
        verdict = "holds" if holds else "fails"
    return Judgement(
        claim.statement, "not applicable" if reason else verdict, claim.rule.words, estimates, reason, claim.paper, claim.kind
    )


def _once(estimates: Iterable[Estimate]) -> tuple[Estimate, ...]:
    return tuple({(estimate.name, str(estimate)): estimate for estimate in estimates}.values())


# Rules on one quantity. Intervals decide where there are any; a bound is a number, or another quantity whose mean counts.


def above(quantity: Quantity, bound: float | Quantity = 0) -> Rule:
    """The whole interval lies above the bound; an interval that does not exist does not."""
    return _compared(quantity, bound, "the interval of {} lies above {}", lambda value, limit: low_end(value) > limit)


def below(quantity: Quantity, bound: float | Quantity = 0) -> Rule:
    """The whole interval lies below the bound; an interval that does not exist does not."""
    return _compared(quantity, bound, "the interval of {} lies below {}", lambda value, limit: high_end(value) < limit)


def at_least(quantity: Quantity, bound: float | Quantity) -> Rule:
    """The mean is at least the bound."""
    return _compared(quantity, bound, "{} is at least {}", lambda value, limit: value.mean is not None and value.mean >= limit)


def at_most(quantity: Quantity, bound: float | Quantity) -> Rule:
    """The mean is at most the bound."""
    return _compared(quantity, bound, "{} is at most {}", lambda value, limit: value.mean is not None and value.mean <= limit)


def more_than(quantity: Quantity, bound: float | Quantity) -> Rule:
    """The mean is above the bound."""
    return _compared(quantity, bound, "{} is above {}", lambda value, limit: value.mean is not None and value.mean > limit)


def less_than(quantity: Quantity, bound: float | Quantity) -> Rule:
    """The mean is below the bound."""
    return _compared(quantity, bound, "{} is below {}", lambda value, limit: value.mean is not None and value.mean < limit)


def at_or_above(quantity: Quantity, bound: float | Quantity) -> Rule:
    """No part of the interval lies below the bound; an interval that does not exist is not there."""
    return _compared(quantity, bound, "the interval of {} does not go below {}", lambda value, limit: low_end(value) >= limit)


def above_all_of(quantity: Quantity, other: Quantity) -> Rule:
    """The whole interval lies above the whole interval of another quantity."""

    def test(results: Any) -> tuple[bool, tuple[Estimate, ...]]:
        one, two = quantity(results), other(results)
        return low_end(one.value) > high_end(two.value), (one, two)

    return Rule(f"the interval of {quantity.name} lies above that of {other.name}", test)


def equals(quantity: Quantity, bound: float) -> Rule:
    """A number without an interval, such as a median, is exactly the bound."""
    return _compared(quantity, bound, "{} is {}", lambda value, limit: value.mean == limit)


def within(quantity: Quantity, low: float, high: float, ends: bool = False) -> Rule:
    """The whole interval lies strictly between two bounds, an equivalence test with a stated margin. ends: or touches them."""

    def test(results: Any) -> tuple[bool, tuple[Estimate, ...]]:
        found = quantity(results)
        first, last = low_end(found.value), high_end(found.value)
        return (low <= first and last <= high if ends else low < first and last < high), (found,)

    return Rule(f"the interval of {quantity.name} lies between {in_digits(low)} and {in_digits(high)}", test)


def mean_within(quantity: Quantity, low: float, high: float) -> Rule:
    """The mean lies strictly between two bounds."""

    def test(results: Any) -> tuple[bool, tuple[Estimate, ...]]:
        found = quantity(results)
        return low < found.mean < high, (found,)

    return Rule(f"{_mean_of(quantity)} lies between {in_digits(low)} and {in_digits(high)}", test)


def defined(quantity: Quantity) -> Rule:
    """The number exists: its mean is not undefined."""

    def test(results: Any) -> tuple[bool, tuple[Estimate, ...]]:
        found = quantity(results)
        return found.value.mean is not None, (found,)

    return Rule(f"{quantity.name} is defined", test)


def above_controls(quantity: Quantity, where_any: bool = False) -> Rule:
    """The effect is larger than that of every matched control. where_any: or there are none."""
    return _ranked(quantity, 100.0, "lies above every matched control", where_any)


def below_controls(quantity: Quantity, where_any: bool = False) -> Rule:
    """The effect is smaller than that of every matched control. where_any: or there are none."""
    return _ranked(quantity, 0.0, "lies below every matched control", where_any)


def ranked_from(quantity: Quantity, percentile: float) -> Rule:
    """The rank among matched controls is at least a percentile; without controls it is not."""

    def test(results: Any) -> tuple[bool, tuple[Estimate, ...]]:
        found = quantity(results)
        return found.percentile is not None and found.percentile >= percentile, (found,)

    return Rule(f"{quantity.name} lies at percentile {percentile:g} of its controls or higher", test)


# Rules on rules.


def all_of(*rules: Rule) -> Rule:
    """All of some rules hold."""
    return _joined(rules, all, ", and ")


def any_of(*rules: Rule) -> Rule:
    """At least one of some rules holds."""
    return _joined(rules, any, ", or ")


def not_(rule: Rule) -> Rule:
    """A rule does not hold."""

    def test(results: Any) -> tuple[bool, tuple[Estimate, ...]]:
        holds, estimates = rule.test(results)
        return not holds, estimates

    return Rule(f"it is not so that {rule.words}", test)


def all_present(rules: Sequence[Rule], where: str) -> Rule:
    """One rule holds in all runs that took place: all of `rules`, but for those on what was not measured.

    where: the runs, as in "in every run". Where nothing was measured, the rule is as `Absent` as its first part.
    """

    def test(results: Any) -> tuple[bool, tuple[Estimate, ...]]:
        found = present([rule.test for rule in rules], results) or [rules[0].test(results)]
        return all(holds for holds, _ in found), tuple(estimate for _, several in found for estimate in several)

    return Rule(f"{where}, {rules[0].words}", test)


def most_of(rules: Sequence[Rule], what: str, words: str) -> Rule:
    """More than half of some rules hold. what: what there is one rule for, in the plural. words: the rule of each."""

    def test(results: Any) -> tuple[bool, tuple[Estimate, ...]]:
        count = sum(rule.test(results)[0] for rule in rules)
        found = Estimate(f"{what} at which it holds", constant(float(count)), f"of {len(rules)}")
        return 2 * count > len(rules), (found,)

    return Rule(f"at more than half of the {what}, {words}", test)


def some_of(rules: Sequence[Rule], what: str, words: str) -> Rule:
    """At least one of some rules holds. what, words: as for `most_of`; what they look at is reported by the claim."""
    return _counted(rules, what, f"at one or more of the {what}, {words}", lambda count: count > 0)


def none_of(rules: Sequence[Rule], what: str, words: str) -> Rule:
    """None of some rules holds. what, words: as for `some_of`."""
    return _counted(rules, what, f"at none of the {what}, {words}", lambda count: count == 0)


def rising(quantities: Sequence[Quantity], what: str) -> Rule:
    """The mean of each quantity lies above that of the one before it. what: they all are."""

    def test(results: Any) -> tuple[bool, tuple[Estimate, ...]]:
        found = tuple(quantity(results) for quantity in quantities)
        return all(before.mean < after.mean for before, after in itertools.pairwise(found)), found

    return Rule(f"the mean of {what} rises with every step", test)


def never(words: str) -> Rule:
    """What holds for none of the models that a study takes: as `given`, it says why a claim is not applicable."""
    return Rule(words, lambda results: (False, ()))


def verdicts_csv(study: str, judgements: Sequence[Judgement]) -> str:
    """Claims as CSV: statement, rule, the estimate that decides, verdict; all estimates stand in `evidence`."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(VERDICT_COLUMNS)
    for found in judgements:
        first = found.estimates[0] if found.estimates else None
        numbers: tuple[Any, ...] = ("",) * 8
        if first:
            rank = "" if first.percentile is None else first.percentile
            numbers = (first.name, *bounds(first.value), first.value.n, first.unit, rank, first.controls)
        table.writerow([study, found.statement, found.kind, found.verdict, found.rule, *numbers, found.evidence, found.paper])
    return out.getvalue()


def _compared(quantity: Quantity, bound: float | Quantity, words: str, holds: Callable[[Interval, float], bool]) -> Rule:
    def test(results: Any) -> tuple[bool, tuple[Estimate, ...]]:
        found = quantity(results)
        if isinstance(bound, Quantity):
            limit = bound(results)
            return holds(found.value, limit.mean), (found, limit)
        return holds(found.value, bound), (found,)

    name = quantity.name if words.startswith("the interval") else _mean_of(quantity)
    return Rule(words.format(name, bound.name if isinstance(bound, Quantity) else in_digits(bound)), test)


def _mean_of(quantity: Quantity) -> str:
    return quantity.name if quantity.exact else f"the mean of {quantity.name}"


def _counted(rules: Sequence[Rule], what: str, words: str, holds: Callable[[int], bool]) -> Rule:
    def test(results: Any) -> tuple[bool, tuple[Estimate, ...]]:
        count = sum(rule.test(results)[0] for rule in rules)
        return holds(count), (Estimate(f"{what} at which it holds", constant(float(count)), f"of {len(rules)}"),)

    return Rule(words, test)


def _ranked(quantity: Quantity, percentile: float, words: str, where_any: bool) -> Rule:
    def test(results: Any) -> tuple[bool, tuple[Estimate, ...]]:
        found = quantity(results)
        return found.percentile == percentile or (where_any and found.percentile is None), (found,)

    return Rule(f"{quantity.name} {words}{' (where it has any)' if where_any else ''}", test)


def _joined(rules: Sequence[Rule], how: Callable[[Iterable[bool]], bool], word: str) -> Rule:
    def test(results: Any) -> tuple[bool, tuple[Estimate, ...]]:
        found = [rule.test(results) for rule in rules]
        return how([holds for holds, _ in found]), tuple(estimate for _, several in found for estimate in several)

    return Rule(word.join(rule.words for rule in rules), test)
