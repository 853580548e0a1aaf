"""Estimates: numbers with intervals and ranks, the quantities computed from a study's results, and their text."""

from __future__ import annotations

import contextlib
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
        with contextlib.suppress(Absent):
            found.append(quantity(results))
    return found


def constant(value: float, n: int = 1) -> Interval:
    """Wrap a number that has no interval.

    Args:
        value: The number; NaN if it is undefined.
        n: Number of samples it represents.

    Returns:
        An interval without ends or samples; for NaN, its mean is None and its n is 0.
    """
    if value != value:
        return Interval(None, None, None, 0, 0, 0.95, "none", "undefined")
    return Interval(value, None, None, n, 0, 0.95, "none")


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
    if value.low is None or value.high is None or value.low == value.high:
        return f"{sign}{in_digits(value.mean)}"
    return f"{sign}{in_digits(value.mean)} [{in_digits(value.low)}, {in_digits(value.high)}]"


def three_digits(value: float) -> str:
    """Format a number with three significant digits, and without a power of ten if it is large: 2,980; 66.9; 0.0123."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{float(f'{value:.3g}'):,.0f}"


def in_digits(value: float) -> str:
    """Format a number with three or four significant digits, never in powers of ten: 23,512; 66.9; 4.18; 0.012."""
    size = abs(value)
    digits = 0 if size >= 100 or value == 0 else 1 if size >= 10 else 2 if size >= 1 else 3
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text
