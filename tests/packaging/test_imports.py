"""The layers of the library, by its import graph: no import against their order, and no circle.

Their order is that of the table of folders in CONTRIBUTING.md. Imports inside of functions count too, and so do those that only
type checkers read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def layers() -> list[list[str]]:
    """The folders, and modules outside of folders, of each row of CONTRIBUTING's table."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.split("| folder | content |")[1].split("\n\n")[0]
    return [re.sub(r"/|\.py", "", names).split() for names in re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)]


LAYERS = layers()


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted((ROOT / "sinkjax").rglob("*.py"))}


def imported(path: Path) -> Iterator[str]:
    """The modules of the library that a module imports anywhere."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found = next((name for name in (f"{node.module}.{alias.name}", str(node.module)) if name in MODULES), None)
                if found is not None:
                    yield found


# The package itself imports nothing: it names for type checkers what it gives when asked.
GRAPH = {name: set() if name == "sinkjax" else {*imported(path)} - {name} for name, path in MODULES.items()}


def layer(module: str) -> int:
    """The place of a module's folder, or file, in the table."""
    head = module.split(".")[1]
    return next(place for place, names in enumerate(LAYERS) if head in names)


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """The groups of modules that reach each other (Tarjan's strongly connected components of more than one)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: set[frozenset[str]] = set()

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in number:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], number[other])
        if lowest[module] == number[module]:
            group = stack[stack.index(module) :]
            del stack[-len(group) :]
            if len(group) > 1:
                found.add(frozenset(group))

    for module in graph:
        if module not in number:
            visit(module)
    return found


def test_every_folder_has_one_row_of_at_most_twelve():
    heads = {name.split(".")[1] for name in MODULES if name != "sinkjax"}
    assert sorted(name for names in LAYERS for name in names) == sorted(heads)
    assert len(LAYERS) <= 12


def test_a_module_imports_from_its_own_folder_and_from_rows_above():
    pairs = {(module, other) for module, others in GRAPH.items() for other in others if other != "sinkjax"}
    other_folder = {pair for pair in pairs if pair[0].split(".")[1] not in (pair[1].split(".")[1], "__main__")}
    assert {pair for pair in other_folder if layer(pair[0]) <= layer(pair[1])} == set()


def test_no_modules_import_each_other_in_a_circle():
    assert circles(GRAPH) == set()


def test_the_layers_below_studies_take_nothing_from_the_package_itself():
    """As it gives every public name when asked, an import of it would be one of anything."""
    for name, path in MODULES.items():
        if name == "sinkjax" or layer(name) >= layer("sinkjax.study"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.Import) and any(alias.name == "sinkjax" for alias in node.names)), name
            if isinstance(node, ast.ImportFrom) and node.module == "sinkjax":
                assert all(f"sinkjax.{alias.name}" in MODULES for alias in node.names), name
