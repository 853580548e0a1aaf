"""Words on the command line: whether they fit the type of an option."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from sinkjax.config_files.documents import allowed, options


def takes_more(values: Sequence[str], hint: Any) -> bool:
    """Return whether a command-line option that already has some words accepts another."""
    return any(get_origin(option) is tuple for option in options(hint)) or (hint is not bool and not values)


def misfit(values: Sequence[str], hint: Any) -> str:
    """Explain, as the end of a sentence, why the words after an option do not fit its type; "" if they do."""
    if hint is bool:
        return f"is a switch and takes no value, not {values[0]!r}" if values else ""
    lists = [option for option in options(hint) if get_origin(option) is tuple]
    entry = get_args(lists[0])[0] if lists else hint
    kinds = " or ".join(allowed(option) for option in options(entry) if option is not type(None))
    if not values:
        return "" if lists and ... in get_args(lists[0]) else f"needs a value: {kinds}"
    if lists and len(values) == 1 and values[0] == "None" and type(None) in options(hint):
        return ""
    wrong = next((value for value in values if not any(_reads(value, option) for option in options(entry))), None)
    if wrong is not None:
        return f"takes a list, each entry {kinds}, not {wrong!r}" if lists else f"must be {kinds}, not {wrong!r}"
    if lists and ... in get_args(lists[0]):
        return ""
    wanted = len(get_args(lists[0])) if lists else 1
    count = "one value" if wanted == 1 else f"{wanted} values"
    return "" if len(values) == wanted else f"takes {count}, not {len(values)}: {' '.join(values)}"


def _reads(word: str, option: Any) -> bool:
    """Return whether a command-line word can be a value of a type."""
    if get_origin(option) is Literal:
        return word in map(str, get_args(option))
    if option in (int, float):
        try:
            option(word)
        except ValueError:
            return False
        return True
    if option is Path:
        return bool(word) and "\0" not in word
    words = {type(None): ("None",), bool: ("True", "False")}
    return option not in words or word in words[option]
