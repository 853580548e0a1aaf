"""The quantities that rules and findings are made of: values and effects of conditions, from a study's results."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import Estimate, Quantity, constant, quantity
from sinkjax.analysis.rules import Rule, above, above_controls, all_of
from sinkjax.studies.measures import largest_activation, largest_typical
from sinkjax.studies.specs import CONTROLS, SWEEP
from sinkjax.studies.study import NO_EDIT, Condition, Measure

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


def part_of(measure: Measure, label: Label, whole: Label, name: str) -> Quantity:
    """The mean effect of a condition as a part of that of another one, a ratio of means over prompts.

    Args:
        measure: The measure.
        label: Of the condition, or a function that finds it from the results.
        whole: Of the condition whose effect counts as 1, as `label`.
        name: In words.

    Returns:
        The quantity; its interval is that of its jackknife pseudo-values. It is undefined where `whole` has no effect.
    """

    def of(results: Results) -> intervals.Interval:
        effects = [results.row(measure, chosen(entry, results)).effect.samples for entry in (label, whole)]
        return _ratio(
            results, np.stack([np.asarray(samples) for samples in effects], axis=-1), lambda means: means[..., 0] / means[..., 1]
        )

    return quantity(name, of)


def recovered(measure: Measure, harmed: Label, kept: Label, whole: Label, name: str) -> Quantity:
    """The part of a damage that a condition undoes: (harmed - kept) / (harmed - whole), a ratio of means over prompts.

    Args:
        measure: The measure.
        harmed, kept, whole: Labels of the conditions, or functions that find them from the results.
        name: In words.

    Returns:
        The quantity; its interval is that of its jackknife pseudo-values.
    """

    def part(means: NDArray) -> NDArray:
        return (means[..., 1] - means[..., 2]) / (means[..., 1] - means[..., 0])

    def of(results: Results) -> intervals.Interval:
        columns = [results.per_prompt(measure, chosen(entry, results)) for entry in (whole, harmed, kept)]
        return _ratio(results, np.stack(columns, axis=-1), part)

    return quantity(name, of)


def _ratio(results: Results, values: NDArray, of: Callable[[NDArray], NDArray]) -> intervals.Interval:
    """A ratio of means over float[prompt, column], with the interval of its jackknife pseudo-values, or undefined."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if not np.isfinite(values).all() or not np.isfinite(of(values.mean(axis=0))):
            return intervals.interval(np.full(len(values), np.nan))
        if len(values) < 2:
            return intervals.interval(of(values))
        return results.interval(intervals.pseudo_values(values, of))


def control_effect(measure: Measure, budget: Hashable, name: str, *, controls: str = CONTROLS, store: str = SWEEP) -> Quantity:
    """The mean effect of all controls of a budget, over their prompts.

    Args:
        measure: The measure.
        budget: That of the controls (`Condition.budget`).
        name: In words.
        controls: The store of the controls.
        store: The store whose first condition is the baseline.

    Returns:
        The quantity, in the measure's unit.
    """

    def of(results: Results) -> NDArray:
        drawn = [entry.budget == budget for entry in results.conditions(controls)]
        values = results.values(measure, controls)[drawn]
        return (values - results.values(measure, store)[0, : values.shape[1]]).mean(axis=0)

    return quantity(name, of, measure.unit, signed=True)


def noop_change(*labels: str, store: str = SWEEP) -> Quantity:
    """The largest change that no-op edits make where they are conditions of a sweep, for a study's findings.

    Args:
        *labels: Of the no-op edits.
        store: Of their sweep, whose first condition is without an edit.

    Returns:
        The quantity, in millionths of the largest value of the statistic that changes most; no rule judges it.
    """

    def largest(results: Results) -> float:
        from sinkjax.studies.noop import changes  # imports JAX

        return 1e6 * max(float(change.max()) for change in changes(results[store], labels).values())

    name = f"largest change of any statistic by an edit that must change nothing ({'; '.join(labels)})"
    return quantity(name, largest, "millionths of its largest value")


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


def median(measure: Measure, label: Label) -> Quantity:
    """The median of a measure under one condition, of the prompts in which it is defined, and how many these are.

    Args:
        measure: The measure.
        label: Of the condition, or a function that finds it from the results.

    Returns:
        The quantity, without an interval and declared exact.
    """
    name = f"median {measure.name}"

    def of(results: Results) -> Estimate:
        found = chosen(label, results)
        values = results.per_prompt(measure, found)
        defined = values[np.isfinite(values)]
        middle = float(np.median(defined)) if defined.size else float("nan")
        return Estimate(f"{name} ({found})", constant(middle), f"({defined.size} of {values.size} prompts have one)")

    return Quantity(name, of, exact=True)


def largest_effect(measure: Measure, labels: Sequence[str], said: str, lowest: bool = False) -> Callable[[Results], str]:
    """Finds the condition with the largest effect (or the lowest), the first one of several.

    Args:
        measure: The measure.
        labels: Those of the conditions to choose from, at least one.
        said: What the condition found is called, e.g. "the best layer".
        lowest: Whether the lowest effect is sought.

    Returns:
        Results -> the label, for functions that take a label or a function that finds it.
    """

    def label(results: Results) -> str:
        means = {entry: results.row(measure, entry).effect.mean for entry in labels}
        sign = -1 if lowest else 1
        return max(means, key=lambda entry: -np.inf if means[entry] is None else sign * (means[entry] or 0.0))

    label.__doc__ = said
    return label


# Several conditions: their mean, the largest and the smallest of them, how many of them do something.


@dataclass(frozen=True)
class Pool:
    """Conditions over which a measure is averaged, prompt by prompt.

    name: what they are. chosen: which conditions of the store. prompts: how many of the first prompts are taken; None: all.
    """

    name: str
    chosen: Callable[[Condition], bool]
    store: str = SWEEP
    prompts: int | None = None

    def mean(self, measure: Measure, results: Results) -> NDArray:
        """float[prompt]."""
        rows = [row for row, condition in enumerate(results.conditions(self.store)) if self.chosen(condition)]
        return np.asarray(results.values(measure, self.store)[rows].mean(axis=0)[: self.prompts])


def average(measure: Measure, pool: Pool) -> Quantity:
    """The mean of a measure over some conditions and prompts.

    Args:
        measure: The measure.
        pool: The conditions and prompts.

    Returns:
        The quantity.
    """
    return quantity(f"{measure.name} ({pool.name})", lambda results: pool.mean(measure, results))


def contrast(measure: Measure, one: Pool, other: Pool, name: str) -> Quantity:
    """The difference of two averages, paired by prompt.

    Args:
        measure: The measure.
        one: Conditions and prompts.
        other: Those whose average is subtracted; the pools must have the same prompts.
        name: In words.

    Returns:
        The quantity, in the measure's unit.
    """
    return quantity(name, lambda results: one.mean(measure, results) - other.mean(measure, results), measure.unit, signed=True)


def raised(measure: Measure, label: str) -> Rule:
    """A condition raises a measure: the interval of its effect lies above 0, and the effect above those of its controls.

    Args:
        measure: The measure.
        label: Of the condition.

    Returns:
        The rule.
    """
    changed = effect(measure, label)
    return all_of(above(changed), above_controls(changed))


def massive_on_first(times: float = 10) -> Rule:
    """The premise of what is said of the first token's massive activation: without an edit it has one, `times` a typical |h|.

    Args:
        times: The multiple that it must exceed, of the largest |h| at a typical other position.

    Returns:
        The rule, for `Claim.given`; the probe must ask for `resid_max`.
    """
    typical = value(largest_typical(), NO_EDIT).times(times, f"{times:g} times that at a typical other position")
    return above(value(largest_activation(0), NO_EDIT), typical)


def largest_of(quantities: Sequence[Quantity], name: str) -> Quantity:
    """The quantity with the largest mean.

    Args:
        quantities: Those to choose from; undefined ones are left out.
        name: What it is the largest of, in words.

    Returns:
        The quantity, undefined where all of them are.
    """
    return _extreme(quantities, name, max)


def smallest_of(quantities: Sequence[Quantity], name: str) -> Quantity:
    """The quantity with the smallest mean, as `largest_of`.

    Args:
        quantities: As for `largest_of`.
        name: What it is the smallest of, in words.

    Returns:
        As `largest_of`.
    """
    return _extreme(quantities, name, min)


def number_of(rules: Mapping[str, Rule], name: str) -> Quantity:
    """How many of some rules hold, and for what.

    Args:
        rules: What a rule is about -> the rule.
        name: What is counted, in words.

    Returns:
        The quantity, a plain number that no rule judges.
    """

    def of(results: Results) -> Estimate:
        found = [what for what, rule in rules.items() if rule(results).holds]
        listed = f" ({', '.join(found)})" if found else ""
        return Estimate(f"{name}{listed}", constant(float(len(found))), f"of {len(rules)}")

    return Quantity(name, of)


def _extreme(quantities: Sequence[Quantity], name: str, choose: Callable[..., Estimate]) -> Quantity:
    def of(results: Results) -> Estimate:
        found = [each(results) for each in quantities]
        there = [estimate for estimate in found if estimate.value.mean is not None]
        if not there:
            return Estimate(name, constant(float("nan")))
        best = choose(there, key=lambda estimate: estimate.mean)
        return replace(best, name=f"{name}: {best.name}")

    return Quantity(name, of)


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
