"""A summary as a table: arms down, measures across, the same on a page and in a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinkjax.analysis.intervals import Interval

if TYPE_CHECKING:
    from sinkjax.experiments.base import Claim
    from sinkjax.experiments.summary import Row


@dataclass(frozen=True)
class Cell:
    """The words of one measure of one arm: its value, its effect, and where that lies among controls ("" for none)."""

    value: str
    effect: str
    rank: str


EMPTY = Cell("", "", "")  # of a measure that an arm does not have


@dataclass(frozen=True)
class Table:
    """columns: heads. lines: (label, one cell for each column)."""

    columns: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Cell, ...]], ...]


def table(rows: Sequence[Row], arms: Sequence[str] | None = None) -> Table:
    """A summary, or the part of it that belongs to `arms`, with the measures that these have; the first arm of all is what the
    others are compared with.
    """
    labels = arms if arms is not None else tuple(dict.fromkeys(row.arm for row in rows))
    columns = tuple(dict.fromkeys(row.measure for row in rows if row.arm in labels))
    cells = {(row.arm, row.measure): cell(row, compared=row.arm != rows[0].arm) for row in rows}
    return Table(columns, tuple((label, tuple(cells.get((label, column), EMPTY) for column in columns)) for label in labels))


def cell(row: Row, compared: bool) -> Cell:
    """One row in words."""
    rank = "" if row.percentile is None else f"{row.percentile:.0f} of {row.controls}"
    return Cell(interval(row.value), interval(row.effect, signed=True) if compared else "", rank)


def verdicts(claims: Sequence[Claim]) -> str:
    """How many statements of a paper have which verdict, in words."""
    found = Counter(claim.verdict for claim in claims)
    return ", ".join(f"{count} {verdict}" for verdict, count in found.items()) or "no claims to judge"


def interval(value: Interval, signed: bool = False) -> str:
    """A mean and its interval; without one, why."""
    if value.mean is None:
        return value.note
    sign = "+" if signed and value.mean > 0 else ""
    bounds = "" if value.low is None or value.high is None else f" [{number(value.low)}, {number(value.high)}]"
    return f"{sign}{number(value.mean)}{bounds if value.low != value.high else ''}"


def number(value: float) -> str:
    """Three or four significant digits, never in powers of ten: 23,512; 66.9; 4.18; 0.012."""
    size = abs(value)
    digits = 0 if size >= 100 or value == 0 else 1 if size >= 10 else 2 if size >= 1 else 3
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text
