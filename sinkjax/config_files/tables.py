"""Tables as CSV: one writer and one reader for every file of this package."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

# A spreadsheet runs a cell that begins with one of these as a formula (OWASP, CSV injection).
FORMULA = re.compile(r"'*[=+\-@\t\r]")
NUMBER = re.compile(r"[+-][\d.,]+(e[+-]\d+)?( \[[-+\d., ]+\])?")  # "+0.0312 [0.0207, 0.0419]" computes nothing


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Format rows as CSV. A text that a spreadsheet would run is written after a single quote; numbers stay as they are.

    Args:
        rows: Rows of numbers and texts.

    Returns:
        The content of the file, with "\\n" at the end of each line.
    """
    return "".join(map(_line, rows))


def _line(row: Sequence[Any]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow([_literal(cell) for cell in row])  # with another end of lines it would not quote a carriage return
    return out.getvalue()[:-2] + "\n"


def _literal(cell: Any) -> Any:
    runs = isinstance(cell, str) and FORMULA.match(cell) and not NUMBER.fullmatch(cell)
    return f"'{cell}" if runs else cell


def csv_rows(text: str) -> list[list[str]]:
    """Read what `csv_text` wrote.

    Args:
        text: The content of the file.

    Returns:
        The rows as texts, without the single quotes that were added.
    """
    rows = csv.reader(io.StringIO(text, newline=""))
    return [[cell[1:] if cell[:1] == "'" and FORMULA.match(cell) else cell for cell in row] for row in rows]
