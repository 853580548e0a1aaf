"""What `help` says of a public name: Args, Returns and Raises, as far as the function takes, gives and raises something."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import sinkjax

LIBRARY = Path(sinkjax.__file__).parent
NESTED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


def given_by(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The public names of a module: those of `__all__`, else those that it defines; of a module of re-exports, all."""
    defined = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    for name in getattr(module, "__all__", defined or vars(module)):
        if not name.startswith("_"):
            yield name, getattr(module, name)


def public() -> dict[str, Any]:
    """Functions and classes by the names under which a user finds them."""
    found: dict[str, Any] = {}
    for name, value in given_by(sinkjax):
        entries = given_by(value) if inspect.ismodule(value) else [("", value)]
        found |= {".".join(filter(None, (name, inner))): each for inner, each in entries}
    kept = {name for name, value in found.items() if inspect.isclass(value) or inspect.isfunction(inspect.unwrap(value))}
    return {name: found[name] for name in sorted(kept)}


PUBLIC = public()
FUNCTIONS = {name: inspect.unwrap(value) for name, value in PUBLIC.items() if not inspect.isclass(value)}


def sections(value: Callable[..., Any]) -> dict[str, str]:
    """The sections of a docstring, name -> text."""
    parts = re.split(r"^(Args|Returns|Raises):\n", inspect.getdoc(value) or "", flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def described(value: Callable[..., Any]) -> set[str]:
    """The arguments that stand before a colon in "Args"."""
    entries = re.findall(r"^    ([*\w][\w*, ]*):", sections(value).get("Args", ""), re.MULTILINE)
    return {name.strip().lstrip("*") for entry in entries for name in entry.split(",")}


def raises(value: FunctionType) -> bool:
    """Whether a function's own body raises; the bodies of functions inside of it do not count."""
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(value))).body

    def own(node: ast.AST) -> Iterator[ast.AST]:
        yield node
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, NESTED):
                yield from own(child)

    return any(isinstance(node, ast.Raise) for node in own(function))


def complaint(name: str) -> str:
    """The sections of a public name's docstring that are missing or empty, or that describe other arguments than it takes."""
    text = PUBLIC[name].__doc__ or ""
    if not text.strip() or text.startswith(f"{PUBLIC[name].__name__}("):  # the signature, which a dataclass without one gets
        return "no docstring"
    if name not in FUNCTIONS:
        return ""
    signature, found = inspect.signature(FUNCTIONS[name]), sections(PUBLIC[name])
    wanted = {"Args"} if len(signature.parameters) > 1 else set()
    wanted |= {"Returns"} if signature.return_annotation not in (None, "None") else set()
    wanted |= {"Raises"} if raises(FUNCTIONS[name]) else set()
    missing = wanted - {section for section, text in found.items() if text.strip()}
    other = described(PUBLIC[name]) ^ {*signature.parameters} if "Args" in found else set()
    return ", ".join(sorted([*missing, *other]))


def test_a_public_name_describes_what_it_takes_gives_and_raises():
    assert {name: found for name in PUBLIC if (found := complaint(name))} == {}
