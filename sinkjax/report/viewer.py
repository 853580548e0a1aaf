"""Maps that a reader of a page steps through, drawn by plotly, which the page carries along: no network is needed.

Every map of a view is in the page, as codes of 8 bits on one scale, packed; so a value can be read off to about 2%. A view's
caption states which maps are shown; the rest is in the store.
"""

from __future__ import annotations

import json
from functools import cache
from html import escape
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinkjax.errors import SinkjaxError
from sinkjax.maps import encode, packed
from sinkjax.report.table import number
from sinkjax.runtime import extras

if TYPE_CHECKING:
    from sinkjax.report.section import View

BUNDLE = Path("package_data", "plotly.min.js")  # the only build that plotly's package holds


def figure(view: View) -> str:
    """The HTML of a view: a place for the map, its data and its caption."""
    data = json.dumps(contents(view), ensure_ascii=False).replace("<", "\\u003c")  # so that no token ends the script
    return (
        f'<figure class="view" id="{escape(view.name)}"><div class="place">The map is drawn by this page\'s script.</div>'
        f'<script type="application/json">{data}</script><figcaption>{escape(view.caption)}</figcaption></figure>\n'
    )


def script() -> str:
    """The script elements that bring the views of a page to life. Errors: plotly is not installed."""
    own = files("sinkjax").joinpath("report", "viewer.js").read_text(encoding="utf-8")
    return f"<script>{_plotly()}</script>\n<script>\n{own}</script>"


def contents(view: View) -> dict[str, Any]:
    """What `viewer.js` needs to draw a view, as JSON."""
    codes, scale = encode(view.values, view.log)
    scale["ticks"] = [[place, _short(mark)] for place, mark in scale["ticks"]]
    return {
        "choices": [
            {"name": name, "labels": list(labels), "start": list(labels).index(view.start[name]) if name in view.start else 0}
            for name, labels in view.choices.items()
        ],
        "rows": codes.shape[-2],
        "columns": codes.shape[-1],
        "row_title": view.row_title,
        "row_note": view.row_note,
        "column_title": view.column_title,
        "row_tokens": view.row_tokens,
        "tokens": [list(texts[: codes.shape[-1]]) for texts in view.tokens],
        "quantity": view.quantity,
        "scale": scale,
        "data": packed(codes),
    }


def _short(mark: float) -> str:
    """A tick in words, without the zeros that say how exact a measured number is."""
    words = number(mark)
    return words.rstrip("0").rstrip(".") if "." in words else words


@cache
def _plotly() -> str:
    """The text of plotly.js, read without importing its package."""
    extras.require("a page of maps", "report", "plotly")
    spec = find_spec("plotly")
    found = [Path(folder) / BUNDLE for folder in (spec.submodule_search_locations or ())] if spec else []
    for file in found:
        if file.is_file():
            return file.read_text(encoding="utf-8").replace("</script", "<\\/script")
    raise SinkjaxError(f"plotly has no {BUNDLE}; install it again: pip install --force-reinstall plotly")
