"""Quantities about several conditions: their mean, the largest and the smallest of them, how many of them do something."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis.rules import Estimate, Quantity, Rule, above, above_controls, all_of, constant, quantity
from sinkjax.studies.quantities import effect
from sinkjax.studies.specs import SWEEP
from sinkjax.studies.study import Condition, Measure

if TYPE_CHECKING:
    from sinkjax.studies.results import Results


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
    """The mean of a measure over some conditions and prompts."""
    return quantity(f"{measure.name} ({pool.name})", lambda results: pool.mean(measure, results))


def contrast(measure: Measure, one: Pool, other: Pool, name: str) -> Quantity:
    """The difference of two averages, paired by prompt. The pools must have the same prompts."""
    return quantity(name, lambda results: one.mean(measure, results) - other.mean(measure, results), measure.unit, signed=True)


def raised(measure: Measure, label: str, where_any: bool = True) -> Rule:
    """A condition raises a measure: the interval of its effect lies above 0, and the effect above every matched control.

    where_any: or it has no controls.
    """
    changed = effect(measure, label)
    return all_of(above(changed), above_controls(changed, where_any))


def largest_of(quantities: Sequence[Quantity], name: str) -> Quantity:
    """The quantity with the largest mean. name: what it is the largest of."""
    return _extreme(quantities, name, max)


def smallest_of(quantities: Sequence[Quantity], name: str) -> Quantity:
    """The quantity with the smallest mean, as `largest_of`."""
    return _extreme(quantities, name, min)


def number_of(rules: Mapping[str, Rule], name: str) -> Quantity:
    """How many of some rules hold, and for what. rules: what a rule is about -> the rule."""

    def of(results: Results) -> Estimate:
        found = [what for what, rule in rules.items() if rule.test(results)[0]]
        listed = f" ({', '.join(found)})" if found else ""
        return Estimate(f"{name}{listed}", constant(float(len(found))), f"of {len(rules)}")

    return Quantity(name, of)


def _extreme(quantities: Sequence[Quantity], name: str, choose: Callable[..., Estimate]) -> Quantity:
    def of(results: Results) -> Estimate:
        found = [quantity(results) for quantity in quantities]
        there = [estimate for estimate in found if estimate.value.mean is not None]
        if not there:
            return Estimate(name, constant(float("nan")))
        best = choose(there, key=lambda estimate: estimate.mean)
        return replace(best, name=f"{name}: {best.name}")

    return Quantity(name, of)
