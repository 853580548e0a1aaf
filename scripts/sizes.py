"""Count lines of code: without blanks, comments, docstrings and imports.

python scripts/sizes.py
"""

from __future__ import annotations

import ast
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "sinkjax"
OTHER = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}


def code_lines(path: Path) -> int:
    """How many lines of a Python file hold code."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    left_out: set[int] = set()
    for node in ast.walk(tree):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if text or isinstance(node, ast.Import | ast.ImportFrom):
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


def main() -> None:
    """Print the sizes of the package, its folders and each study."""
    sizes = {path: code_lines(path) for path in sorted(PACKAGE.rglob("*.py"))}
    folders = [PACKAGE, *sorted(path for path in PACKAGE.iterdir() if path.is_dir() and any(path.rglob("*.py")))]
    for folder in folders:
        print(f"{sum(size for path, size in sizes.items() if path.is_relative_to(folder)):7,}  {folder.relative_to(ROOT)}")
    print("\nStudies")
    for path, size in sizes.items():
        if path.is_relative_to(PACKAGE / "papers") and path.name != "__init__.py":
            print(f"{size:7,}  {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
