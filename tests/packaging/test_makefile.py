"""The tests that `make fast` names are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_what_make_fast_runs_exists():
    (named,) = re.findall(r"^FAST\s*:=\s*(.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert [path for path in named.split() if not (ROOT / path).exists()] == []
