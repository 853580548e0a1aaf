"""Manipulation checks: whether an edit did what a claim's sentence says, measured in the edited run (`took` of `Lab.claim`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis.estimates import three_digits
from sinkjax.analysis.judgement import SMALL
from sinkjax.study.measures import Measure
from sinkjax.study.numbers import Numbers
from sinkjax.study.places import Case
from sinkjax.study.work import Where

# Why an edit is its own check.
MASKED = "a masked key has no weight"
ISOLATED = "the query sees only the keys that are left to it"
WRITTEN = "it sets exactly what the claim names"


@dataclass(frozen=True, eq=False)
class Check:
    """A bound on the manipulated quantity, as a mean over all documents of the edited run.

    Attributes:
        measure: The manipulated quantity, such as the size of an activation.
        where: The conditions whose edit is checked.
        target: The measure whose mean it is compared with.
        like: The conditions in which the target is measured; None for no edit.
        removes: Whether at most 1/10 of the target may be left; otherwise at least 9/10 of it must be there.
    """

    measure: Measure
    where: Where
    target: Measure
    like: Where | None = None
    removes: bool = False

    def test(self, read: Numbers) -> tuple[bool, str]:
        """Return whether the edit took and no random control did, and the numbers that decide."""
        after, target = self._mean(read, self.measure, self.where), self._target(read)
        share = after / target if target else np.nan
        bound = f"at most {SMALL:.0%} may be left" if self.removes else f"at least {1 - SMALL:.0%} is needed"
        of = f"{three_digits(target)} {'without it' if self.like is None else f'with {self.like.text}'}"
        if self.target.name != self.measure.name:
            of = f"{of} ({self.target.name})"
        text = f"after the edit {self.measure.name} is {three_digits(after)}, {share:.0%} of {of}; {bound}"
        if not self._holds(share):
            return False, text
        drawn = self._controls(read)
        also = int(np.sum([self._holds(one) for one in drawn]))
        return not also, text + (f", but {also} of {len(drawn)} random controls do the same" if also else "")

    def _holds(self, share: float) -> bool:
        return bool(share <= SMALL if self.removes else share >= 1 - SMALL)  # false for NaN: an overflow, or nothing to remove

    def _target(self, read: Numbers, few: int | None = None) -> float:
        if self.like is None:
            return self._mean(read, self.target, self.where, few, edited=False)
        return self._mean(read, self.target, self.like, few)

    @staticmethod
    def _mean(read: Numbers, measure: Measure, where: Where, few: int | None = None, edited: bool = True) -> float:
        return float(np.mean([read.value(measure, where.sweep, case, edited)[:few] for case in where.cases]))

    def _controls(self, read: Numbers) -> NDArray[np.float64]:
        """Return the share under each random control, on the first documents, which the controls ran on."""

        def drawn(case: Case | None) -> NDArray[np.float64]:
            found = read.drawn(self.measure, self.where.sweep, case)
            return np.empty((0, 1)) if found is None else found

        every = [drawn(case) for case in self.where.cases]
        count, few = min(map(len, every)), every[0].shape[1]
        return np.asarray(np.mean([one[:count].mean(axis=1) for one in every], axis=0) / self._target(read, few))


def removed(measure: Measure, where: Where) -> Check:
    """Check that an edit removes something: at most 1/10 of the unedited mean of a measure is left.

    Args:
        measure: The quantity that the edit removes, never the measure of the claim.
        where: The edited conditions.
    """
    return Check(measure, where, measure, removes=True)


def planted(measure: Measure, where: Where, target: Measure | None = None, like: Where | None = None) -> Check:
    """Check that an edit plants, moves or keeps something: a measure reaches at least 9/10 of its target.

    Args:
        measure: The quantity that the edit plants, never the measure of the claim.
        where: The edited conditions.
        target: The measure that it must reach, such as the same of the first token; None for `measure`.
        like: The conditions in which the target is measured, such as the run of a donor; None for no edit.
    """
    return Check(measure, where, target or measure, like)
