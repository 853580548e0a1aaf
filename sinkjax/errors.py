"""User-facing errors: one clear sentence that names the fault, the allowed values, and the nearest match."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from typing import Any

# Control characters, line separators, surrogates and non-characters: terminals act on some, and XML allows only a few.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
# Of these, the whitespace characters that text may contain.
SPACING = "\t\n\r\x85\u2028\u2029"
LONGEST = 200  # maximum characters of a quoted name
SENTENCE = 8000  # maximum characters of an error
COMPARED = 20_000  # maximum names searched for the nearest match
SHOWN, BEFORE = 60, 20  # characters of a differing value in an error, and those before its first difference
MANY = 60  # above this many names, an error lists only the nearest


class SinkjaxError(ValueError):
    """Invalid input, described in one sentence with control characters escaped. The CLI prints it and exits with code 2."""

    def __init__(self, sentence: str):
        short = sentence if len(sentence) <= SENTENCE else f"{sentence[: SENTENCE // 2]} [...] {sentence[-SENTENCE // 2 :]}"
        super().__init__(printable(short))


class Unavailable(SinkjaxError):
    """A valid request failed because a location does not respond or is in use by another process."""


class MissingStatistic(SinkjaxError, KeyError):
    """A record lacks a statistic because its probe did not request it."""

    __str__ = Exception.__str__  # KeyError would print the sentence in quotes


def unknown(what: str, name: object, allowed: Iterable[object], hint: str = "") -> SinkjaxError:
    """Build the error for an unknown name: it quotes the name, the nearest match, and all allowed names (or a few, if many)."""
    options = sorted(str(option) for option in allowed)
    shown = repr(name)[:LONGEST]
    if len(options) > COMPARED:
        return SinkjaxError(f"unknown {what} {shown}; allowed: {len(options)} names, such as {', '.join(options[:3])}{hint}")
    near = difflib.get_close_matches(str(name)[:LONGEST], options, n=1, cutoff=0.5)
    guess = f" (did you mean {near[0]!r}?)" if near else ""
    if len(options) > MANY:
        nearest = difflib.get_close_matches(str(name)[:LONGEST], options, n=3, cutoff=0)
        listed = f"{len(options)} names, such as {', '.join(nearest)}"
    else:
        listed = ", ".join(options) or "none"
    return SinkjaxError(f"unknown {what} {shown}{guess}; allowed: {listed}{hint}")


def one_of(what: str, name: object, allowed: Iterable[object]) -> None:
    """Raise `unknown` unless `name` is one of `allowed`."""
    allowed = list(allowed)
    if name not in allowed:
        raise unknown(what, name, allowed)


def printable(text: str) -> str:
    """Escape control characters as in Python ("\\x1b"), so that the text stays on one line and no terminal acts on it."""
    return CONTROL.sub(lambda found: repr(found.group())[1:-1], text)


def short(value: object) -> str:
    """Show an invalid value in an error: its `repr`, or only its type if that is long or spans lines."""
    text = repr(value)
    return text if len(text) <= LONGEST and "\n" not in text else f"a {type(value).__name__}"


def refuse_control(what: str, text: str, but: str = "", hint: bool = False) -> None:
    """Raise if a text has a control character or surrogate that is not in `but`; names the first and its position.

    hint: whether to name ways to take it out of a long text.
    """
    found = next((entry for entry in CONTROL.finditer(text) if entry.group() not in but), None)
    if found:
        half = "\ud800" <= found.group() <= "\udfff"
        kind = "half a character," if half else "the control character"
        way = f"; text.replace({found.group()!r}, ' ') takes it out" if hint else ""
        way += f", and in a file: tr '\\{ord(found.group()):o}' ' '" if hint and found.group().isascii() else ""
        raise SinkjaxError(f"{what} holds {kind} {found.group()!r} at position {found.start()}{way}")


def differences(have: Any, want: Any, name: str = "") -> list[str]:
    """List the differences between two JSON values, by dotted name; long values from shortly before their first difference."""
    if isinstance(have, dict) and isinstance(want, dict):
        keys = sorted(have.keys() | want.keys())
        return [entry for key in keys for entry in differences(have.get(key), want.get(key), f"{name}.{key}".lstrip("."))]
    texts = [json.dumps(have), json.dumps(want)]
    differ = next((place for place, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), 0)
    first = max(0, differ - BEFORE) if max(map(len, texts)) > SHOWN else 0
    was, now = ("..." * (first > 0) + text[first : first + SHOWN] + "..." * (len(text) > first + SHOWN) for text in texts)
    return [] if have == want else [f"{name} was {was}, now {now}"]
