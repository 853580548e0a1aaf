"""Put each fault of mutations.yaml into a copy of the package, and say whether its test finds it.

python -m tests.mutations [NAME ...]    # all of them, or those whose names contain one of these words
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "mutations.yaml"
COPIED = ("sinkjax", "tests", "pyproject.toml")  # the rest of the checkout is linked
FAILED = 1  # pytest's exit code if tests failed; others are errors of a run


@dataclass(frozen=True)
class Mutation:
    """A fault. file: within sinkjax/. old, new: the text that is replaced. test: a file or folder of tests that finds it."""

    name: str
    file: str
    old: str
    new: str
    test: str


def mutations() -> list[Mutation]:
    """Read the table."""
    return [Mutation(**entry) for entry in yaml.safe_load(TABLE.read_text(encoding="utf-8"))]


def tried(mutation: Mutation) -> str:
    """Run the test of a fault: "killed", "survived", or pytest's exit code and the end of its output."""
    with tempfile.TemporaryDirectory() as folder:
        for path in ROOT.iterdir():
            link = Path(folder) / path.name
            if path.name not in COPIED:
                link.symlink_to(path)
            elif path.is_dir():
                shutil.copytree(path, link, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(path, link)
        file = Path(folder) / "sinkjax" / mutation.file
        file.write_text(file.read_text(encoding="utf-8").replace(mutation.old, mutation.new), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", mutation.test]
        done = subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": folder}, capture_output=True, text=True)
    return {FAILED: "killed", 0: "survived"}.get(done.returncode, f"pytest ended with {done.returncode}: {done.stdout[-500:]}")


def main(words: list[str]) -> int:
    """Try all faults, or those that are named; return the number of those that no test finds."""
    chosen = [each for each in mutations() if not words or any(word in each.name for word in words)]
    lived = 0
    for mutation in chosen:
        begun = time.monotonic()
        outcome = tried(mutation)
        lived += outcome != "killed"
        print(f"{mutation.name} ({mutation.test}, {time.monotonic() - begun:.0f} s): {outcome}", flush=True)
    print(f"{len(chosen) - lived} of {len(chosen)} killed")
    return lived


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
