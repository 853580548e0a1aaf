"""A section's claims as a table: one row each, with word, number and bar; everything else is collapsed."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from sinkjax.report.bar import bar

if TYPE_CHECKING:
    from sinkjax.analysis.verdicts import Verdict

LEGEND = (
    "The dot is the number and the line its 95% interval; grey, the range of the matched controls; the ring, the untrained twin."
    " Of a share of the whole, the thin lines stand at 0, 50 and 100%."
)


def claims(found: Sequence[Verdict]) -> str:
    """Make the tables of claims, exact numbers and checks.

    Args:
        found: The verdicts of a section.

    Returns:
        HTML; "" without verdicts.
    """
    judged, described, checks = ([one for one in found if one.kind == kind] for kind in ("claim", "described", "identity"))
    parts = []
    if judged:
        legend = f'<p class="legend">{LEGEND}</p>' if any(map(bar, judged)) else ""
        parts.append(f"<h2>Claims</h2>{_table(judged, drawn=True)}{legend}")
    if described:
        parts.append(f"<h2>Numbers of the weights</h2><p>These are exact and have no test.</p>{_table(described, drawn=False)}")
    if checks:
        held = sum(one.judgement.word == "holds" for one in checks)
        about = "These hold for every model if the code is correct. They check the code and are not findings."
        parts.append(
            f"<details{' open' * (held < len(checks))}><summary>Checks: {held} of {len(checks)} hold</summary><p>{about}</p>"
            f"{_table(checks, drawn=False)}</details>"
        )
    return "\n".join(parts)


def _table(found: Sequence[Verdict], drawn: bool) -> str:
    head = "<thead><tr><th>here</th><th>the claim</th><th>number</th></tr></thead>"
    lines = "\n".join(_row(one, drawn) for one in found)
    return f'<table class="claims">{head}<tbody>\n{lines}\n</tbody></table>'


def _row(one: Verdict, drawn: bool) -> str:
    source = "; ".join(filter(None, (one.source, one.paper)))
    number = one.number or one.label
    reason = one.judgement.reason
    undecided = one.unmeasured or one.word == "untested"  # the reason then stands in place of a number, or below it
    several = "<br>".join(map(escape, number.split("; ")))  # described numbers, a line each
    shown = f'<span class="value">{several}</span>' if number else f"<small>{escape(reason)}</small>"
    if undecided and number and reason:
        shown += f"<small>{escape(reason)}</small>"
    folded = [one.numbers if one.judgement.D is not None else "", "" if undecided else reason, one.method, *one.beside]
    more = "".join(f"<small>{escape(text)}</small>" for text in folded if text)
    details = f"<details><summary>rule and statistics</summary>{more}</details>" if more else ""
    return (
        f'<tr><td class="word {one.word.split()[0]}">{escape(one.word)}</td>'
        f"<td>{escape(one.statement)}<small>{escape(source)}</small></td>"
        f"<td>{shown}{bar(one) if drawn else ''}{details}</td></tr>"
    )
