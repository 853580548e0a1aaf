"""The numbers of benchmarks: docs/results/data/benchmarks.csv, a line for each, in the digits of docs/results/benchmarks-full.md.

A script writes the lines of its section in place of the old ones; scripts/named.py prints them on other pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from long_tables import as_text
from named import read

from sinkjax.analysis.estimates import three_digits
from sinkjax.config_files.files import write

FULL = Path(__file__).resolve().parents[1] / "docs" / "results" / "benchmarks-full.md"
HEAD = "# All benchmarks"
COLUMNS = ("section", "measure", "value", "low", "high", "goal", "met", "bound", "device", "date", "script")
Goal = tuple[float | None, float | None]  # at least, at most


class Number(NamedTuple):
    """One number. measure: its name, which ends with its unit in parentheses. low, high: the smallest and largest of all rounds.

    goal: as text. met: "met" or "missed". bound: the best value that is possible there.
    """

    measure: str
    value: str
    low: str = ""
    high: str = ""
    goal: str = ""
    met: str = ""
    bound: str = ""

    def spread(self) -> str:
        """The median and the smallest and largest of the rounds, as text."""
        return f"{self.value} ({self.low} to {self.high})" if self.low else self.value


def as_number(measure: str, taken: Sequence[float], form: str = "", goal: Goal = (None, None), bound: str = "") -> Number:
    """Make the number of a measurement, the median over rounds.

    Args:
        measure: Its name.
        taken: One value per round.
        form: Format of the values; by default they have three digits.
        goal: The least and the most that the median should be.
        bound: The best possible value.
    """
    middle = median(taken)
    value, low, high = (plain(one, form) for one in (middle, min(taken), max(taken)))
    return Number(measure, value, *((low, high) if len(taken) > 1 else ("", "")), *judged(middle, goal, bound), bound)


def plain(value: float, form: str) -> str:
    """Format a number without commas, which CSV files and readers of numbers would take for something else."""
    return (f"{value:{form}}" if form else three_digits(value)).replace(",", "")


def judged(value: float, goal: Goal, bound: str = "") -> tuple[str, str]:
    """Return a goal as text, and whether a value meets it; both empty if the bound of this host forbids the goal."""
    least, most = goal
    if bound and ((least is not None and float(bound) < least) or (most is not None and float(bound) > most)):
        return "", ""
    ends = [f"{one:g}" for one in goal if one is not None]
    if not ends:
        return "", ""
    text = " to ".join(ends) if len(ends) > 1 else f"{'at most' if least is None else 'at least'} {ends[0]}"
    met = (least is None or value >= least) and (most is None or value <= most)
    return text, "met" if met else "missed"


def keep(page: Path, section: str, numbers: Sequence[Number], device: str, date: str, script: str) -> None:
    """Write the numbers of a section in place of its old ones, into the table beside the page of all benchmarks."""
    path = page.parent / "data" / "benchmarks.csv"
    others = [tuple(row.values()) for row in (read(path) if path.exists() else []) if row["section"] != section]
    lines = [*others, *((section, *one, device, date, script) for one in numbers)]
    write(path, as_text(COLUMNS, sorted(lines, key=lambda line: line[0])))
