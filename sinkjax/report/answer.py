"""The answer of a page in one sentence, from the words on its claims or, without claims, from its largest effect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinkjax.analysis.evidence import NOT_TAKEN
from sinkjax.report.table import interval, number, verdicts

if TYPE_CHECKING:
    from sinkjax.analysis.summary import Row
    from sinkjax.analysis.verdicts import Verdict
    from sinkjax.report.section import Section

LEADS = {  # word on a claim -> start of the answer, for a statement of a paper and for one of ours
    "replicates": ("As in the paper", "True here"),
    "opposite": ("The opposite of the paper", "The opposite is true here"),
    "absent": ("Absent here", "Absent here"),
    "moves": ("Not as in the paper", "Not true here"),
    "undecided": ("Undecided", "Undecided"),
}
NOTHING = "This model has nothing that the claims are about"


@dataclass(frozen=True)
class Answer:
    """A study's result in one sentence.

    Attributes:
        lead: Its start, such as "As in the paper"; "" without claims.
        text: The result, as a sentence.
        number: The deciding number, with its interval, or "".
        word: The word on the claim; "" without claims.
    """

    lead: str
    text: str
    number: str = ""
    word: str = ""

    def __str__(self) -> str:
        lead, number = f"{self.lead}: " if self.lead else "", f" ({self.number})" if self.number else ""
        return f"{lead}{self.text.removesuffix('.')}{number}."


def answer(section: Section) -> Answer | None:
    """Answer with the first judged claim, the paper's before ours; without claims, with the largest effect.

    If there are no effects either, answer with the first finding, the checks of the code or the first number of the weights.

    Args:
        section: The study's section.

    Returns:
        The answer, or None if the section has no results.
    """
    claims = [verdict for verdict in section.verdicts if verdict.kind == "claim"]
    tested = [verdict for verdict in claims if verdict.judged]
    for verdict in sorted(tested, key=lambda verdict: verdict.ours):
        lead = LEADS[verdict.judgement.word][verdict.ours] + ", and in its untrained twin too" * verdict.settled.untrained
        return Answer(lead, verdict.statement, verdict.number, verdict.judgement.word)
    if claims:
        why = "No edit did what its claim says" if any(verdict.word == NOT_TAKEN for verdict in claims) else NOTHING
        return Answer("Not applicable", why, word="not-applicable")
    return _effect(section.rows) or next((Answer("", finding) for finding in section.findings), None) or _checks(section.verdicts)


def about(section: Section) -> str:
    """Describe the model, the sample size and the words on the claims, in one line."""
    sizes = [row.value.n for row in section.rows if row.value.n > 1]
    sample = f"{max(sizes):,} {section.over}" if sizes else ""
    count = sum(verdict.kind == "claim" for verdict in section.verdicts)
    total = f"{count} claim{'s' * (count != 1)}: {verdicts(section)}" if count else ""
    return " · ".join(filter(None, (str(section.provenance.get("model", "")), sample, total)))


def _effect(rows: Sequence[Row]) -> Answer | None:
    """Describe the largest effect on the first measure whose interval excludes 0."""
    if not rows:
        return None
    first = rows[0]
    others = [row for row in rows if row.measure == first.measure and row.condition != first.condition]
    sure = [row for row in others if row.effect.low is not None]
    moved = [row for row in sure if (row.effect.low or 0.0) > 0 or (row.effect.high or 0.0) < 0]
    if moved:
        most = max(moved, key=lambda row: abs(row.effect.mean or 0.0))
        change = " to ".join("undefined" if row.value.mean is None else number(row.value.mean) for row in (first, most))
        text = f"“{most.condition}” moves {first.measure} most, from {change}"
        return Answer("", text, f"effect {interval(most.effect, signed=True)}")
    if sure:
        return Answer("", f"No condition moves {first.measure}: the interval of every effect includes 0")
    return None


def _checks(verdicts: Sequence[Verdict]) -> Answer | None:
    """Describe the number of checks that hold or, without checks, the first described number."""
    checks = [verdict.word for verdict in verdicts if verdict.kind == "identity" and verdict.word != "not applicable"]
    if checks:
        held = checks.count("holds")
        return Answer("", f"{held} of {len(checks)} checks of the code hold", word="holds" if held == len(checks) else "fails")
    described = (verdict for verdict in verdicts if verdict.kind == "described")
    return next(
        (Answer("", verdict.statement, verdict.number or verdict.label.partition("; ")[0]) for verdict in described), None
    )
