"""A section as HTML: the answer and its figure first, then the claims, then everything that supports them."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from sinkjax.analysis.evidence import UNJUDGED
from sinkjax.report.answer import Answer, about, answer
from sinkjax.report.bar import bar
from sinkjax.report.table import Cell, Table, table

if TYPE_CHECKING:
    from sinkjax.analysis.verdicts import Verdict
    from sinkjax.report.section import Block, Drawing, Sample, Section
    from sinkjax.viewing.maps import KeptMaps, Maps

LEGEND = (
    "The dot is the number and the line its 95% interval; grey, the range of the matched controls; the ring, the untrained twin."
    " Of a share of the whole, the thin lines stand at -10, 0, 10 and 100%."
)


def html(section: Section, shared: Mapping[str, object] | None = None) -> str:
    """Render a section.

    Args:
        section: The section.
        shared: Provenance that the page shows once for all of its sections.

    Returns:
        An element `section`; each map is a placeholder, see `place`.
    """
    headline, *others = figures(section.drawings) or [""]
    own = {name: value for name, value in section.provenance.items() if name not in (shared or {})}
    parts = [
        f'<h1>{escape(section.title)}</h1>\n<p class="name">{escape(section.study)}</p>',
        _answer(section),
        headline,
        _claims(section.verdicts),
        "<h2>Figures</h2>" + "".join(others) if others else "",
        "<h2>Maps to step through</h2>" + "".join(map(place, section.views)) if section.views else "",
        _samples(section.samples),
        "<h2>Further numbers</h2>" + _list(section.findings, "findings") if section.findings else "",
        *map(_block, section.blocks),
        _summary(section),
        _everything(section),
        "<h2>How to read this</h2>" + _list(section.notes, "notes") if section.notes else "",
        "<h2>Where the numbers come from</h2>" + provenance(own) if own else "",
    ]
    return f'<section id="{escape(section.study)}">\n' + "\n".join(filter(None, parts)) + "\n</section>"


def _answer(section: Section) -> str:
    found = answer(section)
    said = "" if found is None else f'<p class="answer {found.word}">{_said(found)}</p>\n'
    return f'{said}<p class="about">{escape(about(section))}</p>\n<p class="claim">{escape(section.question)}</p>'


def _said(found: Answer) -> str:
    lead = f"<strong>{escape(found.lead)}:</strong> " if found.lead else ""
    number = f' <span class="number">{escape(found.number)}</span>' if found.number else ""
    return f"{lead}{escape(found.text)}{number}"


def _claims(found: Sequence[Verdict]) -> str:
    """Make the tables of claims, exact numbers and checks; "" without verdicts."""
    judged, described, checks = ([one for one in found if one.kind == kind] for kind in ("claim", "described", "identity"))
    parts = []
    if judged:
        legend = f'<p class="legend">{LEGEND}</p>' if any(map(bar, judged)) else ""
        parts.append(f"<h2>Claims</h2>{_claims_table(judged, drawn=True)}{legend}")
    if described:
        parts.append(
            f"<h2>Numbers of the weights</h2><p>These are exact and have no test.</p>{_claims_table(described, drawn=False)}"
        )
    if checks:
        held = sum(one.judgement.word == "holds" for one in checks)
        about = "These hold for every model if the code is correct. They check the code and are not findings."
        parts.append(
            f"<details{' open' * (held < len(checks))}><summary>Checks: {held} of {len(checks)} hold</summary><p>{about}</p>"
            f"{_claims_table(checks, drawn=False)}</details>"
        )
    return "\n".join(parts)


def _claims_table(found: Sequence[Verdict], drawn: bool) -> str:
    head = "<thead><tr><th>here</th><th>the claim</th><th>number</th></tr></thead>"
    lines = "\n".join(_row(one, drawn) for one in found)
    return f'<table class="claims">{head}<tbody>\n{lines}\n</tbody></table>'


def _row(one: Verdict, drawn: bool) -> str:
    source = "; ".join(filter(None, (one.source, one.paper)))
    number = one.number or one.label
    reason = one.judgement.reason
    undecided = one.unmeasured or one.judgement.word in UNJUDGED  # the reason then stands in place of a number, or below it
    several = "<br>".join(map(escape, number.split("; ")))  # described numbers, a line each
    shown = f'<span class="value">{several}</span>' if number else f"<small>{escape(reason)}</small>"
    if undecided and number and reason:
        shown += f"<small>{escape(reason)}</small>"
    took = "" if not one.took or one.took == reason else f"Manipulation check: {one.took}."
    statistics = one.numbers if one.judgement.D is not None else ""
    folded = [statistics, "" if undecided else reason, took, one.judgement.method, *one.beside]
    more = "".join(f"<small>{escape(text)}</small>" for text in folded if text)
    details = f"<details><summary>rule and statistics</summary>{more}</details>" if more else ""
    return (
        f'<tr><td class="word {one.judgement.word.partition(":")[0].replace(" ", "-")}">{escape(one.word)}</td>'
        f"<td>{escape(one.statement)}<small>{escape(source)}</small></td>"
        f"<td>{shown}{bar(one) if drawn else ''}{details}</td></tr>"
    )


def place(view: Maps | KeptMaps) -> str:
    """Return the placeholder that the maps replace."""
    return f"<!-- maps {escape(view.name)} -->"


def _samples(samples: Sequence[Sample]) -> str:
    """Show the model's continuations of each prompt, one line per edit."""
    if not samples:
        return ""
    parts = ["<h2>How the model continues</h2>"]
    for prompt in dict.fromkeys(sample.prompt for sample in samples):
        lines = "\n".join(
            f"<tr><th>{escape(sample.edit)}</th><td>{escape(sample.text) or '(the text ends here)'}</td></tr>"
            for sample in samples
            if sample.prompt == prompt
        )
        parts.append(f'<p class="prompt">{escape(prompt)} …</p><table class="samples"><tbody>\n{lines}\n</tbody></table>')
    return "\n".join(parts)


def _summary(section: Section) -> str:
    """Make the short table, with an explanation of its cells."""
    if not section.rows:
        return ""
    shown = table(section.rows, section.featured)
    cells = [cell for _, line in shown.lines for cell in line]
    sampled = any(row.value.low is not None for row in section.rows)
    parts = [f"the mean and its 95% interval over {section.over}" if sampled else "a number without an interval"]
    parts += ["Δ, the effect, as a rule the difference from the first line"] * any(cell.effect for cell in cells)
    parts += ["its percentile among random controls (and how many these are)"] * any(cell.rank for cell in cells)
    return f"<h2>Summary</h2><p>In each cell: {'; '.join(parts)}.</p>{_table(shown, section.subject)}"


def _everything(section: Section) -> str:
    """Make the collapsed table of all conditions, if the short table omits some."""
    whole = table(section.rows)
    if len(whole.lines) == len(section.featured):
        return ""
    return f"<details><summary>All {len(whole.lines)} {section.subject}s</summary>{_table(whole, section.subject)}</details>"


def _table(summary: Table, subject: str) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in (subject, *summary.columns))
    lines = "".join(f"<tr><th>{escape(label)}</th>{''.join(map(_cell, cells))}</tr>\n" for label, cells in summary.lines)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{lines}</tbody></table></div>'


def _cell(cell: Cell) -> str:
    effect = f"<span>Δ {escape(cell.effect)}</span>" if cell.effect else ""
    rank = f"<span>percentile {escape(cell.rank)}</span>" if cell.rank else ""
    return f'<td><span class="value">{escape(cell.value)}</span>{effect}{rank}</td>'


def figures(drawings: Sequence[Drawing]) -> list[str]:
    """Show figures, each with its source if the one before has another. Successive halves share a line where there is room."""
    shown, before = [], ""
    for half, group in itertools.groupby(drawings, lambda drawing: drawing.half):
        made = []
        for drawing in group:
            data, caption = base64.b64encode(drawing.svg).decode(), escape(drawing.caption)
            said = caption if drawing.source in ("", before) else f"{caption} {escape(drawing.source)}"
            before = drawing.source or before
            image = f'<img alt="{caption}" src="data:image/svg+xml;base64,{data}">'
            made.append(f"<figure>{image}<figcaption>{said}</figcaption></figure>\n")
        shown += [f'<div class="halves">{"".join(made)}</div>\n'] if half else made
    return shown


def _block(block: Block) -> str:
    """Show a heading with its text, table and program."""
    said = f"<p>{escape(block.said)}</p>" if block.said else ""
    head = "".join(f"<th>{escape(column)}</th>" for column in block.columns)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>\n" for line in block.lines)
    table = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{lines}</tbody></table></div>' if head else ""
    code = f"<pre><code>{escape(block.code)}</code></pre>" if block.code else ""
    return f"<h2>{escape(block.title)}</h2>{said}{table}{code}"


def _list(lines: Sequence[str], name: str) -> str:
    return f'<ul class="{name}">' + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def provenance(facts: Mapping[str, object]) -> str:
    lines = "".join(f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in facts.items())
    return f'<div class="wide"><table class="provenance"><tbody>{lines}</tbody></table></div>'
