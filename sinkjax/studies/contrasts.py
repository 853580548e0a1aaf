"""Contrasts as words: the paper's own comparisons, as numbers per document that judge a claim.

A contrast returns `Parts`: its value in each document, its value under each matched control, and the whole that its size is
divided by. Sizes without an upper bound are compared in logarithms; the denominator is then the distance, in logarithms, from the
unedited value to the whole.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sinkjax.errors import SinkjaxError
from sinkjax.studies.grids import At, matching
from sinkjax.studies.readings import Parts, Readings, ends_of, facts_of, joined
from sinkjax.studies.scope import Contrast, Measure


@Contrast.define(controlled=("where",), wholes=("whole", "above"))
def effect(
    read: Readings, measure: Measure, where: At, whole: Measure | None = None, above: Measure | None = None, controls: bool = True
) -> Parts:
    """The effects of an edit and of its controls on a measure.

    Args:
        read: The stores.
        measure: The compared measure.
        where: The conditions.
        whole: The unedited measure that the effect is divided by; None for `measure` itself.
        above: A measure of the unedited model to subtract from the whole, such as the size of an ordinary activation. None for
            nothing, or, in logarithms, `measure` itself.
        controls: Whether the grid's controls are matched to these conditions.
    """
    base, drawn = read.edited(measure, where, edited=False), read.controls(measure, where) if controls else None
    gained = None if drawn is None else drawn - base[: drawn.shape[1]]
    log = bool(measure.meaning.facts.get("log"))
    of_whole: NDArray | None = base if whole is None else read.edited(whole, where, edited=False)
    if above is not None:
        of_whole = of_whole - read.edited(above, where, edited=False)
    elif log:
        of_whole = None if whole is None else of_whole - base
    relative = whole is None and above is None and not log
    label, exhausted = f"effect on {read.name(measure, where)}", controls and read.exhausted(where)
    gain, (span, unit) = read.edited(measure, where) - base, facts_of(measure, whole, above)
    ends = None if above is None else ends_of(span)
    return Parts(gain, gained, of_whole, span, unit, label, relative, whole_range=ends, all_controls=exhausted)


def moved(before: Measure, after: Measure, where: At) -> Contrast:
    """The effect of an edit on one measure, as a share of another one's unedited value: `effect(after, where, whole=before)`.

    Args:
        before: The measure whose unedited value is the whole.
        after: The measure that the edit changes.
        where: The conditions.

    Returns:
        The contrast.
    """
    return effect(after, where, whole=before)


@Contrast.define(uncontrolled="the conditions that are subtracted are the comparison")
def difference(read: Readings, measure: Measure, where: At, minus: At, whole: Measure | None = None) -> Parts:
    """A measure under some conditions minus the same under others.

    Args:
        read: The stores.
        measure: The compared measure.
        where: The conditions.
        minus: The conditions that are subtracted.
        whole: The unedited measure that it is divided by; None for its value under `where`, or, in logarithms, the distance from
            there to no edit.
    """
    one, other = read.edited(measure, where), read.edited(measure, minus)
    plain = read.edited(measure, where, edited=False)
    if whole is not None:
        of_whole = read.edited(whole, where, edited=False) - (plain if measure.meaning.facts.get("log") else 0)
    else:
        of_whole = one - plain if measure.meaning.facts.get("log") else one
    return Parts(one - other, None, of_whole, *facts_of(measure, whole), f"difference in {read.name(measure, where)}")


@Contrast.define(controlled=("kept",))
def recovered(read: Readings, measure: Measure, harmed: At, kept: At, whole: At | None = None) -> Parts:
    """The share of some damage that is undone.

    Args:
        read: The stores.
        measure: The harmed measure, such as the loss.
        harmed: Conditions with the damage.
        kept: Conditions that undo some of it.
        whole: Conditions without the damage; None for no edit.
    """
    worst = read.edited(measure, harmed)
    best = read.edited(measure, harmed, edited=False) if whole is None else read.edited(measure, whole)
    controls = read.controls(measure, kept)
    undone = None if controls is None else worst[: controls.shape[1]] - controls
    label = f"part of the damage to {read.name(measure, harmed)} that is undone"
    (span, unit), gain, exhausted = facts_of(measure), worst - read.edited(measure, kept), read.exhausted(kept)
    return Parts(gain, undone, worst - best, span, unit, label, whole_range=ends_of(span), all_controls=exhausted)


@Contrast.define(controlled=("where",))
def part(read: Readings, measure: Measure, where: At, of: At, falls: bool = False) -> Parts:
    """The effect of some conditions on a measure, as a share of other conditions' effect, such as a patch against its source run.

    Args:
        read: The stores.
        measure: The compared measure.
        where: The conditions.
        of: The conditions whose effect is the whole.
        falls: Whether effects are counted downwards, as required if the whole is a fall.
    """
    base, controls, sign = read.edited(measure, where, edited=False), read.controls(measure, where), -1 if falls else 1
    gained = None if controls is None else sign * (controls - base[: controls.shape[1]])
    whole = sign * (read.edited(measure, of) - read.edited(measure, of, edited=False))
    span, unit = facts_of(measure)
    label = f"{'fall of' if falls else 'effect on'} {read.name(measure, where)} as a part of that of {read.where(of)}"
    gain, exhausted = sign * (read.edited(measure, where) - base), read.exhausted(where)
    return Parts(gain, gained, whole, span, unit, label, whole_range=ends_of(span), all_controls=exhausted)


@Contrast.define(wholes=(), of="", axes=("along",), uncontrolled="the other values of the axis are the comparison")
def slope(read: Readings, measure: Measure, where: At, along: str) -> Parts:
    """The rise of a measure along an axis of a grid, from first to last value, by a straight line over their order.

    Args:
        read: The stores.
        measure: The measure.
        where: The conditions, with every value of the axis; the values of other axes are samples.
        along: The name of the axis.
    """
    points = read.points(read.store(read.scope.get(where)[0]))
    rows = [points[row] for row in matching(points, where, read.scope)]
    values, order = np.unique([dict(point.bound)[along] for point in rows], return_inverse=True)
    if len(values) < 2:
        raise SinkjaxError(f"a slope needs two values of {along}, and {where} has {len(values)}")
    kept = [(point.place, *(entry for entry in point.bound if entry[0] != along)) for point in rows]
    lines = list(dict.fromkeys(kept))  # one for each value of the other axes
    centred = np.arange(len(values)) - (len(values) - 1) / 2
    centred *= (len(values) - 1) / (centred**2).sum()
    weights = np.zeros((len(rows), len(lines)))
    weights[np.arange(len(rows)), [lines.index(line) for line in kept]] = centred[order]
    found, (span, unit) = joined(read.edited(measure, where) @ weights), facts_of(measure)
    steepest = None if span is None else tuple(centred.clip(0).sum() * end for end in span)  # the upper half at the highest value
    return Parts(found, None, None, steepest, unit, f"rise of {read.name(measure, where)} along {along}")


@Contrast.define(wholes=(), of="minus", uncontrolled="nothing is edited")
def unedited(read: Readings, measure: Measure, grid: str, minus: Measure | None = None) -> Parts:
    """A measure of the unedited model, or its excess over another one; the whole is the measure.

    Args:
        read: The stores.
        measure: The measure.
        grid: The grid whose first condition is read.
        minus: The subtracted measure, or None.
    """
    store = read.store(grid)
    found = read.of(measure, store, grid, ())[0]
    other = 0 if minus is None else read.of(minus, store, grid, ())[0]
    label = read.name(measure) + (f" minus {read.name(minus)}" if minus is not None else "")
    whole = None if measure.meaning.facts.get("log") or minus is None else found
    return Parts(found - other, None, whole, *facts_of(measure, minus), label)


@Contrast.define(wholes=(), uncontrolled="the measure that is subtracted is the comparison")
def compared(read: Readings, measure: Measure, minus: Measure, where: At) -> Parts:
    """One measure minus another under the same conditions; the whole is the first one without an edit.

    Args:
        read: The stores.
        measure: The compared measure.
        minus: The subtracted measure.
        where: The conditions.
    """
    one, other = read.edited(measure, where), read.edited(minus, where)
    whole = None if measure.meaning.facts.get("log") else read.edited(measure, where, edited=False)
    label = f"{read.name(measure, where)} minus {read.name(minus, where)}"
    return Parts(one - other, None, whole, *facts_of(measure, minus), label)
