"""What the command line prints: tables as wide as the terminal, on standard output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sinkjax.report.table import table

if TYPE_CHECKING:
    from sinkjax.experiments.base import Section


def show(title: str, columns: Sequence[str], lines: Sequence[Sequence[object]], caption: str = "") -> None:
    """Print a table; numbers and bytes are already words."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    style: Any = {"box": box.SIMPLE_HEAD, "title_style": "bold", "title_justify": "left", "caption_justify": "left"}
    shown = Table(title=title, caption=caption or None, **style)
    for column in columns:
        shown.add_column(column, overflow="fold")
    for line in lines:
        shown.add_row(*(str(entry) for entry in line))
    Console(highlight=False, markup=False).print(shown)


def show_section(section: Section) -> None:
    """Print the short table of a section, one for each measure, and what it found."""
    summary = table(section.rows, section.featured)
    print(f"{section.title}\n")
    for number, column in enumerate(summary.columns):
        block = [(label, cells[number]) for label, cells in summary.lines]
        compared, ranked = any(cell.effect for _, cell in block), any(cell.rank for _, cell in block)
        lines = [(label, cell.value, *[cell.effect] * compared, *[cell.rank] * ranked) for label, cell in block]
        show(column, ("edit", "value", *["effect"] * compared, *["percentile"] * ranked), lines)
    print("Means over prompts with bootstrap 95 % intervals; effects are paired differences from the first line of a table.\n")
    for finding in section.findings:
        print(f"- {finding}")


def in_words(count: float) -> str:
    """Bytes in words: 1.2 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
