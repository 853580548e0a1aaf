"""The rules that judge claims: each tests quantities of a study's results, and says how well what it states is shown.

A rule is composed from quantities: `all_of(above(effect, 0), above_controls(effect))`. It was fixed before its numbers were seen,
and states itself in words. What it finds are two p values, one for what it states and one for the opposite, so that rules
compose without losing their error rate: of several that must all hold the worst p counts (Berger 1982), of several of which some
must hold a partial conjunction (Benjamini and Heller 2008). Neither is below `LEVEL` where the numbers do not decide.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis.estimates import Estimate, Quantity, constant, in_digits, present
from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.significance import independent, p_values

LEVEL = 0.05  # of a verdict
FEWEST = 8  # independent samples (documents, seeds) below which nothing is decided


@dataclass(frozen=True)
class Outcome:
    """What a rule finds.

    Attributes:
        p: Of the hypothesis that what it states is not so. 0 or 1 for a comparison of exact numbers.
        against: Of the hypothesis that it is so.
        estimates: What was looked at.
        why: Why nothing can be decided, or "".
        ranked: Whether p cannot fall below that of a rank among controls, however clear the rest is.
    """

    p: float
    against: float
    estimates: tuple[Estimate, ...] = ()
    why: str = ""
    ranked: bool = False

    @property
    def holds(self) -> bool:
        """Whether what the rule states is shown."""
        return self.p <= LEVEL

    @property
    def refuted(self) -> bool:
        """Whether the opposite is shown."""
        return self.against <= LEVEL < self.p

    @property
    def exact(self) -> bool:
        """Whether it compares numbers that have no sampling error."""
        return {self.p, self.against} == {0.0, 1.0}


@dataclass(frozen=True)
class Rule:
    """criterion: what must hold, as the end of a sentence. test: results -> what it finds."""

    criterion: str
    test: Callable[[Any], Outcome]

    def __call__(self, results: Any) -> Outcome:
        return self.test(results)

    def restated(self, criterion: str) -> Rule:
        """The same rule, stated otherwise."""
        return Rule(criterion, self.test)


def fact(holds: bool, *estimates: Estimate) -> Outcome:
    """What is known without sampling error."""
    return Outcome(0.0 if holds else 1.0, 1.0 if holds else 0.0, estimates)


def undecided(why: str, *estimates: Estimate) -> Outcome:
    """Neither is shown."""
    return Outcome(1.0, 1.0, estimates, why)


# Rules on one quantity. A bound is a number or another quantity; where both have samples, they are compared in pairs.


def above(quantity: Quantity, bound: float | Quantity = 0) -> Rule:
    """The whole interval lies above the bound; for an exact number, the number itself.

    Args:
        quantity: What is compared.
        bound: A number in its unit, or another quantity: where both have samples, they are compared in pairs.

    Returns:
        The rule; it decides nothing where a number is undefined or rests on fewer than `FEWEST` independent samples.
    """
    return _compared(quantity, bound, "above", inclusive=False)


def below(quantity: Quantity, bound: float | Quantity = 0) -> Rule:
    """The whole interval lies below the bound; for an exact number, the number itself.

    Args:
        quantity, bound: As for `above`.

    Returns:
        As `above`.
    """
    return _compared(quantity, bound, "below", inclusive=False)


def at_least(quantity: Quantity, bound: float | Quantity) -> Rule:
    """As `above`, but an exact number may be equal to the bound.

    Args:
        quantity, bound: As for `above`.

    Returns:
        As `above`.
    """
    return _compared(quantity, bound, "above", inclusive=True)


def at_most(quantity: Quantity, bound: float | Quantity) -> Rule:
    """As `below`, but an exact number may be equal to the bound.

    Args:
        quantity, bound: As for `above`.

    Returns:
        As `above`.
    """
    return _compared(quantity, bound, "below", inclusive=True)


def within(quantity: Quantity, low: float, high: float) -> Rule:
    """The whole interval lies strictly between two bounds: an equivalence test with a stated margin.

    Args:
        quantity: What is compared.
        low, high: The bounds, in its unit.

    Returns:
        As `above`.
    """
    both = all_of(above(quantity, low), below(quantity, high))
    return both.restated(f"{_subject(quantity)} lies between {in_digits(low)} and {in_digits(high)}")


def defined(quantity: Quantity) -> Rule:
    """The number exists, in one or more samples.

    Args:
        quantity: What is looked at.

    Returns:
        The rule, which always decides.
    """

    def test(results: Any) -> Outcome:
        found = quantity(results)
        return fact(found.value.mean is not None, found)

    return Rule(f"{quantity.name} is defined", test)


def above_controls(quantity: Quantity) -> Rule:
    """The effect is larger than those of its matched controls: p = (1 + b) / (1 + m), so 19 are the fewest that decide.

    Here b of the m controls have an effect at least as large.

    Args:
        quantity: An effect with a rank among controls, as `effect` and `listed` give it.

    Returns:
        The rule; it decides nothing where there are no controls, or fewer than 19.
    """
    return _ranked(quantity, "above", lambda rank: (rank.p_above, rank.p_below))


def below_controls(quantity: Quantity) -> Rule:
    """The effect is smaller than those of the matched controls, as `above_controls`.

    Args:
        quantity: As for `above_controls`.

    Returns:
        As `above_controls`.
    """
    return _ranked(quantity, "below", lambda rank: (rank.p_below, rank.p_above))


# Rules on rules.


def all_of(*rules: Rule, criterion: str = "") -> Rule:
    """All of some rules hold.

    Args:
        *rules: One or more.
        criterion: What they state together, as the end of a sentence; "": the criterion of each.

    Returns:
        The rule; the largest p value of its parts counts.
    """
    return _at_least(len(rules), rules, criterion or ", and ".join(rule.criterion for rule in rules))


def any_of(*rules: Rule, criterion: str = "") -> Rule:
    """One or more of some rules hold.

    Args:
        *rules: One or more.
        criterion: As for `all_of`.

    Returns:
        The rule; its p value is the smallest of its parts times their number.
    """
    return _at_least(1, rules, criterion or ", or ".join(rule.criterion for rule in rules))


def not_(rule: Rule, criterion: str = "") -> Rule:
    """The opposite of what a rule states is shown.

    Args:
        rule: The rule.
        criterion: What is stated, as the end of a sentence; "": that it is not so.

    Returns:
        The rule, with the two p values exchanged.
    """

    def test(results: Any) -> Outcome:
        found = rule(results)
        return Outcome(found.against, found.p, found.estimates, found.why)

    return Rule(criterion or f"it is not so that {rule.criterion}", test)


def all_present(rules: Sequence[Rule], where: str) -> Rule:
    """One rule holds in all runs that took place: all of `rules`, but for those on what was not measured.

    Args:
        rules: The rule for each run, at least one.
        where: The runs, as in "in every run".

    Returns:
        The rule. Where nothing was measured it raises `Absent`, as its first part does.
    """

    def test(results: Any) -> Outcome:
        found = present([rule.test for rule in rules], results) or [rules[0](results)]
        return _conjunction(len(found), found)

    return Rule(f"{where}, {rules[0].criterion}", test)


def every(rules: Sequence[Rule], what: str, criterion: str) -> Rule:
    """All of many rules hold, which are counted in the evidence and not listed.

    Args:
        rules, what, criterion: As for `most_of`.

    Returns:
        The rule; its estimate is the number of rules that hold.
    """
    return _counted(len(rules), rules, what, f"at all of the {what}, {criterion}")


def most_of(rules: Sequence[Rule], what: str, criterion: str) -> Rule:
    """More than half of some rules hold.

    Args:
        rules: One or more.
        what: What there is one rule for, in the plural, as in "positions".
        criterion: What each rule states, as the end of a sentence.

    Returns:
        The rule, a partial conjunction; its estimate is the number of rules that hold.
    """
    return _counted(len(rules) // 2 + 1, rules, what, f"at more than half of the {what}, {criterion}")


def some_of(rules: Sequence[Rule], what: str, criterion: str) -> Rule:
    """One or more of some rules hold, which are counted in the evidence and not listed.

    Args:
        rules, what, criterion: As for `most_of`.

    Returns:
        The rule; its estimate is the number of rules that hold.
    """
    return _counted(1, rules, what, f"at one or more of the {what}, {criterion}")


def rising(quantities: Sequence[Quantity], what: str) -> Rule:
    """Each quantity lies above the one before it, in pairs.

    Args:
        quantities: In their order, at least two.
        what: What they all are, as the subject of a sentence.

    Returns:
        The rule, as `all_of` of one comparison for each step.
    """
    steps = (above(after, before) for before, after in itertools.pairwise(quantities))
    return all_of(*steps, criterion=f"{what} rises with every step, by the interval of each paired difference")


def never(criterion: str) -> Rule:
    """A rule that never holds: as `given`, it says why a claim applies to none of the models that a study takes.

    Args:
        criterion: What would have to hold, as the end of a sentence.

    Returns:
        The rule, which is always refuted.
    """
    return Rule(criterion, lambda results: fact(False))


def _compared(quantity: Quantity, bound: float | Quantity, side: str, inclusive: bool) -> Rule:
    sign = 1 if side == "above" else -1

    def test(results: Any) -> Outcome:
        found = quantity(results)
        limit = bound(results) if isinstance(bound, Quantity) else Estimate("", constant(float(bound)))
        estimates = (found, limit) if isinstance(bound, Quantity) else (found,)
        for one in estimates:
            if one.value.mean is None:
                return undecided(f"{one.name} is undefined", *estimates)
        mine, other = found.value.samples, limit.value.samples
        for one, samples, exact in (
            (found, mine, quantity.exact),
            (limit, other, not isinstance(bound, Quantity) or bound.exact),
        ):
            if samples is None and not exact:
                return undecided(f"{one.name} is a number without samples, and is not declared exact", *estimates)
        if mine is None and other is None:
            gap = sign * (found.mean - limit.mean)
            return fact(gap >= 0 if inclusive else gap > 0, *estimates)
        if mine is None or other is None:
            gaps = (found.mean if mine is None else mine) - (limit.mean if other is None else other)
        else:
            n = min(len(mine), len(other))  # controls run on the first prompts
            gaps = mine[:n] - other[:n]
        return _decide(sign * np.asarray(gaps), (limit if mine is None else found).value, results, estimates)

    reached = "at least" if side == "above" else "at most"
    relation = (reached if inclusive else side) if quantity.exact else side
    said = bound.name if isinstance(bound, Quantity) else in_digits(bound)
    verb = "is" if quantity.exact else "lies"
    pairs = ", in pairs" if isinstance(bound, Quantity) and not (quantity.exact or bound.exact) else ""
    return Rule(f"{_subject(quantity)} {verb} {relation} {said}{pairs}", test)


def _decide(gaps: NDArray, value: Interval, results: Any, estimates: tuple[Estimate, ...]) -> Outcome:
    """Whether the mean of some samples lies above 0. value: the interval whose samples they come from."""
    clusters = None if value.clusters is None else value.clusters[: len(gaps)]
    units = independent(gaps, clusters)
    if units < FEWEST:
        return undecided(
            f"{units} independent sample{'s' * (units != 1)} cannot decide: at least {FEWEST} are needed", *estimates
        )
    return Outcome(*p_values(gaps, seed=results.config.seed, clusters=clusters), estimates)


def _ranked(quantity: Quantity, side: str, values: Callable[[Any], tuple[float, float]]) -> Rule:
    def test(results: Any) -> Outcome:
        found = quantity(results)
        if found.rank is None:
            return undecided(f"{found.name} has no controls", found)
        p, against = values(found.rank)
        few = 1 / (1 + found.rank.controls) > LEVEL
        why = (
            f"{found.rank.controls} control{'s' * (found.rank.controls != 1)} cannot decide: at least 19 are needed"
            if few
            else ""
        )
        return Outcome(p, against, (found,), why, ranked=True)

    return Rule(f"{quantity.name} lies {side} those of its random controls (p = (1 + b) / (1 + m))", test)


def _subject(quantity: Quantity) -> str:
    return quantity.name if quantity.exact else f"the interval of {quantity.name}"


def _at_least(count: int, rules: Sequence[Rule], criterion: str) -> Rule:
    return Rule(criterion, lambda results: _conjunction(count, [rule(results) for rule in rules]))


def _counted(count: int, rules: Sequence[Rule], what: str, criterion: str) -> Rule:
    def test(results: Any) -> Outcome:
        found = [rule(results) for rule in rules]
        held = Estimate(f"{what} at which it holds", constant(float(sum(one.holds for one in found))), f"of {len(rules)}")
        joined = _conjunction(count, found)
        return Outcome(joined.p, joined.against, (held,), joined.why, joined.ranked)

    return Rule(criterion, test)


def _conjunction(count: int, found: Sequence[Outcome]) -> Outcome:
    """`count` or more of some rules hold: the p value of the partial conjunction, and that of its opposite.

    The estimates of the part whose p decides come first.
    """
    K = len(found)
    by_p, by_against = (sorted(found, key=operator.attrgetter(name)) for name in ("p", "against"))
    p = min(1.0, (K - count + 1) * by_p[count - 1].p)
    against = min(1.0, count * by_against[K - count].against)
    decides = by_against[K - count] if against <= LEVEL < p else by_p[count - 1]
    parts = [decides, *(one for one in found if one is not decides)]
    why = "" if min(p, against) <= LEVEL else _first(one.why for one in found)
    ranked = sum(one.ranked for one in found) > K - count  # more than those that need not hold
    return Outcome(p, against, tuple(estimate for one in parts for estimate in one.estimates), why, ranked)


def _first(texts: Iterable[str]) -> str:
    return next(filter(None, texts), "")
