"""The first token beside others: control positions, and rows that rank the first among them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.experiments.summary import LEVEL, NOT_COMPARED, Row


def control_positions(length: int, count: int, seed: int) -> tuple[int, ...]:
    """Up to `count` positions other than the first, drawn from the first half, which at least half of the queries see."""
    others = np.arange(1, length // 2 + 1)
    drawn = intervals.generator(seed, "gu control positions").choice(others, min(count, len(others)), replace=False)
    return tuple(sorted(drawn.tolist()))


def ranked(labels: Sequence[str], group: str, measure: str, values: NDArray, seed: int) -> list[Row]:
    """One row for each label, from float[label, prompt, position]: position 0 is the first token, the others are its controls.

    A percentile says how many control positions have a smaller mean over prompts.
    """
    means = intervals.intervals(values[..., 0], level=LEVEL, seed=seed)
    places = _means(np.moveaxis(values, 1, -1))
    rows = []
    for label, mean, place in zip(labels, means, places, strict=True):
        if len(place) > 1 and np.isfinite(place).all():
            rows.append(
                Row(
                    label,
                    group,
                    measure,
                    mean,
                    NOT_COMPARED,
                    float(intervals.percentile_among(place[0], place[1:])),
                    len(place) - 1,
                )
            )
        else:
            rows.append(Row(label, group, measure, mean))
    return rows


def alone(labels: Sequence[str], group: str, measure: str, values: NDArray, seed: int) -> list[Row]:
    """One row for each label, from float[label, prompt], without controls."""
    means = intervals.intervals(values, level=LEVEL, seed=seed)
    return [Row(label, group, measure, mean) for label, mean in zip(labels, means, strict=True)]


def spread(values: NDArray) -> Interval:
    """The mean of float[control] and the range of the controls, to be drawn as a band."""
    values = np.asarray(values, np.float64)
    return Interval(float(values.mean()), float(values.min()), float(values.max()), len(values), 0, 1.0, "range")


def stretches(numbers: Sequence[int]) -> str:
    """Ascending whole numbers in words: "2 to 9, 12, 14 to 30"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join(" to ".join(map(str, part)) for part in parts)


def _means(values: NDArray) -> NDArray:
    """Mean of the finite entries along the last axis, NaN where there are none."""
    finite = np.isfinite(values)
    counts = finite.sum(-1)
    return np.divide(np.where(finite, values, 0).sum(-1), counts, out=np.full(counts.shape, np.nan), where=counts > 0)
