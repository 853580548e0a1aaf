"""Rows of a summary in words."""

from __future__ import annotations

from typing import Literal

from sinkjax.experiments.summary import Row
from sinkjax.report.table import interval
from sinkjax.stats import Interval

Verdict = Literal["confirmed", "not confirmed", "not applicable"]


def verdict(holds: bool, applies: bool = True) -> Verdict:
    """The verdict on a statement that holds or not, where it has a meaning."""
    return ("confirmed" if holds else "not confirmed") if applies else "not applicable"


def measured(row: Row) -> str:
    """A mean and its interval."""
    return interval(row.value)


def effect(row: Row, unit: str = "") -> str:
    """An effect, and its rank among the controls if it has one."""
    rank = "" if row.percentile is None else f", percentile {row.percentile:.0f} among {row.controls} random controls"
    return f"{interval(row.effect, signed=True)}{unit}{rank}"


def low(row: Row) -> float:
    """The lower end of an effect's interval; minus infinity where it has none."""
    return float("-inf") if row.effect.low is None else row.effect.low


def mean(found: Interval) -> float:
    """A mean; NaN where it is undefined."""
    return float("nan") if found.mean is None else found.mean
