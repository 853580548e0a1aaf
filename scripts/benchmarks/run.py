"""Run one benchmark: measure, and write its section of docs/results/benchmarks-full.md.

python scripts/benchmarks/run.py                     list the benchmarks
python scripts/benchmarks/run.py sweep               run one
python scripts/benchmarks/run.py sweep --quick       a smoke run, which prints the section and writes nothing
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path


def main() -> int:
    """List the benchmarks, or run the named one with the other arguments."""
    files = {file.stem.removeprefix("bench_"): file for file in sorted(Path(__file__).parent.glob("bench_*.py"))}
    name, *others = sys.argv[1:] or [""]
    if name in files:
        return subprocess.run([sys.executable, str(files[name]), *others], check=False).returncode
    for each, file in files.items():
        print(f"{each:12} {(ast.get_docstring(ast.parse(file.read_text())) or '').splitlines()[0]}")
    return 0 if name in ("", "-h", "--help") else f"there is no benchmark {name!r}" and 2


if __name__ == "__main__":
    sys.exit(main())
