"""Pages of measured numbers that several scripts write together: each script owns the section between its two markers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sinkjax.config_files import documents
from sinkjax.studies.registry import documented


def write_section(page: Path, name: str, text: str, head: str) -> None:
    """Put `text` between the markers of section `name`, and leave the rest of the page as it is.

    A page that does not exist begins with `head`; a section that it does not have yet goes to its end.
    Errors: ValueError if the page has one of the markers without the other, or has them twice.
    """
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    section = f"{begin}\n{text.strip()}\n{end}"
    old = page.read_text(encoding="utf-8") if page.exists() else f"{head.strip()}\n"
    if (old.count(begin), old.count(end)) == (0, 0):
        new = f"{old.rstrip()}\n\n{section}\n"
    elif (old.count(begin), old.count(end)) == (1, 1) and old.index(begin) < old.index(end):
        new = old[: old.index(begin)] + section + old[old.index(end) + len(end) :]
    else:
        raise ValueError(f"{page} must hold the markers {begin} and {end} once each, in this order, or neither")
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(new, encoding="utf-8")


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(entry.replace('|', '/') for entry in row)} |" for row in rows)


def table_of(study: str) -> dict[str, Any]:
    """The document of a table of pretraining."""
    name = f"pretrain/{study}"
    return documents.parse(documented()[name], name)
