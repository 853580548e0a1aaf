"""A command's options, typed by a dataclass and read by tyro; a mistake is one sentence."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, get_origin, get_type_hints

import tyro

from sinkjax.config_files import documents
from sinkjax.errors import SinkjaxError, unknown


def read(cls: Any, arguments: Sequence[str], command: str, **defaults: Any) -> Any:
    """Options of a command, typed by `cls`, over `defaults`. Errors: an unknown option, a value of another type."""
    fields = _option_types(cls, defaults)
    known = [*(f"--{name}" for name in fields), *(f"--no-{name}" for name, hint in fields.items() if hint is bool)]
    for argument in arguments:
        option = argument.partition("=")[0].replace("_", "-")
        if option.startswith("--") and option not in (*known, "--help"):
            raise unknown("option", argument.partition("=")[0], known)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                cls,
                args=[*arguments],
                prog=f"sinkjax {command}",
                default=cls(**defaults) if defaults else None,
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as exit:
        if exit.code:
            raise SinkjaxError(_misfit(arguments, fields) or _sentence(complaint.getvalue())) from None
        raise


def _option_types(cls: Any, defaults: dict[str, Any]) -> dict[str, Any]:
    """The types of a command's long options: the fields of `cls` and of its config that carry no marker of tyro's."""
    types = [get_origin(cls) or cls, *(type(config) for config in defaults.values())]
    hints = {name: hint for typed in types for name, hint in get_type_hints(typed, include_extras=True).items()}
    marked = {name for name, hint in hints.items() if get_origin(hint) is Annotated}
    return {name.replace("_", "-"): hint for name, hint in hints.items() if name not in marked and name not in defaults}


def _misfit(arguments: Sequence[str], fields: Mapping[str, Any]) -> str:
    """The first option whose values do not fit its type, in one sentence; "" if there is none."""
    given: list[tuple[str, list[str]]] = []
    for argument in arguments:
        if argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            given.append((name.replace("_", "-"), [value] if equals else []))
        elif given:
            given[-1][1].append(argument)
    for name, values in given:
        hint = fields.get(name, bool if name.removeprefix("no-") in fields else None)
        complaint = None if hint is None else documents.misfit(values, hint)
        if complaint:
            return f"--{name} {complaint}"
    return ""


def _sentence(complaint: str) -> str:
    """What tyro says in a box under a title, up to the rule below which it repeats the help."""
    lines = [line.strip("╭╮╰╯│ ") for line in complaint.strip().splitlines()]
    body = itertools.takewhile(lambda line: not _is_rule(line), itertools.dropwhile(_is_rule, lines[1:]))
    sentence = " ".join(" ".join(body).split("Got errors:")[0].removeprefix("Error parsing config: ").split())
    return re.sub("^Unrecognized options: (.*)", r"unexpected '\1': options are written --NAME VALUE", sentence)


def _is_rule(line: str) -> bool:
    return set(line) in ({"─"}, {"-"})
