"""Verdicts, rows of a summary and intervals in words and in comparisons, as the rules of claims use them."""

from __future__ import annotations

from typing import Literal

from sinkjax.analysis.intervals import Interval
from sinkjax.experiments.summary import Row
from sinkjax.report.table import interval

Verdict = Literal["confirmed", "not confirmed", "not applicable"]


def verdict(holds: bool, applies: bool = True) -> Verdict:
    """The verdict on a statement that holds or not, where it has a meaning."""
    return ("confirmed" if holds else "not confirmed") if applies else "not applicable"


def value(row: Row) -> str:
    """A mean and its interval."""
    return interval(row.value)


def effect(row: Row, unit: str = "", controls: str = "random controls") -> str:
    """An effect, and its rank among the controls if it has one."""
    rank = "" if row.percentile is None else f", percentile {row.percentile:.0f} among {row.controls} {controls}"
    return f"{interval(row.effect, signed=True)}{unit}{rank}"


def mean(found: Interval) -> float:
    """A mean; NaN where it is undefined."""
    return float("nan") if found.mean is None else found.mean


def above(found: Interval, bound: float) -> bool:
    """Whether an interval lies above a bound; one that does not exist does not."""
    return found.low is not None and found.low > bound


def below(found: Interval, bound: float) -> bool:
    """Whether an interval lies below a bound."""
    return found.high is not None and found.high < bound


def low(found: Interval) -> float:
    """The lower end of an interval; the mean where there is no interval, NaN where there is no mean."""
    return mean(found) if found.low is None else found.low


def high(found: Interval) -> float:
    """The upper end of an interval, otherwise as `low`."""
    return mean(found) if found.high is None else found.high
