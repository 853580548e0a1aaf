"""Estimates: numbers with intervals and ranks, the quantities that make them from the results of a study, and their words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from sinkjax.analysis.intervals import Interval
from sinkjax.errors import SinkjaxError

Found = TypeVar("Found")


class Absent(SinkjaxError):
    """Something was not measured; the message says why, as in "the files of this model name no BOS token"."""


def present(quantities: Iterable[Callable[[Any], Found]], results: Any) -> list[Found]:
    """The quantities that were measured, each from the results."""
    found = []
    for quantity in quantities:
        try:
            found.append(quantity(results))
        except Absent:
            continue
    return found


# Numbers without samples, and words.


def constant(value: float, n: int = 1) -> Interval:
    """A number that has no interval.

    Args:
        value: The number; NaN where it is undefined.
        n: How many samples it represents.

    Returns:
        An interval without ends and samples; for NaN its mean is None and its n 0.
    """
    mean = None if value != value else value
    return Interval(mean, None, None, n if mean is not None else 0, 0, 0.95, "none", "" if mean is not None else "undefined")


def sentence(text: str) -> str:
    """Words as a sentence: with a capital letter, and a full stop unless they end with one already."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '?', '!')) else '.'}"


def in_words(value: Interval, signed: bool = False) -> str:
    """A mean and its interval; without one, why."""
    if value.mean is None:
        return value.note
    sign = "+" if signed and value.mean > 0 else ""
    if value.method == "none" and not value.note and float(value.mean).is_integer():  # a count, a layer, ...
        return f"{sign}{value.mean:,.0f}"
    ends = in_ends(value)
    return f"{sign}{in_digits(value.mean)}{ends and ' '}{ends}"


def in_ends(value: Interval) -> str:
    """The ends of an interval; "" where it has none, or where they are equal."""
    if value.low is None or value.high is None or value.low == value.high:
        return ""
    return f"[{in_digits(value.low)}, {in_digits(value.high)}]"


def in_digits(value: float) -> str:
    """Three or four significant digits, never in powers of ten: 23,512; 66.9; 4.18; 0.012."""
    size = abs(value)
    digits = 0 if size >= 100 or value == 0 else 1 if size >= 10 else 2 if size >= 1 else 3
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text
