"""A self-contained page: text, tables and figures in one HTML file that needs no network and no script."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from sinkjax.report.table import Cell, Table, table

if TYPE_CHECKING:
    from sinkjax.experiments.base import Drawing, Section

KEY = "In each cell: the mean and its 95 % interval; Δ, the difference from the first line; its percentile among random controls."


def page(sections: Sequence[Section], title: str) -> str:
    """The page of one or more sections."""
    style = files("sinkjax").joinpath("report", "style.css").read_text(encoding="utf-8")
    body = "\n".join(_section(section) for section in sections)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    parts = [
        f"<h1>{escape(section.title)}</h1>",
        f'<p class="name">{escape(section.experiment)}</p>',
        f'<p class="claim">{escape(section.claim)}</p>',
        "<h2>What was found</h2>" + _list(section.findings, "findings") if section.findings else "",
        f"<h2>Summary</h2><p>{KEY}</p>" + _table(table(section.rows, section.featured)),
        _everything(section),
        "<h2>Figures</h2>" + "".join(map(_figure, section.drawings)) if section.drawings else "",
        "<h2>How to read this</h2>" + _list(section.notes, "notes"),
        "<h2>Where the numbers come from</h2>" + _provenance(section),
    ]
    return f'<section id="{escape(section.experiment)}">\n' + "\n".join(filter(None, parts)) + "\n</section>"


def _everything(section: Section) -> str:
    """All arms, folded away where the short table leaves some out."""
    whole = table(section.rows)
    if len(whole.lines) == len(section.featured):
        return ""
    return f"<details><summary>All {len(whole.lines)} edits</summary>{_table(whole)}</details>"


def _table(summary: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in ("edit", *summary.columns))
    lines = "".join(f"<tr><th>{escape(label)}</th>{''.join(map(_cell, cells))}</tr>\n" for label, cells in summary.lines)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{lines}</tbody></table></div>'


def _cell(cell: Cell) -> str:
    effect = f"<span>Δ {escape(cell.effect)}</span>" if cell.effect else ""
    rank = f"<span>percentile {escape(cell.rank)}</span>" if cell.rank else ""
    return f'<td><span class="value">{escape(cell.value)}</span>{effect}{rank}</td>'


def _figure(drawing: Drawing) -> str:
    data = base64.b64encode(drawing.svg).decode()
    caption = escape(drawing.caption)
    return f'<figure><img alt="{caption}" src="data:image/svg+xml;base64,{data}"><figcaption>{caption}</figcaption></figure>\n'


def _list(lines: Sequence[str], name: str) -> str:
    return f'<ul class="{name}">' + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _provenance(section: Section) -> str:
    lines = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in section.provenance.items()
    )
    return f'<div class="wide"><table class="provenance"><tbody>{lines}</tbody></table></div>'
