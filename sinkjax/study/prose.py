"""The text of a study, from its config file: title, question, notes and statements."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sinkjax.config_files.checks import check_keys

NAMED = re.compile(r"\{(\w+)\}")  # a setting in a text


@dataclass(frozen=True)
class Statement:
    """The sentence of a claim, and the paper's own number."""

    text: str = ""
    paper: str = ""


@dataclass(frozen=True, eq=False)
class Prose:
    """The text of a study: title, question, notes, and the statement of each claim."""

    title: str = ""
    question: str = ""
    notes: tuple[str, ...] = ()
    claims: Mapping[str, Statement] = field(default_factory=dict)

    @classmethod
    def read(cls, values: Mapping[str, Any], title: str, what: str) -> Prose:
        """Read the text of a study from its config file.

        Args:
            values: The title, question, notes, and claims (name -> statement, or {statement, paper}).
            title: Title of a study whose file has none.
            what: The file, for errors.
        """
        check_keys(values, ("title", "question", "notes", "claims"), f"{what}: prose")
        claims = {}
        for name, stated in (values.get("claims") or {}).items():
            stated = {"statement": stated} if isinstance(stated, str) else stated
            check_keys(stated, ("statement", "paper"), f"{what}: prose: {name}")
            claims[name] = Statement(one_line(stated.get("statement", name)), one_line(stated.get("paper", "")))
        notes = tuple(map(one_line, values.get("notes", ())))
        return cls(one_line(values.get("title") or title), one_line(values.get("question", "")), notes, claims)


def one_line(text: object) -> str:
    """Join a text written over several lines."""
    return " ".join(str(text).split())


def filled(text: str, values: Mapping[str, object]) -> str:
    """Replace names of settings in braces by their values; other names stay."""

    def setting(match: re.Match[str]) -> str:
        value = values.get(match[1], match[0])
        return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)

    return NAMED.sub(setting, text)
