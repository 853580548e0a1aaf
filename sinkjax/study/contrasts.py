"""Contrasts: the papers' own comparisons, as numbers per document that judge a claim.

Each returns a function of `Numbers`, which computes the contrast in each document and under each matched control, and the whole
of which it is a share. Sizes without an upper bound are compared in logarithms; the whole is then the distance in them from
the unedited value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.study.measures import Measure
from sinkjax.study.numbers import Numbers
from sinkjax.study.work import Sweep, Where

Span = tuple[float, float] | None
SUBTRACTED = "the conditions that are subtracted are the comparison"  # instead of random controls


@dataclass(frozen=True, eq=False)
class Parts:
    """The numbers of a contrast that are needed to judge it.

    Attributes:
        contrast: float[document] or float[document, position].
        controls: The contrast under each control, float[control, document, ...] on the first documents; None without controls.
        whole: The denominator of the contrast's share, in the same shape; None without a whole.
        range: Lowest and highest value of the measure; None for a measure without bounds, in logarithms.
        unit: Unit of the contrast.
        label: The comparison as text.
        all_controls: Whether these are all possible controls.
        where: The conditions, for a readout beside a claim on others.
        uncontrolled: Why there are no controls.
        recovery: Whether the contrast undoes a damage, which `whole` is.
    """

    contrast: NDArray[Any]
    controls: NDArray[Any] | None
    whole: NDArray[Any] | None
    range: Span
    unit: str
    label: str
    all_controls: bool = False
    where: Where | None = None
    uncontrolled: str = "no random edits were drawn for these conditions"
    recovery: bool = False


Contrast = Callable[[Numbers], Parts]


def facts_of(measure: Measure, *others: Measure | None) -> tuple[Span, str]:
    """Return the range of a measure and the unit of its differences; no range if others are compared that have another one."""
    same = all(other is None or other.range == measure.range for other in others)
    return measure.range if same else None, "log" if measure.log else measure.unit


def effect(
    measure: Measure, where: Where, whole: Measure | None = None, above: Measure | None = None, controls: bool = True
) -> Contrast:
    """Return the effect of an edit on a measure.

    Args:
        measure: The compared measure.
        where: The conditions.
        whole: The unedited measure that the effect is divided by; None for `measure` itself.
        above: A measure of the unedited model to subtract from the whole, such as the size of an ordinary activation. None for
            nothing, or, in logarithms, `measure` itself.
        controls: Whether the sweep's controls are matched to these conditions.
    """

    def parts(read: Numbers) -> Parts:
        base, drawn = read.unedited(measure, where), read.controls(measure, where) if controls else None
        gained = None if drawn is None else drawn - base[: drawn.shape[1]]
        of_whole: NDArray[Any] | None = base if whole is None else read.unedited(whole, where)
        if above is not None:
            of_whole = of_whole - read.unedited(above, where)
        elif measure.log:
            of_whole = None if whole is None else of_whole - base
        gain, (span, unit) = read.edited(measure, where) - base, facts_of(measure, whole, above)
        exhausted = controls and read.exhausted(where)
        return Parts(gain, gained, of_whole, span, unit, f"effect on {measure.name}", exhausted, where)

    return parts


def moved(before: Measure, after: Measure, where: Where) -> Contrast:
    """Return the effect of an edit on one measure, as a share of another one's unedited value."""
    return effect(after, where, whole=before)


def difference(measure: Measure, where: Where, minus: Where, whole: Measure | None = None) -> Contrast:
    """Return a measure under some conditions minus the same under others.

    whole: The unedited measure that it is divided by; None for its value under `where`, or, in logarithms, the distance from
        there to no edit.
    """

    def parts(read: Numbers) -> Parts:
        one, other, plain = read.edited(measure, where), read.edited(measure, minus), read.unedited(measure, where)
        if whole is not None:
            of_whole = read.unedited(whole, where) - (plain if measure.log else 0)
        else:
            of_whole = one - plain if measure.log else one
        label = f"difference in {measure.name}"
        return Parts(one - other, None, of_whole, *facts_of(measure, whole), label, where=where, uncontrolled=SUBTRACTED)

    return parts


def part(measure: Measure, where: Where, of: Where, falls: bool = False, above: Where | None = None) -> Contrast:
    """Return the effect of some conditions on a measure, as a share of others' effect, such as a patch against its donor run.

    Args:
        measure: The compared measure.
        where: The conditions.
        of: The conditions whose effect is the whole.
        falls: Whether effects are counted downwards, as required if the whole is a fall.
        above: The conditions from which both effects are counted; None for no edit.
    """

    def parts(read: Numbers) -> Parts:
        def base(at: Where) -> NDArray[Any]:
            return read.unedited(measure, at) if above is None else read.edited(measure, above)

        controls, sign, (span, unit) = read.controls(measure, where), -1 if falls else 1, facts_of(measure)
        gained = None if controls is None else sign * (controls - base(where)[: controls.shape[1]])
        gain, whole = (sign * (read.edited(measure, at) - base(at)) for at in (where, of))
        label = f"{'fall of' if falls else 'effect on'} {measure.name} as a part of that of {of.text}"
        why = Parts.uncontrolled if above is None else SUBTRACTED
        return Parts(gain, gained, whole, span, unit, label, read.exhausted(where), where, why)

    return parts


def recovered(measure: Measure, harmed: Where, kept: Where, whole: Where | None = None) -> Contrast:
    """Return the share of some damage that is undone.

    Args:
        measure: The harmed measure, such as the loss.
        harmed: Conditions with the damage.
        kept: Conditions that undo some of it.
        whole: Conditions without the damage; None for no edit.
    """

    def parts(read: Numbers) -> Parts:
        worst = read.edited(measure, harmed)
        best = read.unedited(measure, harmed) if whole is None else read.edited(measure, whole)
        controls = read.controls(measure, kept)
        undone = None if controls is None else worst[: controls.shape[1]] - controls
        (span, unit), gain = facts_of(measure), worst - read.edited(measure, kept)
        label = f"part of the damage to {measure.name} that is undone"
        return Parts(gain, undone, worst - best, span, unit, label, read.exhausted(kept), kept, recovery=True)

    return parts


def unedited(measure: Measure, sweep: Sweep, minus: Measure | None = None) -> Contrast:
    """Return a measure of a sweep's unedited model, or its excess over another one; the whole is the measure."""

    def parts(read: Numbers) -> Parts:
        found = _first(read, measure, sweep)
        other = 0 if minus is None else _first(read, minus, sweep)
        label = measure.name + (f" minus {minus.name}" if minus is not None else "")
        whole = None if measure.log or minus is None else found
        return Parts(found - other, None, whole, *facts_of(measure, minus), label, uncontrolled="nothing is edited")

    return parts


def _first(read: Numbers, measure: Measure, sweep: Sweep) -> NDArray[Any]:
    found = read.first(measure, sweep)
    return np.log(found) if measure.log else found


def compared(measure: Measure, minus: Measure, where: Where) -> Contrast:
    """Return one measure minus another under the same conditions; the whole is the first one without an edit."""

    def parts(read: Numbers) -> Parts:
        one, other = read.edited(measure, where), read.edited(minus, where)
        whole = None if measure.log else read.unedited(measure, where)
        label, why = f"{measure.name} minus {minus.name}", "the measure that is subtracted is the comparison"
        return Parts(one - other, None, whole, *facts_of(measure, minus), label, where=where, uncontrolled=why)

    return parts
