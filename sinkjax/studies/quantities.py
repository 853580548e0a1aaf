"""The quantities that rules and findings are made of: values and effects of conditions, from a study's results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis.estimates import Estimate, Quantity, quantity
from sinkjax.analysis.rules import Rule, above
from sinkjax.studies.study import Condition, Measure

if TYPE_CHECKING:
    from sinkjax.studies.results import Results

Label = str | Callable[["Results"], str]  # of a condition, or how it is found from the results


def value(measure: Measure, label: Label, name: str = "") -> Quantity:
    """The mean of a measure under one condition.

    Args:
        measure: The measure.
        label: Of the condition, or a function that finds it from the results.
        name: In words; "": that of the measure, and the label.

    Returns:
        The quantity.
    """

    def of(results: Results) -> Estimate:
        found = chosen(label, results)
        return Estimate(_named(name, label, found) or f"{measure.name} ({found})", results.row(measure, found).value)

    return Quantity(name or f"{measure.name} ({_said(label)})", of)


def effect(measure: Measure, label: Label, name: str = "") -> Quantity:
    """The paired difference of a condition from the baseline, with its rank among the matched controls if it has any.

    Args:
        measure, label, name: As for `value`.

    Returns:
        The quantity, in the measure's unit.
    """

    def of(results: Results) -> Estimate:
        found = chosen(label, results)
        row = results.row(measure, found)
        said = _named(name, label, found) or f"effect on {measure.name} ({found})"
        return Estimate(said, row.effect, measure.unit, True, row.rank)

    return Quantity(name or f"effect on {measure.name} ({_said(label)})", of)


def listed(label: Label, measure: str, name: str = "", unit: str = "", signed: bool = False, exact: bool = False) -> Quantity:
    """A row that a study makes itself (`Study.rows`), with its rank among its controls if it has any.

    Args:
        label: Of the row, or a function that finds it from the results.
        measure: Its name, as the row has it.
        name: In words; "": the measure and the label.
        unit: Of the number; "" for a pure one.
        signed: Whether it is a difference.
        exact: Whether its number has no sampling error, as a property of the weights.

    Returns:
        The quantity.
    """
    said = name or f"{measure} ({_said(label)})"
    row = quantity(said, lambda results: results.own_row(chosen(label, results), measure), unit, signed)
    return replace(row, exact=exact)


def difference(measure: Measure, label: Label, other: Label, name: str) -> Quantity:
    """The paired difference of two conditions.

    Args:
        measure: The measure.
        label: Of the condition, or a function that finds it from the results.
        other: Of the condition that is subtracted, as `label`.
        name: In words.

    Returns:
        The quantity, in the measure's unit.
    """

    def of(results: Results) -> NDArray:
        one, two = (results.per_prompt(measure, chosen(entry, results)) for entry in (label, other))
        return one - two

    return quantity(name, of, measure.unit, signed=True)


# Searches along a series, for conditions whose effect passes a rule.


def count(measure: Measure, series: str, name: str, rule: Callable[[Quantity], Rule] = above) -> Quantity:
    """How many conditions of a series pass a rule.

    Args:
        measure: The measure.
        series: The name of the series.
        name: Of the quantity, in words.
        rule: Effect of a condition -> the rule that it must pass; by default that its interval lies above 0.

    Returns:
        The quantity, a plain number that no rule judges.
    """
    return quantity(name, lambda results: len(_passing(results, measure, series, rule)))


def smallest(measure: Measure, series: str, name: str, rule: Callable[[Quantity], Rule] = above) -> Quantity:
    """The smallest x of a series that passes a rule, undefined where none does.

    Args:
        measure, series, name, rule: As for `count`.

    Returns:
        The quantity, a plain number that no rule judges.
    """
    return quantity(name, lambda results: min((entry.x for entry in _passing(results, measure, series, rule)), default=np.nan))


def _passing(results: Results, measure: Measure, series: str, rule: Callable[[Quantity], Rule] = above) -> list[Condition]:
    """The conditions of a series that pass. rule: as for `count`."""
    return [entry for entry in results.series(series) if rule(effect(measure, entry.label))(results).holds]


# Several conditions: their mean, the largest and the smallest of them, how many of them do something.


def chosen(label: Label, results: Any) -> str:
    """A condition's label."""
    return label if isinstance(label, str) else label(results)


def _named(name: str, label: Label, found: str) -> str:
    """A name, with the condition where that was found from the results."""
    return f"{name} ({found})" if name and callable(label) else name


def _said(label: Label) -> str:
    if isinstance(label, str):
        return label
    first = (label.__doc__ or "the chosen condition").splitlines()[0].rstrip(".")
    return f"{first[:1].lower()}{first[1:]}"
