"""Command options, typed by a dataclass and parsed by tyro; every error is one sentence."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_origin

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
def _with_none(info: PrimitiveTypeInfo) -> Any:
    """Describe an option as tyro does, with "none" for the defaults None and ()."""
    if HELP in info.markers:  # asked by the line below: tyro's own rules answer
        return None
    spec = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(info.type, {*info.markers, HELP}))
    if not isinstance(spec, PrimitiveConstructorSpec):
        return spec
    shown, names = spec.str_from_instance, re.sub(r"\{None\}\||\bNone,", "", spec.metavar)
    given: Any = {"str_from_instance": lambda value: ["none"] if value in (None, ()) else shown(value)}
    return dataclasses.replace(spec, metavar=names, **given)


def _refusal(error: BaseException | None) -> SinkjaxError | None:
    """Return the message of the config that rejected its values, which tyro caught."""
    while error is not None and not isinstance(error, SinkjaxError):
        error = error.__cause__ or error.__context__
    return error
