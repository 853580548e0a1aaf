"""Rules about the source itself: what it may import, when, and what it may not contain."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import sinkjax

ROOT = Path(__file__).parents[2]
LIBRARY = sorted((ROOT / "sinkjax").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
SOURCES = ("sinkjax", "tests", "configs", "docs", "scripts", "colab", ".ci")
TEXT = {".py", ".md", ".yaml", ".toml", ".ipynb", ".cff", ".txt", ""}

NEVER = {"torch", "tensorflow", "matplotlib.pyplot", "jax.experimental"}
# The kernels have no other home; a cache of transformers holds tensors of torch, which only its functions import.
EXPERIMENTAL = {"sinkjax/transformer/tiles.py": {"jax.experimental"}, "sinkjax/interop/caches.py": {"torch"}}
LAZY = {"datasets", "matplotlib", "pandas", "scipy", "transformers", "xarray", "zarr"}
FOR_MODELS = {"gguf", "tokenizers"}  # 0.06 and 0.01 s, in modules that only a model needs
EXCUSES = {"pytest.skip", "pytest.xfail", "pytest.importorskip", "pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail"}


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def dotted(node: ast.AST) -> str:
    """`a.b.c` for an attribute chain that starts at a name, else ''."""
    if isinstance(node, ast.Attribute) and (parent := dotted(node.value)):
        return f"{parent}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def imported(node: ast.AST) -> set[str]:
    """The dotted names that one import statement reaches."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return set()


def used(path: Path) -> set[str]:
    """Every dotted name that a module imports or writes out."""
    return set().union(*(imported(node) | {dotted(node)} for node in ast.walk(parse(path))))


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when a module is imported: neither functions' bodies nor what only type checkers read."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and dotted(child.test).endswith("TYPE_CHECKING"):
            continue
        yield child
        yield from at_import(child)


def under(names: set[str], roots: set[str]) -> set[str]:
    return {used for used in names if any(used == root or used.startswith(f"{root}.") for root in roots)}


def offenders(check: Callable[[Path], set[str]], paths: list[Path]) -> dict[str, set[str]]:
    """The files that a check objects to, with the names it objects to."""
    return {name(path): found for path in paths if (found := check(path))}


def test_modules_keep_to_what_the_library_may_use():
    def forbidden(path: Path) -> set[str]:
        allowed = EXPERIMENTAL.get(name(path), set())
        return {found for found in under(used(path), NEVER) if not under({found}, allowed)}

    assert offenders(forbidden, LIBRARY) == {}


def test_modules_import_slow_libraries_only_where_they_need_them():
    found = offenders(lambda path: under(set().union(*map(imported, at_import(parse(path)))), LAZY), LIBRARY)
    # Results of these are datasets of xarray.
    labelled = ("sinkjax/analysis/frame.py", "sinkjax/explain/", "sinkjax/study/", "sinkjax/papers/", "sinkjax/sweeps/")
    assert {path: names for path, names in found.items() if not (path.startswith(labelled) and names == {"xarray"})} == {}


def test_importing_the_library_loads_nothing_slow():
    script = "import sys, sinkjax; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & (LAZY | FOR_MODELS | NEVER)


def test_modules_that_say_so_import_no_jax():
    saying = [path for path in LIBRARY if re.search(r"mports no JAX|o JAX is imported", ast.get_docstring(parse(path)) or "")]
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in saying]
    script = (
        "import importlib, sys\nfor name in sys.argv[1:]:\n importlib.import_module(name)\n assert 'jax' not in sys.modules, name"
    )
    done = subprocess.run([sys.executable, "-c", script, *modules], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "sinkjax.study.registry" in modules
    assert done.returncode == 0, done.stderr


def test_every_folder_of_the_library_is_a_package():
    assert {path.parent for path in LIBRARY} == {path.parent for path in LIBRARY if path.name == "__init__.py"}


def test_test_modules_test_and_never_skip():
    def functions(path: Path) -> set[str]:
        return {node.name for node in ast.walk(parse(path)) if isinstance(node, ast.FunctionDef)}

    assert [name(path) for path in TESTS if not any(each.startswith("test_") for each in functions(path))] == []
    interop = ("clusters", "lm_eval", "torch")  # of libraries that only make interop installs
    optional = ("tests/test_dictionary.py", *(f"tests/interop/test_{name}.py" for name in interop))
    peers = {path: {"pytest.importorskip"} for path in optional}
    assert offenders(lambda path: used(path) & EXCUSES, TESTS) == peers


def test_no_package_registry_and_no_path_of_one_machine_is_written_down():
    # A bracket in each pattern keeps this file from matching itself.
    foreign = re.compile(r"p[y]pi\.org|python[h]osted\.|npm[j]s\.|(?<![\w.~])/(?:work|root|home|Users)/\w")
    files = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]  # a file in a second worktree
    files += [path for folder in SOURCES for path in (ROOT / folder).rglob("*") if path.is_file()]
    hits = {
        name(path): match.group()
        for path in files
        if path.suffix in TEXT and "__pycache__" not in path.parts
        for match in [foreign.search(path.read_text(encoding="utf-8"))]
        if match
    }
    assert not hits


def test_types_are_strict_where_public_names_are():
    """mypy's rules for each module that `sinkjax` gives names from, and for all of studies; `make types` applies them."""
    import tomllib

    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]["overrides"]
    (strict,) = (entry["module"] for entry in overrides if entry.get("disallow_any_generics"))
    given_on = {function.__module__ for name in sinkjax.metrics.__all__ if callable(function := getattr(sinkjax.metrics, name))}
    studies = {"sinkjax.study.*", "sinkjax.papers.*"}
    assert strict == sorted({*sinkjax._HOME.values(), *sinkjax._SUBMODULES.values()} | given_on | studies)


def test_a_class_has_a_name_of_its_own():
    """Only each study has its `Settings`."""
    names = Counter(node.name for path in LIBRARY for node in parse(path).body if isinstance(node, ast.ClassDef))
    assert {name for name, count in names.items() if count > 1} == {"Settings"}
