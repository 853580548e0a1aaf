"""Identity of the functions in a probe: two sweeps are the same only if their own statistics compute the same."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any

import jax
import numpy as np

from sinkjax.model.fingerprint import digest
from sinkjax.probes.probe import Probe

ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # in a repr; it differs between processes
LONG = 1000  # entries of an array beyond which NumPy shortens its repr


def own_functions(probe: Probe) -> dict[str, str]:
    """Return the digest of each function that is not sinkjax's own, by statistic.

    It covers the function's code, its defaults, and values and functions that it closes over, but not the global functions that
    it calls or the global values that it reads.
    """
    found = {}
    for entry in probe.extra:
        functions = [_unwrapped(function) for function in (entry.fn, entry.finish) if function is not None]
        if not all(str(getattr(function, "__module__", "")).startswith("sinkjax.") for function in functions):
            found[entry.name] = digest(*(_identity(function) for function in functions))
    return found


def _unwrapped(function: Any) -> Any:
    """Return the function inside partial applications (whose arguments are part of the probe's repr) and decorators."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.unwrap(function)


def _identity(function: Any, outer: tuple[Any, ...] = ()) -> str:
    """Describe a function; its code is its source text if that is certain, so that another Python takes up the store."""
    code = _code(function)
    if code is None:  # not Python's
        return ADDRESS.sub("", repr(function))
    cells = [_value(cell, (*outer, function)) for cell in getattr(function, "__closure__", None) or ()]
    given = [*(getattr(function, "__defaults__", None) or ()), *sorted((getattr(function, "__kwdefaults__", None) or {}).items())]
    defaults = [_described(value, (*outer, function)) for value in given]
    return ADDRESS.sub("", f"{_source(function, code) or _compiled(code)}[{', '.join(cells)}]{defaults or ''}")


def _code(function: Any) -> CodeType | None:
    """Return the code of a function, a method or a callable object."""
    code = getattr(function if inspect.isroutine(function) else type(function).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _source(function: Any, code: CodeType) -> str:
    """Return the source text; "" if its file does not compile to this code, or if it has a second function on the same line.

    Functions that `eval` makes in a program of `python -c` have the name of its file, and a file may change after its import.
    """
    try:
        text = inspect.getsource(function if inspect.isroutine(function) else type(function))
        lines, _ = inspect.findsource(code)
        same = [one for one in _inside(compile("".join(lines), code.co_filename, "exec", dont_inherit=True)) if _alike(one, code)]
    except (OSError, TypeError, ValueError, SyntaxError, RecursionError):
        return ""
    return text if same == [code] else ""


def _alike(one: CodeType, other: CodeType) -> bool:
    return (one.co_name, one.co_firstlineno) == (other.co_name, other.co_firstlineno)


def _inside(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of each function and class in a program, at any depth."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _inside(constant)


def _compiled(code: CodeType) -> str:
    """Describe bytecode with its names and constants, at any depth."""
    constants = [_compiled(value) if isinstance(value, CodeType) else repr(value) for value in code.co_consts]
    return repr((code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_exceptiontable, constants))


def _value(cell: Any, outer: tuple[Any, ...]) -> str:
    try:
        return _described(cell.cell_contents, outer)
    except ValueError:
        return "nothing yet"


def _described(value: Any, outer: tuple[Any, ...]) -> str:
    """Describe a value: NumPy shortens the repr of an array, and the repr of a function has only its name."""
    if isinstance(value, np.ndarray | jax.Array) and value.size > LONG:
        return digest(value)
    function = _unwrapped(value) if callable(value) else None
    if inspect.isfunction(function) and function not in outer:
        return _identity(function, outer)
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
        return repr(value)
