"""Verdicts and rows of a summary in words."""

from __future__ import annotations

from typing import Literal

from sinkjax.experiments.summary import Row
from sinkjax.report.table import interval

Verdict = Literal["confirmed", "not confirmed", "not applicable"]


def verdict(holds: bool) -> Verdict:
    """The verdict on a statement that can be judged."""
    return "confirmed" if holds else "not confirmed"


def value(row: Row) -> str:
    """A mean and its interval."""
    return interval(row.value)


def effect(row: Row, unit: str = "") -> str:
    """An effect, and its rank among the controls if it has one."""
    rank = "" if row.percentile is None else f", percentile {row.percentile:.0f} among {row.controls} random controls"
    return f"{interval(row.effect, signed=True)}{unit}{rank}"


def above_zero(row: Row) -> bool:
    """Whether an effect has an interval above 0."""
    return row.effect.low is not None and row.effect.low > 0
