"""Contrasts: the papers' own comparisons, as numbers per document that judge a claim, and checks that an edit took.

A contrast is a function of `Numbers`, which computes the comparison in each document and under each matched control, and the
baseline (`whole`) of which it is a share. Sizes without an upper bound are compared in logarithms; the baseline is then the
distance in them from the unedited value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis.estimates import three_digits
from sinkjax.analysis.judgement import SMALL
from sinkjax.study.measures import Measure
from sinkjax.study.numbers import Numbers
from sinkjax.study.work import Selection, Sweep

Span = tuple[float, float] | None
SUBTRACTED = "the conditions that are subtracted are the comparison"  # instead of random controls
# Why an edit is its own check.
MASKED = "a masked key has no weight"
ISOLATED = "the query sees only the keys that are left to it"
WRITTEN = "it sets exactly what the claim names"


@dataclass(frozen=True, eq=False)
class Parts:
    """The numbers of a contrast that are needed to judge it.

    Attributes:
        contrast: float[document] or float[document, position].
        controls: The contrast under each control, float[control, document, ...] on the first documents; None without controls.
        whole: The baseline of which the contrast is a share, in the same shape; None without one.
        range: Lowest and highest value of the measure; None for an unbounded measure, which is in logarithms.
        unit: Unit of the contrast.
        label: The comparison as text.
        all_controls: Whether these are all possible controls.
        where: The conditions, if the contrast is shown next to a claim about others.
        uncontrolled: Why there are no controls.
        recovery: Whether the contrast undoes a damage; `whole` is then the damage.
    """

    contrast: NDArray[Any]
    controls: NDArray[Any] | None
    whole: NDArray[Any] | None
    range: Span
    unit: str
    label: str
    all_controls: bool = False
    where: Selection | None = None
    uncontrolled: str = "no random edits were drawn for these conditions"
    recovery: bool = False


Contrast = Callable[[Numbers], Parts]


def facts_of(measure: Measure, *others: Measure | None) -> tuple[Span, str]:
    """Return the range of a measure and the unit of its differences; no range if others are compared that have another one."""
    same = all(other is None or other.range == measure.range for other in others)
    return measure.range if same else None, "log" if measure.log else measure.unit


def effect(
    measure: Measure, where: Selection, whole: Measure | None = None, above: Measure | None = None, controls: bool = True
) -> Contrast:
    """Return the effect of an edit on a measure.

    Args:
        measure: The compared measure.
        where: The conditions.
        whole: The unedited measure by which the effect is divided; None for `measure` itself.
        above: A measure of the unedited model to subtract from the baseline, such as the size of an ordinary activation. None
            for nothing, or, in logarithms, `measure` itself.
        controls: Whether the sweep's controls are matched to these conditions.
    """

    def parts(numbers: Numbers) -> Parts:
        base, drawn = numbers.unedited(measure, where), numbers.controls(measure, where) if controls else None
        of_controls = None if drawn is None else drawn - base[: drawn.shape[1]]
        of_whole: NDArray[Any] | None = base if whole is None else numbers.unedited(whole, where)
        if above is not None:
            of_whole = of_whole - numbers.unedited(above, where)
        elif measure.log:
            of_whole = None if whole is None else of_whole - base
        gain, (span, unit) = numbers.edited(measure, where) - base, facts_of(measure, whole, above)
        exhausted = controls and numbers.exhausted(where)
        return Parts(gain, of_controls, of_whole, span, unit, f"effect on {measure.name}", exhausted, where)

    return parts


def moved(before: Measure, after: Measure, where: Selection) -> Contrast:
    """Return the effect of an edit on one measure, as a share of the unedited value of another."""
    return effect(after, where, whole=before)


def difference(measure: Measure, where: Selection, minus: Selection, whole: Measure | None = None) -> Contrast:
    """Return a measure under some conditions minus the same under others.

    whole: The unedited measure by which the difference is divided; None for the value under `where`, or, in logarithms, the
        distance from there to no edit.
    """

    def parts(numbers: Numbers) -> Parts:
        value, other, plain = numbers.edited(measure, where), numbers.edited(measure, minus), numbers.unedited(measure, where)
        base = plain if measure.log else 0
        of_whole = (value if whole is None else numbers.unedited(whole, where)) - base
        label = f"difference in {measure.name}"
        return Parts(value - other, None, of_whole, *facts_of(measure, whole), label, where=where, uncontrolled=SUBTRACTED)

    return parts


def part(measure: Measure, where: Selection, of: Selection, falls: bool = False, above: Selection | None = None) -> Contrast:
    """Return the effect of some conditions on a measure, as a share of others' effect, such as a patch against its donor run.

    Args:
        measure: The compared measure.
        where: The conditions.
        of: The conditions whose effect is the baseline.
        falls: Whether effects are counted downwards, as required if the baseline effect is a fall.
        above: The conditions from which both effects are counted; None for no edit.
    """

    def parts(numbers: Numbers) -> Parts:
        def base(at: Selection) -> NDArray[Any]:
            return numbers.unedited(measure, at) if above is None else numbers.edited(measure, above)

        controls, sign, (span, unit) = numbers.controls(measure, where), -1 if falls else 1, facts_of(measure)
        of_controls = None if controls is None else sign * (controls - base(where)[: controls.shape[1]])
        gain, whole = (sign * (numbers.edited(measure, at) - base(at)) for at in (where, of))
        label = f"{'fall of' if falls else 'effect on'} {measure.name} as a part of that of {of.text}"
        why = Parts.uncontrolled if above is None else SUBTRACTED
        return Parts(gain, of_controls, whole, span, unit, label, numbers.exhausted(where), where, why)

    return parts


def recovered(measure: Measure, harmed: Selection, kept: Selection, whole: Selection | None = None) -> Contrast:
    """Return the share of some damage that is undone.

    Args:
        measure: The harmed measure, such as the loss.
        harmed: Conditions with the damage.
        kept: Conditions that undo some of it.
        whole: Conditions without the damage; None for no edit.
    """

    def parts(numbers: Numbers) -> Parts:
        worst = numbers.edited(measure, harmed)
        best = numbers.unedited(measure, harmed) if whole is None else numbers.edited(measure, whole)
        controls = numbers.controls(measure, kept)
        undone = None if controls is None else worst[: controls.shape[1]] - controls
        (span, unit), gain = facts_of(measure), worst - numbers.edited(measure, kept)
        label = f"part of the damage to {measure.name} that is undone"
        return Parts(gain, undone, worst - best, span, unit, label, numbers.exhausted(kept), kept, recovery=True)

    return parts


def unedited(measure: Measure, sweep: Sweep, minus: Measure | None = None) -> Contrast:
    """Return a measure of a sweep's unedited model, or its excess over another one, as a share of the measure."""

    def parts(numbers: Numbers) -> Parts:
        value = _first(numbers, measure, sweep)
        other = 0 if minus is None else _first(numbers, minus, sweep)
        label = measure.name + (f" minus {minus.name}" if minus is not None else "")
        whole = None if measure.log or minus is None else value
        return Parts(value - other, None, whole, *facts_of(measure, minus), label, uncontrolled="nothing is edited")

    return parts


def _first(numbers: Numbers, measure: Measure, sweep: Sweep) -> NDArray[Any]:
    values = numbers.first(measure, sweep)
    return np.log(values) if measure.log else values


def compared(measure: Measure, minus: Measure, where: Selection) -> Contrast:
    """Return one measure minus another under the same conditions; the whole is the first one without an edit."""

    def parts(numbers: Numbers) -> Parts:
        value, other = numbers.edited(measure, where), numbers.edited(minus, where)
        whole = None if measure.log else numbers.unedited(measure, where)
        label, why = f"{measure.name} minus {minus.name}", "the measure that is subtracted is the comparison"
        return Parts(value - other, None, whole, *facts_of(measure, minus), label, where=where, uncontrolled=why)

    return parts


@dataclass(frozen=True, eq=False)
class Check:
    """A bound on the quantity that an edit manipulates, as a mean over all documents of the edited run.

    Attributes:
        measure: The manipulated quantity, such as the size of an activation.
        where: The conditions whose edit is checked.
        target: The measure whose mean it is compared with.
        like: The conditions in which the target is measured; None for no edit.
        removes: Whether at most 1/10 of the target may be left; otherwise at least 9/10 of it must be there.
    """

    measure: Measure
    where: Selection
    target: Measure
    like: Selection | None = None
    removes: bool = False

    def test(self, numbers: Numbers) -> tuple[bool, str]:
        """Return whether the edit took and no random control did, and the numbers that decide."""
        targets = self._means(numbers, self.target, self.like or self.where, edited=self.like is not None)
        after, target = (float(np.mean(values)) for values in (self._means(numbers, self.measure, self.where), targets))
        share = after / target if target else np.nan
        bound = f"at most {SMALL:.0%} may be left" if self.removes else f"at least {1 - SMALL:.0%} is needed"
        of = f"{three_digits(target)} {'without it' if self.like is None else f'with {self.like.text}'}"
        if self.target.name != self.measure.name:
            of = f"{of} ({self.target.name})"
        text = f"after the edit {self.measure.name} is {three_digits(after)}, {share:.0%} of {of}; {bound}"
        if not self._holds(share):
            return False, text
        drawn = [numbers.drawn(self.measure, self.where.sweep, case) for case in self.where.cases]
        controls = [np.empty((0, 1)) if values is None else values for values in drawn]
        count, few = min(map(len, controls)), controls[0].shape[1]  # the controls ran on the first documents
        left = np.mean([values[:count].mean(axis=1) for values in controls], axis=0)
        also = int(np.sum([self._holds(one) for one in left / float(np.mean([one[:few] for one in targets]))]))
        return not also, text + (f", but {also} of {count} random controls do the same" if also else "")

    def _holds(self, share: float) -> bool:
        return bool(share <= SMALL if self.removes else share >= 1 - SMALL)  # false for NaN: an overflow, or nothing to remove

    @staticmethod
    def _means(numbers: Numbers, measure: Measure, where: Selection, edited: bool = True) -> list[NDArray[Any]]:
        return [numbers.value(measure, where.sweep, case, edited) for case in where.cases]


def removed(measure: Measure, where: Selection) -> Check:
    """Check that an edit removes something: at most 1/10 of the unedited mean of a measure is left.

    Args:
        measure: The quantity that the edit removes, never the measure of the claim.
        where: The edited conditions.
    """
    return Check(measure, where, measure, removes=True)


def planted(measure: Measure, where: Selection, target: Measure | None = None, like: Selection | None = None) -> Check:
    """Check that an edit plants, moves or keeps something: a measure reaches at least 9/10 of its target.

    Args:
        measure: The quantity that the edit plants, never the measure of the claim.
        where: The edited conditions.
        target: The measure that it must reach, such as the same measure of the first token; None for `measure`.
        like: The conditions under which the target is measured, such as a donor's run; None for no edit.
    """
    return Check(measure, where, target or measure, like)
