"""The one exception a user meets: a clear sentence that names the fault, the allowed values, and the nearest match."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

# Control characters, line separators, halves of characters and non-characters: terminals act on some, XML holds few of them.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
# Those of them that stand in a text all the same.
SPACING = "\t\n\r\x85\u2028\u2029"
LONGEST = 200  # characters of a name that an error quotes
SENTENCE = 8000  # characters of an error
COMPARED = 20_000  # most names that an error searches for the nearest
MANY = 60  # with more names than this, an error lists only the nearest


class SinkjaxError(ValueError):
    """Wrong input, said in one sentence, control characters escaped. The command line prints it and exits with code 2."""

    def __init__(self, sentence: str):
        short = sentence if len(sentence) <= SENTENCE else f"{sentence[: SENTENCE // 2]} [...] {sentence[-SENTENCE // 2 :]}"
        super().__init__(printable(short))


class Unavailable(SinkjaxError):
    """The request is right, but a place does not answer, or another process is at work there."""


class MissingStatistic(SinkjaxError, KeyError):
    """A record was asked for a statistic that its probe did not ask for."""

    __str__ = Exception.__str__  # KeyError would print the sentence in quotes


def unknown(what: str, name: object, allowed: Iterable[object], hint: str = "") -> SinkjaxError:
    """The error for a name outside a closed set: names it, the nearest match, and all that are allowed or, of many, a few."""
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
    """A text with its control characters escaped as in Python ("\\x1b"), so that it stays one line and no terminal acts on it."""
    return CONTROL.sub(lambda found: repr(found.group())[1:-1], text)


def short(value: object) -> str:
    """A value of the wrong kind, for an error: its `repr`, or its kind alone where that is long or spans lines."""
    text = repr(value)
    return text if len(text) <= LONGEST and "\n" not in text else f"a {type(value).__name__}"


def refuse_control(what: str, text: str, but: str = "") -> None:
    """Raise an error that names the first control character (or half a character) of a text, none of `but`, and its position."""
    found = next((entry for entry in CONTROL.finditer(text) if entry.group() not in but), None)
    if found:
        half = "\ud800" <= found.group() <= "\udfff"
        kind = "half a character," if half else "the control character"
        raise SinkjaxError(f"{what} holds {kind} {found.group()!r} at position {found.start()}")
