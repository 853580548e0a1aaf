"""How the suite is run: the tests that `make fast` names are there, and those of one file share a worker."""

import re
from pathlib import Path

from sinkjax.checkpoints.presets import PRESETS

ROOT = Path(__file__).parents[2]


def test_what_make_fast_runs_exists():
    (named,) = re.findall(r"^FAST\s*:=\s*(.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert [path for path in named.split() if not (ROOT / path).exists()] == []


def test_make_floors_leaves_out_the_files_that_need_torch():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    alone, torch = (re.findall(rf"^{name}\s*:=\s*(.+)$", makefile, re.MULTILINE)[0].split() for name in ("ALONE", "TORCH"))
    files = [file for path in alone for file in ([ROOT / path] if path.endswith(".py") else (ROOT / path).rglob("*.py"))]
    need = [file for file in files if re.search(r"^(import|from) torch\b", file.read_text(encoding="utf-8"), re.MULTILINE)]
    assert sorted(str(file.relative_to(ROOT)) for file in need) == torch


def test_the_models_that_make_installs_are_the_presets():
    named = re.findall(r"^(?:MODEL|GEMMA3)\s*:=\s*(.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert named == [preset.requirement for preset in PRESETS.values()]


def test_tests_of_one_file_share_a_worker(request):
    """xdist names the group behind an "@"; where it cannot, it splits files over workers and says nothing."""
    grouped = getattr(request.config.option, "loadgroup", False)  # set in xdist's workers alone
    assert request.node.nodeid.endswith(f"@{request.node.path}") == grouped
