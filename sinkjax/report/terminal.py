"""Command line output: tables as wide as the terminal, on standard output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkjax.analysis.estimates import three_digits
from sinkjax.analysis.evidence import UNJUDGED
from sinkjax.errors import printable
from sinkjax.report.answer import about, answer
from sinkjax.report.section import Report, Section
from sinkjax.report.table import EMPTY, table, verdicts
from sinkjax.runtime import folding
from sinkjax.train.config import ALL_STEPS, CONVERGED, DIVERGED

if TYPE_CHECKING:
    from sinkjax.analysis.verdicts import Verdict
    from sinkjax.train.trained import Trained


MOST_LINES = 60  # maximum rows of a table of edits; the page and summary.csv have all


def show(title: str, columns: Sequence[str], lines: Sequence[Sequence[object]], caption: str = "") -> None:
    """Print a table with long cells folded; numbers and bytes are already formatted. Columns without names have no heading."""
    from rich import box, console, table

    screen = console.Console(highlight=False, markup=False, width=folding.columns())
    style: Any = {"box": box.SIMPLE_HEAD, "title_style": "bold", "title_justify": "left", "caption_justify": "left"}
    shown = table.Table(title=printable(title) or None, caption=printable(caption) or None, show_header=any(columns), **style)
    for column in columns:
        shown.add_column(column, overflow="fold")
    for line in lines:
        shown.add_row(*(printable(str(entry)) for entry in line))
    screen.print(shown)


def terminal(results: Section | Report) -> None:
    """Print a section's answer and one line per claim, or its short tables if it has no claims, and its findings.

    Of several studies, print the same without tables, which their pages have, and the state of each.
    """
    if isinstance(results, Section):
        _show_section(results, results.title)
        return
    for section in results.sections:
        print()
        _show_section(section, f"{section.study}: {section.title}", tables=False)
    lines = [(section.study, verdicts(section)) for section in results.sections]
    show(results.title, ("study", "state"), lines + [(name, f"not run: {why}") for name, why in results.skipped.items()])


def _show_section(section: Section, title: str, tables: bool = True) -> None:
    print(f"{printable(title)}\n")
    if section.verdicts:
        print(folding.folded(printable(str(answer(section) or section.title))))
        print(folding.folded(printable(about(section))))
        show("", ("here", "number", "the claim"), [(claim.word, _number(claim), claim.statement) for claim in section.verdicts])
    elif tables:
        _show_tables(section)
    for finding in section.findings:
        print(folding.folded(printable(finding), "- "))
    print("\n" * bool(section.findings), end="")


def show_training(trained: Trained) -> None:
    """Print the outcomes of a training's runs, if one reached its goal or diverged; of others the page has all."""
    if all(ended.outcome == ALL_STEPS for ended in trained.runs):
        return
    lines = []
    for (variant, rate), runs in trained.groups().items():
        steps = sorted(ended.steps for ended in runs if ended.outcome == CONVERGED)
        taken = (f"{np.median(steps):,.0f}", f"{steps[0]:,} to {steps[-1]:,}") if steps else ("-", "-")
        diverged = ", ".join(str(ended.run.seed) for ended in runs if ended.outcome == DIVERGED) or "-"
        lines.append((variant, f"{rate:g}", len(runs), len(steps), *taken, diverged))
    columns = ("variant", "rate", "runs", "converged", "median step", "range", "diverged seeds")
    cost = "" if trained.milliseconds is None else f"{three_digits(trained.milliseconds)} ms of wall time for one step of one run"
    show(f"Training {trained.name}", columns, lines, cost)


def _number(claim: Verdict) -> str:
    """Format a claim's number, with the reason if the number alone does not decide the word."""
    if not claim.number:  # a check, or a claim without measurements
        return claim.judgement.reason or claim.label
    return f"{claim.number}. {claim.judgement.reason}" if claim.word in UNJUDGED else claim.number


def _show_tables(section: Section) -> None:
    summary = table(section.rows, section.featured)
    for number, column in enumerate(summary.columns):
        block = [(label, cells[number]) for label, cells in summary.lines if cells[number] != EMPTY]
        compared, ranked = any(cell.effect for _, cell in block), any(cell.rank for _, cell in block)
        lines = [(label, cell.value, *[cell.effect] * compared, *[cell.rank] * ranked) for label, cell in block[:MOST_LINES]]
        more = f"and {len(block) - MOST_LINES:,} more, in summary.csv" if len(block) > MOST_LINES else ""
        show(column, (section.subject, "value", *["effect"] * compared, *["percentile"] * ranked), lines, more)
    if any(row.value.low is not None for row in section.rows):
        paired = "; effects are paired differences from the first line of a table" * any(row.effect.n for row in section.rows)
        print(folding.folded(f"Means with 95% intervals over {section.over}{paired}.") + "\n")


def in_words(count: float) -> str:
    """Format bytes, such as 1.2 MB."""
    from rich.filesize import decimal

    return decimal(int(count))
