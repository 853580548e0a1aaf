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
    """Count the verdicts on a section's claims; those that were not judged come last."""
    claims = [verdict for verdict in section.verdicts if verdict.kind == "claim"]
    judged, others = (Counter(claim.plain for claim in claims if claim.judged == flag) for flag in (True, False))
    not_taken = [f"{others.pop(NOT_TAKEN, 0)} whose edit did not take"] if any(claim.took for claim in claims) else []
    first, last = ([f"{count} {word}" for word, count in counts.most_common()] for counts in (judged, others))
    last = last + not_taken
    return "; ".join([", ".join(first)] * bool(first) + [f"not judged: {', '.join(last)}"] * bool(last)) or "no claims to judge"
