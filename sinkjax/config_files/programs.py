"""Which Python files run: those whose path the user typed in this process, and no others.

`typed` is called where the user speaks: on an argument of a command, or of `sinkjax.run`. `execute` is the only place in sinkjax
that runs a file, and it refuses every other path. Whatever is read from data (a config, a store, a zip) can therefore name a file
without starting it.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import ModuleType

from sinkjax.config_files.files import MOST_BYTES, regular, user_path
from sinkjax.errors import SinkjaxError

SUFFIX = ".py"

_typed: set[Path] = set()
_ran: set[str] = set()


class NotTyped(SinkjaxError):
    """A program whose path the user did not type."""


def typed(name: str | Path) -> None:
    """Permit a program, because the user typed its path. A name without the suffix of a program changes nothing.

    Args:
        name: The path.

    Raises:
        SinkjaxError: The path is impossible.
    """
    if str(name).endswith(SUFFIX):
        _typed.add(user_path(name).resolve())


def execute(path: Path) -> tuple[ModuleType, bytes]:
    """Run a Python file as a module, from its source: compiled copies of it are neither read nor written.

    Args:
        path: The file.

    Returns:
        The module, and the bytes that ran.

    Raises:
        NotTyped: The user did not type this path.
        SinkjaxError: The file cannot be read; its syntax or its imports are wrong.
    """
    if path.resolve() not in _typed:
        raise NotTyped(f"{path} is a program, which runs only if you type its path: read it first")
    regular(path, MOST_BYTES)
    content = path.read_bytes()
    _ran.add(str(path))
    module = ModuleType(f"sinkjax_study_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # where dataclasses look the types of their fields up
    try:
        exec(compile(content, str(path), "exec"), vars(module))
    except (ImportError, SyntaxError) as error:
        raise SinkjaxError(f"{path} cannot be imported: {error}") from None
    return module, content


def place_of(error: Exception) -> str:
    """Say what went wrong in a program that ran, and where.

    Args:
        error: Any error.

    Returns:
        The program, its line that failed, and the error; "" if code below the program failed, whose traceback may be needed.
    """
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    file = frame.f_code.co_filename
    if file not in _ran:
        return ""
    sentence = " ".join("".join(traceback.TracebackException.from_exception(error).format_exception_only()).split())
    return f"{file}, line {line}: {sentence}"
