"""Command options, typed by a dataclass and parsed by tyro; every error is one sentence."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from sinkjax.config_files.files import user_path
from sinkjax.errors import SinkjaxError
from sinkjax.runtime.folding import folded

Model = tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="MODEL")]]
DefaultModel = tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="[MODEL]")]]


def read(cls: Any, arguments: Sequence[str], command: str, **defaults: Any) -> Any:
    """Parse a command's options, typed by `cls`, with `~` expanded. Errors: those of tyro, in one sentence."""
    wants_help = not {"-h", "--help"}.isdisjoint(arguments)
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), HELP if wants_help else contextlib.nullcontext():
            options = tyro.cli(
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
        raise _refusal(exit) or SinkjaxError(f"{_sentence(errors.getvalue())}; see sinkjax {command} --help") from None
    paths = {name: value for name, value in vars(options).items() if isinstance(value, Path)}
    return dataclasses.replace(options, **{name: user_path(value) for name, value in paths.items()})


def _sentence(box: str) -> str:
    """Return the error in a box of tyro's: its first lines, without help texts, and the option that it suggests."""
    lines = [line.strip("|│ ") for line in box.splitlines()[1:]]  # without the title
    parts = [" ".join(group) for ruled, group in itertools.groupby(lines, lambda line: not line.strip("-─╰╯")) if not ruled]
    error, *further = parts or [""]
    meant = [name for part in further if part.startswith("Perhaps you meant") for name in re.findall(r"--[\w-]+", part)[:1]]
    return error.rstrip(".") + "".join(f" (did you mean {name}?)" for name in meant)


def entries(meanings: Mapping[str, str | None]) -> str:
    """Return names with their meanings in two columns, folded to the terminal's width."""
    width = max(map(len, meanings), default=0)
    return "\n".join(folded(meaning or "", f"  {name:{width}}  ") for name, meaning in meanings.items())


HELP = ConstructorRegistry()


@HELP.primitive_rule
def _may_be_unset(info: PrimitiveTypeInfo) -> Any:
    """Describe an option that may be None or () as tyro describes its values, with "none" for the empty default."""
    kinds = tuple(kind for kind in get_args(info.type) if kind is not type(None))
    empty: tuple[()] | None = None
    like: Any
    if info.type_origin is tuple and kinds[1:] == (...,):
        empty, like = (), list[kinds[0]]  # type: ignore[valid-type]  # tyro's rule for tuples would be this one
    elif info.type_origin is not tuple and len(kinds) < len(get_args(info.type)):
        like = Union[kinds]  # noqa: UP007
    else:
        return None
    spec = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(like, info.markers))
    if not isinstance(spec, PrimitiveConstructorSpec):
        return spec
    shown, holds = spec.str_from_instance, spec.is_instance
    return dataclasses.replace(
        spec,
        is_instance=lambda value: value == empty or isinstance(value, tuple) or holds(value),
        str_from_instance=lambda value: ["none"] if value == empty else shown(value),
    )


def _refusal(error: BaseException | None) -> SinkjaxError | None:
    """Return the message of the config that rejected its values, which tyro caught."""
    while error is not None and not isinstance(error, SinkjaxError):
        error = error.__cause__ or error.__context__
    return error
