"""A section as Markdown, for pages of documentation."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sinkjax.report.table import table as table_of

if TYPE_CHECKING:
    from sinkjax.analysis.verdicts import Verdict
    from sinkjax.report.section import Section

WIDTH = 130  # characters of a line of prose
NONE = ("", "-")  # cells that hold nothing


def markdown(section: Section) -> str:
    """Render a section: question, findings, short table, claims and notes."""
    parts = [section.question, " ".join(section.findings)]
    notes = [wrap(note) for note in section.notes]
    return "\n\n".join(
        filter(None, [f"## {section.title}", *map(wrap, parts), summary(section), claims(section.verdicts), *notes])
    )


def summary(section: Section) -> str:
    """Make the short table, without columns that hold nothing."""
    shown = table_of(section.rows, section.featured)
    columns = [place for place, _ in enumerate(shown.columns) if any(cells[place].value not in NONE for _, cells in shown.lines)]
    lines = [[label, *(cells[place].value or "-" for place in columns)] for label, cells in shown.lines]
    return table([section.subject, *(shown.columns[place] for place in columns)], lines)


def claims(found: Sequence[Verdict]) -> str:
    """Make the table of claims; "" without claims."""
    lines = [[one.statement, one.source, one.word, evidence(one), one.paper] for one in found]
    return table(["claim", "source", "word", "evidence", "the paper's"], lines) if lines else ""


def evidence(one: Verdict) -> str:
    """Return the numbers behind a word, or the reason for having none; the compared trainings are in the measure's name."""
    return dataclasses.replace(one, uncontrolled="").numbers or one.judgement.reason or one.label


def table(head: Sequence[str], lines: Iterable[Sequence[str]], pipe: str = "/") -> str:
    """Make a table. pipe: the text in place of a bar in a cell."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(_plain(entry).replace('|', pipe) for entry in row)} |" for row in rows)


def wrap(text: str, width: int = WIDTH) -> str:
    """Break a paragraph into lines."""
    return textwrap.fill(_plain(text), width, break_long_words=False, break_on_hyphens=False)


def _plain(text: str) -> str:
    """Keep a star after an underscore, as in Sink_*, from beginning emphasis."""
    return text.replace("_*", "_\\*")
