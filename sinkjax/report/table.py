"""A summary as a table, conditions down and measures across, for pages and terminals alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinkjax.analysis.estimates import in_digits as number
from sinkjax.analysis.estimates import in_words as interval
from sinkjax.analysis.evidence import NOT_TAKEN

if TYPE_CHECKING:
    from sinkjax.analysis.summary import Row
    from sinkjax.report.section import Section

__all__ = ["Cell", "Table", "cell", "interval", "number", "table", "verdicts"]


@dataclass(frozen=True)
class Cell:
    """The text for one measure of one condition: value, effect, and the effect's rank among controls ("" for none)."""

    value: str
    effect: str
    rank: str


EMPTY = Cell("", "", "")  # for a measure that a condition lacks


@dataclass(frozen=True)
class Table:
    """columns: headings. lines: (label, one cell per column)."""

    columns: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Cell, ...]], ...]


def table(rows: Sequence[Row], conditions: Sequence[str] | None = None) -> Table:
    """Make a table of a summary, or of its part for `conditions`, with the measures that these have.

    All conditions are compared with the first.
    """
    labels = conditions if conditions is not None else tuple(dict.fromkeys(row.condition for row in rows))
    wanted = frozenset(labels)
    columns = tuple(dict.fromkeys(row.measure for row in rows if row.condition in wanted))
    cells = {(row.condition, row.measure): cell(row, compared=row.condition != rows[0].condition) for row in rows}
    return Table(columns, tuple((label, tuple(cells.get((label, column), EMPTY) for column in columns)) for label in labels))


def cell(row: Row, compared: bool) -> Cell:
    """Format one row."""
    effect = interval(row.effect, signed=True) if compared else ""
    return Cell(interval(row.value), effect, str(row.rank) if row.rank else "")


def verdicts(section: Section) -> str:
    """Count the words on a section's claims; those that were not judged come last."""
    claims = [one for one in section.verdicts if one.kind == "claim"]
    judged, others = (Counter(one.plain for one in claims if one.judged == flag) for flag in (True, False))
    counted = [f"{others.pop(NOT_TAKEN, 0)} whose edit did not take"] if any(one.took for one in claims) else []
    texts = [", ".join(f"{count} {word}" for word, count in one.most_common()) for one in (judged, others)]
    texts[1] = ", ".join(filter(None, [texts[1], *counted]))
    return "; ".join(filter(None, (texts[0], texts[1] and f"not judged: {texts[1]}"))) or "no claims to judge"
