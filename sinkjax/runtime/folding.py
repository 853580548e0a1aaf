"""Text for standard output: folded to the terminal, and never wider than `WIDEST` columns."""

from __future__ import annotations

import shutil
import textwrap

WIDEST = 120


def columns() -> int:
    """Return the columns of the terminal (or COLUMNS), at most `WIDEST`; a file or a pipe has `WIDEST`."""
    return min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST)


def folded(text: str, first: str = "", hang: str | None = None) -> str:
    """Fold a paragraph to these columns, with `first` before its first line and `hang` before the others (default: spaces)."""
    width = max(columns(), len(first) + 20)
    later = " " * len(first) if hang is None else hang
    return textwrap.fill(
        " ".join(text.split()),
        width,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )
