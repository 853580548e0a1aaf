"""Pages of which scripts own a part, between its two markers."""

from __future__ import annotations

from pathlib import Path

END = "<!-- end -->"


def write_section(page: Path, name: str, text: str, head: str, near: str = "") -> None:
    """Put `text` between the markers of section `name`, and leave the rest of the page as it is.

    A page that does not exist begins with `head`; a section that it does not have yet goes behind the section `near`, or to the
    end of a page without that one.
    Errors: ValueError if the page has one of the markers without the other, or has them twice.
    """
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    old = page.read_text(encoding="utf-8") if page.exists() else f"{head.strip()}\n"
    if begin not in old and end not in old:
        before, found, after = old.partition(f"<!-- end {near} -->")
        old = (before + found).rstrip() + f"\n\n{begin}\n\n{end}\n" + after.removeprefix("\n")
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(replaced(old, begin, end, text.strip(), str(page)), encoding="utf-8")


def replaced(page: str, begin: str, end: str, text: str, where: str) -> str:
    """A page with `text` between two markers; the empty lines around the old text stay. See `write_section` for errors."""
    before, found, rest = page.partition(begin)
    old, closed, after = rest.partition(end)
    if not (found and closed) or begin in rest or (end != END and end in before + after):
        raise ValueError(f"{where} must hold the markers {begin} and {end} once each, in this order, or neither")
    body = old.strip("\n")
    first, last = old.partition(body)[::2] if body else ("\n", "\n")
    return before + begin + first + text + last + end + after
