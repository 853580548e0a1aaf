"""A self-contained page: text, tables, figures and maps in one HTML file, without a network, and with a script only for maps."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from sinkjax.report.answer import answer
from sinkjax.report.html import figures, html, place, provenance
from sinkjax.report.table import verdicts
from sinkjax.viewing.maps import asset, script

if TYPE_CHECKING:
    from sinkjax.report.section import Drawing, Section


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
    last = f"<section>\n<h2>Where all of these come from</h2>{provenance(shared)}\n</section>" if shared else ""
    bodies = [html(section, shared) for section in sections]
    if headline is not None:
        contents += "\n" + "".join(figures([headline]))
        bodies = [
            f"<details><summary>{escape(section.study)}</summary>{text}</details>"
            for section, text in zip(sections, bodies, strict=True)
        ]
    body = "\n".join([contents, *bodies, last])
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
            text = text.replace(place(view), figure, 1)
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


def _common(sections: Sequence[Section]) -> dict[str, object]:
    """Return the provenance common to several sections, which is shown once at the end of the page."""
    if len(sections) < 2:
        return {}
    first, *rest = (section.provenance for section in sections)
    return {name: value for name, value in first.items() if all(name in one and one[name] == value for one in rest)}
