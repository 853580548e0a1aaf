"""A summary as a table: conditions down, measures across, the same on a page and in a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinkjax.analysis.estimates import in_digits as number
from sinkjax.analysis.estimates import in_words as interval

if TYPE_CHECKING:
    from sinkjax.analysis.summary import Row
    from sinkjax.report.section import Section

__all__ = ["Cell", "Table", "cell", "interval", "number", "table", "verdicts"]


@dataclass(frozen=True)
class Cell:
    """The words of one measure of one condition: value, effect, and the rank of the effect among controls ("" for none)."""

    value: str
    effect: str
    rank: str


EMPTY = Cell("", "", "")  # for a measure that a condition does not have


@dataclass(frozen=True)
class Table:
    """columns: heads. lines: (label, one cell for each column)."""

    columns: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Cell, ...]], ...]


def table(rows: Sequence[Row], conditions: Sequence[str] | None = None) -> Table:
    """A summary, or the part of it that belongs to `conditions`, with the measures that these have.

    All others are compared with the first condition.
    """
    labels = conditions if conditions is not None else tuple(dict.fromkeys(row.condition for row in rows))
    wanted = frozenset(labels)
    columns = tuple(dict.fromkeys(row.measure for row in rows if row.condition in wanted))
    cells = {(row.condition, row.measure): cell(row, compared=row.condition != rows[0].condition) for row in rows}
    return Table(columns, tuple((label, tuple(cells.get((label, column), EMPTY) for column in columns)) for label in labels))


def cell(row: Row, compared: bool) -> Cell:
    """One row in words."""
    effect = interval(row.effect, signed=True) if compared else ""
    return Cell(interval(row.value), effect, str(row.rank) if row.rank else "")


def verdicts(section: Section) -> str:
    """How many claims of a section have which word."""
    words = Counter(one.judgement.word for one in section.verdicts if one.kind == "claim")
    return ", ".join(f"{count} {word}" for word, count in words.most_common()) or "no claims to judge"
