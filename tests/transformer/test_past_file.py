"""The snippet of docs/how-to/sink-prefix.md for transformers gives, from the file, what the prefix's tokens in front give."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_snippets import ROOT, SNIPPET

PAGE = ROOT / "docs" / "how-to" / "sink-prefix.md"


@pytest.mark.notebook
def test_transformers_generates_from_the_file_what_it_does_with_the_tokens(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    *_, llama, use = SNIPPET.findall(PAGE.read_text(encoding="utf-8"))
    assert "sinkjax" not in use
    names: dict = {}
    exec("import sinkjax\n" + llama, names)
    exec(use, names)
    shown = capsys.readouterr().out
    want = names["llama"].generate(names["ids"], max_new_tokens=8, do_sample=False)[0, 1:]
    assert shown.strip() == str(want)
    assert len(set(want.tolist())) > 3  # a sequence that a wrong cache would change
