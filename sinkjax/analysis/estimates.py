"""Estimates: numbers with intervals and ranks, the quantities that make them from the results of a study, and their words."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.summary import Rank, Row
from sinkjax.errors import SinkjaxError

Found = TypeVar("Found")


@dataclass(frozen=True)
class Estimate:
    """A number that a rule looks at.

    Attributes:
        name: What it is.
        value: With its interval.
        unit: "" for a pure number.
        signed: Whether it is a difference.
        rank: Among matched random controls; None without them.
        by_genre: The value with its interval clustered by genre, where the texts have genres; else None.
    """

    name: str
    value: Interval
    unit: str = ""
    signed: bool = False
    rank: Rank | None = None
    by_genre: Interval | None = None

    def __str__(self) -> str:
        rank = "" if self.rank is None else f", percentile {self.rank.percentile:.0f} among {self.rank.controls} controls"
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.name}: {in_words(self.value, self.signed)}{unit}{rank}"

    @property
    def mean(self) -> float:
        """The mean; NaN where it is undefined."""
        return float("nan") if self.value.mean is None else self.value.mean

    @property
    def exact(self) -> bool:
        """Whether it is no mean over samples but a plain number, such as a count or a property of the weights."""
        return self.value.samples is None


class Absent(SinkjaxError):
    """Something was not measured; the message says why, as in "the files of this model name no BOS token"."""


@dataclass(frozen=True)
class Quantity:
    """What is estimated from the results of a study: its name and the function that gives it. exact: whether it
    has no sampling error (a count, a layer, a property of the weights)."""

    name: str
    of: Callable[[Any], Estimate]
    exact: bool = False

    def __call__(self, results: Any) -> Estimate:
        return self.of(results)

    def times(self, factor: float, name: str) -> Quantity:
        """A multiple, sample by sample, such as half of a reference, under a name of its own.

        Args:
            factor: Any number but 0.
            name: Of the multiple, in words.

        Returns:
            The quantity, in the same unit and without a rank.
        """

        def scaled(results: Any) -> Estimate:
            found = self.of(results)
            mean, *ends = (None if one is None else factor * one for one in (found.value.mean, found.value.low, found.value.high))
            low, high = ends if factor > 0 else ends[::-1]
            samples = None if found.value.samples is None else factor * found.value.samples
            value = dataclasses.replace(found.value, mean=mean, low=low, high=high, samples=samples)
            return Estimate(name, value, found.unit, found.signed)

        return Quantity(name, scaled, self.exact)


def present(quantities: Iterable[Callable[[Any], Found]], results: Any) -> list[Found]:
    """What is found in the results, of all that was measured."""
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
        n: How many samples it stands for.

    Returns:
        An interval without ends and samples; for NaN its mean is None and its n 0.
    """
    mean = None if value != value else value
    return Interval(mean, None, None, n if mean is not None else 0, 0, 0.95, "none", "" if mean is not None else "undefined")


def quantity(name: str, of: Callable[[Any], Any], unit: str = "", signed: bool = False) -> Quantity:
    """A quantity of a study's own.

    Args:
        name: What it is, in words.
        of: Results -> float[prompt], whose mean is taken with its interval, by the documents of the first sweep's prompts, or an
            `Interval` (`results.interval(values, store)` for other prompts), a `Row` (its value and rank), an `Estimate` (under
            this name) or a number. No rule judges a plain number; one without sampling error is a `number`.
        unit: Of the number; "" for a pure one.
        signed: Whether it is a difference.

    Returns:
        The quantity.
    """

    def estimate(results: Any) -> Estimate:
        found = of(results)
        if isinstance(found, Estimate):
            return dataclasses.replace(found, name=name)
        if isinstance(found, Row):
            return Estimate(name, found.value, unit, signed, found.rank)
        if not isinstance(found, Interval):
            found = constant(float(found)) if getattr(found, "ndim", 0) == 0 else results.interval(found)
        return Estimate(name, found, unit, signed)

    return Quantity(name, estimate)


def number(name: str, of: Callable[[Any], float], unit: str = "") -> Quantity:
    """A number that is no mean over samples, such as a count, a layer or a ratio of means; NaN where it is undefined.

    Args:
        name: What it is, in words.
        of: Results -> the number.
        unit: Of the number; "" for a pure one.

    Returns:
        The quantity, declared exact: rules compare the number itself.
    """
    return Quantity(name, lambda results: Estimate(name, constant(float(of(results))), unit), exact=True)


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
