"""Estimates: numbers with intervals and ranks, the quantities computed from a study's results, and their text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from sinkjax.analysis.intervals import Interval
from sinkjax.errors import SinkjaxError

Found = TypeVar("Found")


class Absent(SinkjaxError):
    """Something was not measured; the message says why, as in "the files of this model name no BOS token"."""


def present(quantities: Iterable[Callable[[Any], Found]], results: Any) -> list[Found]:
    """Compute the quantities that were measured from the results."""
    found = []
    for quantity in quantities:
        try:
            found.append(quantity(results))
        except Absent:
            continue
    return found


# Numbers without samples, and text.


def constant(value: float, n: int = 1) -> Interval:
    """Wrap a number that has no interval.

    Args:
        value: The number; NaN if it is undefined.
        n: Number of samples it represents.

    Returns:
        An interval without ends or samples; for NaN, its mean is None and its n is 0.
    """
    mean = None if value != value else value
    return Interval(mean, None, None, n if mean is not None else 0, 0, 0.95, "none", "" if mean is not None else "undefined")


def sentence(text: str) -> str:
    """Capitalise a text and end it with a full stop unless it already has closing punctuation."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '?', '!')) else '.'}"


def in_words(value: Interval, signed: bool = False) -> str:
    """Format a mean and its interval, or the reason why there is none."""
    if value.mean is None:
        return value.note
    sign = "+" if signed and value.mean > 0 else ""
    if value.method == "none" and not value.note and float(value.mean).is_integer():  # a count, a layer, ...
        return f"{sign}{value.mean:,.0f}"
    ends = in_ends(value)
    return f"{sign}{in_digits(value.mean)}{ends and ' '}{ends}"


def in_ends(value: Interval) -> str:
    """Format the ends of an interval; "" if it has none or they are equal."""
    if value.low is None or value.high is None or value.low == value.high:
        return ""
    return f"[{in_digits(value.low)}, {in_digits(value.high)}]"


def three_digits(value: float) -> str:
    """Format a number with three significant digits, and without a power of ten if it is large: 2,980; 66.9; 0.0123."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{float(f'{value:.3g}'):,.0f}"


def in_digits(value: float) -> str:
    """Format a number with three or four significant digits, never in powers of ten: 23,512; 66.9; 4.18; 0.012."""
    size = abs(value)
    digits = 0 if size >= 100 or value == 0 else 1 if size >= 10 else 2 if size >= 1 else 3
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text
