"""Tables in Markdown, for pages of documentation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sinkjax.analysis.verdicts import Verdict


def evidence(verdict: Verdict) -> str:
    """Return the numbers behind a verdict, or the reason for having none; the measure's name has the compared trainings."""
    return dataclasses.replace(verdict, uncontrolled="").numbers or verdict.judgement.reason or verdict.label


def table(head: Sequence[str], lines: Iterable[Sequence[str]], pipe: str = "/") -> str:
    """Make a table. pipe: the text in place of a bar in a cell."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(_plain(entry).replace('|', pipe) for entry in row)} |" for row in rows)


def _plain(text: str) -> str:
    """Keep a star after an underscore, as in Sink_*, from beginning emphasis."""
    return text.replace("_*", "_\\*")
