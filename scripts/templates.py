"""Pages from templates: Markdown in scripts/templates, in which {names} stand for numbers and tables."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Formatter

TEMPLATES = Path(__file__).resolve().parent / "templates"
AS_IT_IS = ("#", "|", "!", "-")  # first characters of a paragraph that is not wrapped: headings, tables, figures, lists
Look = Callable[[str, str], object]  # the value of a name; after a colon stands which of its numbers is meant, or their format


def page(template: str, look: Look, width: int = 120) -> str:
    """The text of a template with its numbers. A paragraph of prose that has some is wrapped anew, others stay as written."""
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    return "\n\n".join(filled(part, look, width) for part in text.strip().split("\n\n")) + "\n"


def filled(paragraph: str, look: Look, width: int = 120) -> str:
    """A paragraph with its numbers; one that is a single name is a table or a figure, which is not wrapped."""
    parts = list(Formatter().parse(paragraph))
    if all(name is None for _, name, _, _ in parts):
        return paragraph
    text = "".join(
        before if name is None else f"{before}{look(' '.join(name.split()), which or '')}" for before, name, which, _ in parts
    )
    alone = len(parts) == 1 and not parts[0][0]
    return text if alone or paragraph.startswith(AS_IT_IS) else wrap(text, width)


def wrap(text: str, width: int = 120) -> str:
    """A paragraph in lines."""
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def given(numbers: Mapping[str, object]) -> Look:
    """Look names up in a mapping. Errors: a name that is not there."""

    def look(name: str, form: str) -> str:
        if name not in numbers:
            raise SystemExit(f"there is no number {name!r}; there are {', '.join(numbers)}")
        return format(numbers[name], form)

    return look
