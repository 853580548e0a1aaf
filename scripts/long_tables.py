"""Tables in CSV, a cell a line: table, row, column, mean, ends of the interval and samples, or a text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from named import read

from sinkjax.config_files.files import write
from sinkjax.report.markdown import evidence
from sinkjax.report.section import Section

COLUMNS = ("table", "row", "column", "mean", "low", "high", "n", "text")
CLAIMS = ("table", "statement", "source", "paper", "word", "evidence")
Line = Sequence[object]


def of_section(section: Section, name: str) -> list[Line]:
    """The lines of the conditions that a study features, and how it was run."""
    about = [(name, "", each, *[""] * 4, value) for each, value in section.provenance.items()]
    values = [(row, row.value) for row in section.rows if row.condition in section.featured]
    return about + [
        (name, row.condition, row.measure, *("" if one is None else one for one in (value.mean, value.low, value.high)))
        + ((value.n, "") if value.mean is not None else ("", value.note))
        for row, value in values
        if value.mean is not None or value.note
    ]


def claims(section: Section, name: str) -> list[Line]:
    """The words on the claims of a study."""
    return [(name, one.statement, one.source, one.paper, one.word, evidence(one)) for one in section.verdicts]


def as_text(head: Sequence[str], lines: Iterable[Line]) -> str:
    """A table as CSV."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([head, *lines])
    return out.getvalue()


def rows_as_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows with the columns of the first as CSV; a cell that a row lacks is empty."""
    return as_text([*rows[0]], [[row.get(name, "") for name in rows[0]] for row in rows])


def replace(path: Path, head: Sequence[str], lines: Sequence[Line]) -> None:
    """Write a file with these lines, in the place of others of the same tables; the first column names a line's table."""
    new = {line[0] for line in lines}
    kept = [tuple(row.values()) for row in (read(path) if path.exists() else []) if row[head[0]] not in new]
    write(path, as_text(head, [*kept, *lines]))
