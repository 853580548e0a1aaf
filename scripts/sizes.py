"""Count lines of code and statements of the syntax tree (without blanks, comments, docstrings and imports), and modules.

python scripts/sizes.py
"""

from __future__ import annotations

import ast
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.packaging.test_imports import GRAPH  # noqa: E402

PACKAGE = ROOT / "sinkjax"
OTHER = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}


def left_out_node(node: ast.AST) -> bool:
    """Whether a node is a docstring or an import."""
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return text or isinstance(node, ast.Import | ast.ImportFrom)


def statements(path: Path) -> int:
    """How many statements a Python file has: several of them on one line count as several."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return sum(isinstance(node, ast.stmt) and not left_out_node(node) for node in nodes)


def code_lines(path: Path) -> int:
    """How many lines of a Python file hold code."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if left_out_node(node):
            assert isinstance(node, ast.stmt)
            left_out |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    with path.open("rb") as file:
        held = {
            line
            for token in tokenize.tokenize(file.readline)
            if token.type not in OTHER
            for line in range(token.start[0], token.end[0] + 1)
        }
    return len(held - left_out)


def modules() -> str:
    """Count the modules, by kind, and those that one other module imports."""
    folders = {name for name in GRAPH if (ROOT / name.replace(".", "/")).is_dir()}
    papers, families, cli = (
        {name for name in GRAPH if name.startswith(f"sinkjax.{folder}.")} - folders
        for folder in ("papers", "checkpoints.families", "cli")
    )
    importers = Counter(other for others in GRAPH.values() for other in others)
    single = {name for name, count in importers.items() if count == 1} - folders
    return (
        f"{len(GRAPH)} modules: {len(papers)} of papers, {len(families)} of families, {len(cli)} of commands, {len(folders)} "
        f"__init__.py and {len({*GRAPH} - papers - families - cli - folders)} others\n"
        f"{len(single)} modules with one importer: {len(single & papers)} of papers and {len(single - papers)} others"
    )


def main() -> None:
    """Print the sizes of the package, its folders, the tests, the scripts and each study."""
    others = [ROOT / "tests", ROOT / "scripts"]
    sizes = {path: code_lines(path) for folder in (PACKAGE, *others) for path in sorted(folder.rglob("*.py"))}
    folders = [PACKAGE, *sorted(path for path in PACKAGE.iterdir() if path.is_dir() and any(path.rglob("*.py")))]
    print("  lines  statements")
    for folder in (*folders, *others):
        within = [path for path in sizes if path.is_relative_to(folder)]
        print(f"{sum(map(sizes.__getitem__, within)):7,}  {sum(map(statements, within)):10,}  {folder.relative_to(ROOT)}")
    print(f"\n{modules()}")
    print("\nStudies")
    for path, size in sizes.items():
        if path.is_relative_to(PACKAGE / "papers") and path.name != "__init__.py":
            print(f"{size:7,}  {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
