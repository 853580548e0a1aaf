"""A self-contained page: text, tables, figures and maps in one HTML file, without a network, and with a script only for maps."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from sinkjax.report.answer import Answer, about, answer
from sinkjax.report.claims import claims
from sinkjax.report.table import Cell, Table, table, verdicts
from sinkjax.viewing.maps import asset, script

if TYPE_CHECKING:
    from sinkjax.report.section import Drawing, Sample, Section
    from sinkjax.viewing.maps import KeptMaps, Maps


LARGEST = 20_000_000  # maximum bytes of a page, so that it opens quickly and can be sent
# Nothing may be fetched from anywhere: a page is self-contained. Its own script runs, by its digest, and no other.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'; script-src "


def page(
    sections: Sequence[Section], title: str, skipped: Mapping[str, str] | None = None, headline: Drawing | None = None
) -> str:
    """Make the page of one or more sections, with a table of contents if there are several.

    skipped: study -> why it has no section; given for a page of several studies, empty if each has one. headline: a figure of all
    sections, which comes first; the sections are then collapsed.
    """
    style = asset("viewer.css") + files("sinkjax").joinpath("report", "style.css").read_text(encoding="utf-8")
    live = script() if any(section.views for section in sections) else ""
    contents = "" if skipped is None else _contents(sections, title, skipped)
    shared = _common(sections)
    last = f"<section>\n<h2>Where all of these come from</h2>{_provenance(shared)}\n</section>" if shared else ""
    told = [_section(section, shared) for section in sections]
    if headline is not None:
        contents += "\n" + "".join(_figures([headline]))
        told = [
            f"<details><summary>{escape(section.study)}</summary>{text}</details>"
            for section, text in zip(sections, told, strict=True)
        ]
    body = "\n".join([contents, *told, last])
    text = (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}{_allowed(live)}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}\n{live}\n</body>\n</html>\n"
    )
    return _fill_views(text, sections, LARGEST - len(text.encode()))


def _allowed(live: str) -> str:
    """Return the script that a page allows: that in the element `live`, by its digest, or none."""
    text = live.partition("<script")[2].partition(">")[2].rpartition("</script>")[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" if text else "'none'"


def _place(view: Maps | KeptMaps) -> str:
    """Return the placeholder that the maps replace."""
    return f"<!-- maps {escape(view.name)} -->"


def _fill_views(text: str, sections: Sequence[Section], room: int) -> str:
    """Insert as many maps as fit into `room` bytes; the others refer to the study's own page, and there to its stores."""
    for section in sections:
        for view in section.views:
            figure = view.figure()
            if len(figure.encode()) > room:
                instead = (
                    f"see the page of {escape(section.study)}" if len(sections) > 1 else "the study's stores have the numbers"
                )
                figure = f"<p>{escape(view.said)} With these maps the page would exceed {LARGEST / 1e6:.0f} MB: {instead}.</p>"
            room -= len(figure.encode())
            text = text.replace(_place(view), figure, 1)
    return text


def _contents(sections: Sequence[Section], title: str, skipped: Mapping[str, str]) -> str:
    """List the studies: a link, the answer and the words on the claims, or the reason why a study did not run."""
    lines = [
        f'<tr><th><a href="#{escape(section.study)}">{escape(section.study)}</a></th>'
        f"<td>{escape(str(answer(section) or section.title))}</td><td>{escape(verdicts(section))}</td></tr>"
        for section in sections
    ]
    lines += [f'<tr><th>{escape(name)}</th><td colspan="2">not run: {escape(why)}</td></tr>' for name, why in skipped.items()]
    body = "\n".join(lines)
    return (
        f'<nav id="contents"><h1>{escape(title)}</h1><div class="wide"><table><thead><tr><th>study</th><th>found</th>'
        f"<th>claims of the paper</th></tr></thead><tbody>\n{body}</tbody></table></div></nav>"
    )


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


def _section(section: Section, shared: Mapping[str, object]) -> str:
    """Make a section: first the answer and its figure, then the claims, then everything that supports them."""
    headline, *others = _figures(section.drawings) or [""]
    own = {name: value for name, value in section.provenance.items() if name not in shared}
    parts = [
        f'<h1>{escape(section.title)}</h1>\n<p class="name">{escape(section.study)}</p>',
        _answer(section),
        headline,
        claims(section.verdicts),
        "<h2>Figures</h2>" + "".join(others) if others else "",
        "<h2>Maps to step through</h2>" + "".join(map(_place, section.views)) if section.views else "",
        _samples(section.samples),
        "<h2>Further numbers</h2>" + _list(section.findings, "findings") if section.findings else "",
        _summary(section),
        _everything(section),
        "<h2>How to read this</h2>" + _list(section.notes, "notes") if section.notes else "",
        "<h2>Where the numbers come from</h2>" + _provenance(own) if own else "",
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


def _common(sections: Sequence[Section]) -> dict[str, object]:
    """Return the provenance common to several sections, which is shown once at the end of the page."""
    if len(sections) < 2:
        return {}
    first, *rest = (section.provenance for section in sections)
    return {name: value for name, value in first.items() if all(name in one and one[name] == value for one in rest)}


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


def _figures(drawings: Sequence[Drawing]) -> list[str]:
    """Show figures, each with its source if the one before has another."""
    shown, before = [], ""
    for drawing in drawings:
        data, caption = base64.b64encode(drawing.svg).decode(), escape(drawing.caption)
        said = caption if drawing.source in ("", before) else f"{caption} {escape(drawing.source)}"
        before = drawing.source or before
        shown.append(
            f'<figure><img alt="{caption}" src="data:image/svg+xml;base64,{data}"><figcaption>{said}</figcaption></figure>\n'
        )
    return shown


def _list(lines: Sequence[str], name: str) -> str:
    return f'<ul class="{name}">' + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _provenance(facts: Mapping[str, object]) -> str:
    lines = "".join(f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in facts.items())
    return f'<div class="wide"><table class="provenance"><tbody>{lines}</tbody></table></div>'
