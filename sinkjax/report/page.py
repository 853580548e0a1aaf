"""A self-contained HTML page of sections: no network, and no script except the one that draws maps.

The template is `page.html`. It escapes every text, and no text of a study or model is ever a template.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from sinkjax.analysis.evidence import UNJUDGED
from sinkjax.analysis.verdicts import said
from sinkjax.report.answer import about, answer
from sinkjax.report.table import table, verdicts
from sinkjax.runtime import extras
from sinkjax.viewing.maps import asset, script

if TYPE_CHECKING:
    from jinja2 import Template

    from sinkjax.analysis.verdicts import Verdict
    from sinkjax.report.section import Drawing, Section
    from sinkjax.viewing.maps import KeptMaps, Maps

LARGEST = 20_000_000  # maximum bytes of a page, so that it opens quickly and can be sent
# Nothing may be fetched from anywhere: a page is self-contained. Its own script runs, by its digest, and no other.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'; script-src "
WIDTH, HEIGHT, MARGIN = 180, 26, 6  # pixels of a claim's bar
CLIP = (-1.0, 2.0)  # shares of the whole beyond these are drawn as arrows
MARKS = (-0.1, 0.0, 0.1, 1.0)  # shares: nothing, both thresholds of the rule, and the whole


@cache
def template() -> Template:
    """Load the packaged template. Its undefined names are errors, and all of its values are escaped."""
    extras.require("a page", "report", "jinja2")
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(loader=PackageLoader("sinkjax", "report"), autoescape=True, undefined=StrictUndefined)
    made.filters |= {
        "base64": lambda data: base64.b64encode(data).decode(),
        "own": lambda facts, shared: {name: value for name, value in facts.items() if name not in shared},
        "bar_of": bar_of,
    }
    functions = (about, answer, bar_of, groups, place, table, verdicts)
    made.globals |= {"unjudged": UNJUDGED, **{function.__name__: function for function in functions}}
    return made.get_template("page.html")


def page(
    sections: Sequence[Section], title: str, skipped: Mapping[str, str] | None = None, headline: Drawing | None = None
) -> str:
    """Make the page of one or more sections, with a table of contents if there are several.

    Args:
        sections: The sections.
        title: The page's title.
        skipped: Study -> why it has no section; given for a page of several studies, empty if each has one.
        headline: A figure of all sections, which comes first; the sections are then collapsed.

    Returns:
        The page.
    """
    from markupsafe import Markup

    style = asset("viewer.css") + files("sinkjax").joinpath("report", "style.css").read_text(encoding="utf-8")
    live = script() if any(section.views for section in sections) else ""
    text = template().render(
        sections=sections,
        title=title,
        skipped=skipped,
        headline=headline,
        shared=_common(sections),
        policy=Markup(POLICY + _allowed(live)),
        style=Markup(style),
        live=Markup(live),
    )
    return _fill_views(text, sections, LARGEST - len(text.encode()))


def groups(drawings: Sequence[Drawing]) -> list[list[tuple[Drawing, str]]]:
    """Group successive halves, which share a line; each figure has its caption, with its source if the one before has another."""
    captioned, before = [], ""
    for drawing in drawings:
        changed = drawing.source not in ("", before)
        captioned.append((drawing, f"{drawing.caption} {drawing.source}" if changed else drawing.caption))
        before = drawing.source or before
    return [list(group) for _, group in itertools.groupby(captioned, key=lambda pair: pair[0].half or id(pair[0]))]


def place(view: Maps | KeptMaps) -> str:
    """Return the placeholder that the maps replace, as markup."""
    from markupsafe import Markup

    return Markup("<!-- maps {} -->").format(view.name)


def _allowed(live: str) -> str:
    """Return the script that a page allows: that in the element `live`, by its digest, or none."""
    text = live.partition("<script")[2].partition(">")[2].rpartition("</script>")[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" if text else "'none'"


def _fill_views(text: str, sections: Sequence[Section], room: int) -> str:
    """Insert as many maps as fit into `room` bytes; the others refer to the study's own page, and there to its stores."""
    from markupsafe import Markup

    for section in sections:
        for view in section.views:
            figure = view.figure()
            if len(figure.encode()) > room:
                instead = f"see the page of {section.study}" if len(sections) > 1 else "the study's stores have the numbers"
                note = Markup("<p>{} With these maps the page would exceed {:.0f} MB: {}.</p>")
                figure = note.format(view.said, LARGEST / 1e6, instead)
            room -= len(figure.encode())
            text = text.replace(place(view), figure, 1)
    return text


def _common(sections: Sequence[Section]) -> dict[str, object]:
    """Return the provenance common to several sections, which is shown once at the end of the page."""
    if len(sections) < 2:
        return {}
    first, *rest = (section.provenance for section in sections)
    return {name: value for name, value in first.items() if all(name in facts and facts[name] == value for facts in rest)}


def bar_of(claim: Verdict) -> dict[str, Any]:
    """Place a claim's number with its interval, its controls and the untrained twin on a bar, in pixels; {} if unmeasured."""
    judged, share = claim.judgement, claim.share
    value, twin = (None if judgement is None else judgement.S if share else judgement.D for judgement in (judged, claim.twin))
    if value is None or value.mean is None:
        return {}
    ring = [] if twin is None or twin.mean is None else [twin.mean]
    ends = [] if value.low is None or value.high is None else [value.low, value.high]
    unit = judged.W.mean if share and judged.W is not None and judged.W.mean else 1.0
    controls = [] if judged.rank is None or judged.rank.spread is None else [end / unit for end in judged.rank.spread]
    low, high = (pick([0.0, value.mean, *ends, *ring, *controls]) for pick in (min, max))
    if share:
        low, high = max(CLIP[0], min(low, -0.15)), min(CLIP[1], max(high, 1.05))

    def x(number: float) -> float:
        return round(MARGIN + (min(max(number, low), high) - low) * (WIDTH - 2 * MARGIN) / ((high - low) or 1.0), 1)

    arrows = [(ends[1], 5)] * (ends[1] > high) + [(ends[0], -5)] * (ends[0] < low) if ends and share else []
    title = [claim.number, "grey: the range of its controls" * bool(controls)]
    title += [f"ring: untrained twin, {said(twin, 'share' if share else claim.unit)}" for _ in ring]
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "middle": HEIGHT / 2,
        "title": "; ".join(filter(None, title)),
        "marks": [("mark" if mark else "zero", x(mark)) for mark in (MARKS if share else (0.0,))],
        "controls": controls and (x(controls[0]), max(round(x(controls[1]) - x(controls[0]), 1), 2.0)),
        "interval": [x(end) for end in ends],
        "dots": [*(("twin", x(mean)) for mean in ring), ("mean", x(value.mean))],
        "arrows": [(x(end), x(end) + tip) for end, tip in arrows],
    }
