"""docs/pretraining.md: the table of the packaged models is what their findings say."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_is_what_the_findings_say(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    script = importlib.import_module("packaged_table")
    for name in ("findings.json", "pretraining.md"):
        shutil.copy(ROOT / "docs" / name, tmp_path)
    monkeypatch.setattr(script, "DOCS", tmp_path)
    script.main()
    assert (tmp_path / "pretraining.md").read_text("utf-8") == (ROOT / "docs" / "pretraining.md").read_text("utf-8")
