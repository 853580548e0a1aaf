"""Command options, typed by a dataclass and parsed by tyro; every error is one sentence.

Arguments are checked against the types before tyro sees them, so that its own error messages are never shown.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from sinkjax.cli import words
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import user_path
from sinkjax.errors import SinkjaxError, unknown
from sinkjax.runtime.folding import folded

Model = tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="MODEL")]]
DefaultModel = tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="[MODEL]")]]


def read(cls: Any, arguments: Sequence[str], command: str, **defaults: Any) -> Any:
    """Parse a command's options, typed by `cls`, with `~` expanded. Errors: an unknown option; a value of the wrong type."""
    wants_help = not {"-h", "--help"}.isdisjoint(arguments)
    if not wants_help:
        _check(arguments, _types(cls, defaults), _positionals(cls), command)
    try:
        with contextlib.redirect_stderr(io.StringIO()), HELP if wants_help else contextlib.nullcontext():
            found = tyro.cli(
                cls,
                args=["--help"] if wants_help else [*arguments],
                prog=f"sinkjax {command}",
                default=cls(**defaults) if defaults else None,
                description=folded((get_origin(cls) or cls).__doc__ or "", hang="  "),  # tyro joins lines without a hang
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as exit:
        if not exit.code:
            raise
        raise _refusal(exit) or SinkjaxError(f"these options cannot be combined; see sinkjax {command} --help") from None
    paths = {name: value for name, value in vars(found).items() if isinstance(value, Path) and str(value).startswith("~")}
    return dataclasses.replace(found, **{name: user_path(value) for name, value in paths.items()})


def entries(found: Mapping[str, str | None]) -> str:
    """Return names with their meanings in two columns, folded to the terminal's width."""
    width = max(map(len, found), default=0)
    return "\n".join(folded(says or "", f"  {name:{width}}  ") for name, says in found.items())


HELP = ConstructorRegistry()


@HELP.primitive_rule
def _tuple(info: PrimitiveTypeInfo) -> Any:
    """Describe options with several values as tyro does, except that an empty default is shown as "none"."""
    if info.type_origin is not tuple or get_args(info.type)[1:] != (...,):
        return None
    # tyro's rule for tuples would be this one
    return _none_shown(list[get_args(info.type)[0]], (), info, lambda value: isinstance(value, tuple))  # type: ignore[misc]


@HELP.primitive_rule
def _optional(info: PrimitiveTypeInfo) -> Any:
    """Describe options that may be left unset by the type of a value alone, with "none" for None."""
    kinds = tuple(kind for kind in get_args(info.type) if kind is not type(None))
    if len(kinds) == len(get_args(info.type)):
        return None
    return _none_shown(Union[kinds], None, info, lambda value: value is None)  # noqa: UP007


def _none_shown(like: Any, empty: object, info: PrimitiveTypeInfo, belongs: Callable[[Any], bool]) -> Any:
    """tyro's description of the type `like`, with `empty` shown as "none"; belongs: whether it may hold a value too."""
    spec = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(like, info.markers))
    if not isinstance(spec, PrimitiveConstructorSpec):
        return spec
    shown, holds = spec.str_from_instance, spec.is_instance
    return dataclasses.replace(
        spec,
        is_instance=lambda value: belongs(value) or holds(value),
        str_from_instance=lambda value: ["none"] if value == empty else shown(value),
    )


def _check(arguments: Sequence[str], types: Mapping[str, Any], positionals: Mapping[str, bool], command: str) -> None:
    """Raise for the first word that no option or positional (name -> whether it is required) accepts."""
    switches = [name for name, hint in types.items() if hint is bool]
    hints = {**types, **{f"no-{name}": bool for name in switches}}
    loose: list[str] = []
    given: list[tuple[str, list[str]]] = []
    for argument in arguments:
        name, equals, value = argument.removeprefix("--").partition("=")
        if argument.startswith("--"):
            if name.replace("_", "-") not in hints:
                raise unknown("option", f"--{name}", [f"--{known}" for known in hints])
            given.append((name.replace("_", "-"), [value] if equals else []))
        elif given and (not positionals or words.takes_more(given[-1][1], hints[given[-1][0]])):
            given[-1][1].append(argument)
        else:
            loose.append(argument)
    for name, values in given:
        if complaint := words.misfit(values, hints[name]):
            raise SinkjaxError(f"--{name} {complaint}")
    refuse(len(loose) > len(positionals), f"unexpected {' '.join(loose[len(positionals) :])!r}: options are written --NAME VALUE")
    missing = [name.upper() for name, needed in [*positionals.items()][len(loose) :] if needed]
    refuse(bool(missing), f"missing from sinkjax {command}: {', '.join(missing)}")


def _types(cls: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the types of a command's long options: the fields of `cls` and its config, except those with a tyro marker.

    A help text (`tyro.conf.arg`) is not a marker.
    """
    types = [get_origin(cls) or cls, *(type(config) for config in defaults.values())]
    hints = {name: hint for typed in types for name, hint in get_type_hints(typed, include_extras=True).items()}
    return {
        known: get_args(hint)[0] if get_origin(hint) is Annotated else hint
        for name, hint in hints.items()
        if not (get_origin(hint) is Annotated and _marked(hint)) and name not in defaults
        for known in (name.replace("_", "-"), *_aliases(hint))
    }


def _aliases(hint: Any) -> list[str]:
    """Return the other names of an option, without their dashes."""
    return [name.removeprefix("--") for entry in get_args(hint)[1:] for name in getattr(entry, "aliases", None) or ()]


def _marked(hint: Any) -> bool:
    return any(not isinstance(entry, type(tyro.conf.arg())) for entry in get_args(hint)[1:])


def _positionals(cls: Any) -> dict[str, bool]:
    """Return the positional fields, in order, and whether each is required."""
    cls = get_origin(cls) or cls
    hints = get_type_hints(cls, include_extras=True)
    marker = get_args(tyro.conf.Positional[str])[1]
    return {
        field.name: field.default is dataclasses.MISSING
        for field in dataclasses.fields(cls)
        if get_origin(hints[field.name]) is Annotated and marker in get_args(hints[field.name])[1:]
    }


def _refusal(error: BaseException | None) -> SinkjaxError | None:
    """Return the message of the config that rejected its values, which tyro caught."""
    while error is not None and not isinstance(error, SinkjaxError):
        error = error.__cause__ or error.__context__
    return error
