"""HTML tables that represent models, edits, probes and records in notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields
from html import escape
from typing import Any

import numpy as np

LONGEST = 200  # maximum characters of a cell


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Make an HTML table with a title, escaping all text."""

    def line(tag: str, cells: Sequence[object]) -> str:
        return "<tr>" + "".join(f'<{tag} style="text-align: left">{escape(_cut(cell))}</{tag}>' for cell in cells) + "</tr>"

    lines = [line("th", head)] * any(head) + [line("td", row) for row in rows]
    return f"<div><strong>{escape(_cut(title))}</strong><table>{''.join(lines)}</table></div>"


def chosen(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their default or have none: name -> value."""
    values = {field.name: (getattr(record, field.name), field.default) for field in fields(record)}
    return {name: value for name, (value, default) in values.items() if default is MISSING or value != default}


def in_words(value: Any) -> str:
    """Format a number unchanged, and an array by its dtype and shape."""
    if hasattr(value, "shape") and value.shape:
        return f"{value.dtype} [{', '.join(map(str, value.shape))}]"
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)


def axes(array: Any, names: Sequence[str]) -> str:
    """Format an array's dtype and axes: "float32 [prompt 2, layer 4]". An extra leading axis is the edits'."""
    if not hasattr(array, "shape"):  # a placeholder that JAX puts in place of a leaf
        return type(array).__name__
    names = ["edit"] * (len(array.shape) - len(names)) + list(names)
    return f"{array.dtype} [{', '.join(f'{name} {size}' for name, size in zip(names, array.shape, strict=False))}]"


def _cut(value: object) -> str:
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
