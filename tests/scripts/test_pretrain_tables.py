"""docs/pretraining.md: a table for every study, the paper's numbers where nothing was run, ours beside them where it was."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from sinkjax.config_files import documents
from sinkjax.studies.registry import choose
from tests.studies.papers.pretrain.logs import curve, log

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return runpy.run_path(str(ROOT / "scripts" / "pretrain_tables.py"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study of which one row goes on and one is finished."""
    out = tmp_path / "out"
    log(out / "decay-0", [*curve(0, [5.0, 4.0], 0.2), *curve(1, [5.0, 4.2], 0.4)])
    log(out / "decay-0.5", curve(0, [5.0, 4.0, 3.0], 0.2)[:2])
    (out / "config.yaml").write_text(documents.write("pretrain", choose("pretrain/gu-weight-decay").config))
    return out


def run(script: dict, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["pretrain_tables.py", *arguments])
    script["main"]()


def test_what_was_run_stands_beside_the_paper_and_stays_there(script, folder, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    run(script, monkeypatch, str(folder), "--out", str(page))
    first = page.read_text()
    assert "| decay 0 | 2 of 2 | 30.0 [-97.1, 157] | 15.2 | 4.10 [2.83, 5.37] | 3.72 |" in first
    assert "| decay 0.1 | not run | - | 18.18 | - | 3.73 |" in first
    assert "Decay 0.5: seed 0 going on at step 50." in " ".join(first.split())
    run(script, monkeypatch, "--out", str(page))
    assert page.read_text() == first  # without a folder a table stays as it is


def test_a_study_that_was_not_run_says_so(script, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    run(script, monkeypatch, "--out", str(page))
    begin = page.read_text().index("<!-- begin pretrain/gu-batch -->")
    assert "Not run." in page.read_text()[begin:].split("| row |")[0]
    assert "| batch / 2 | not run | 17.19 | 3.78 |" in page.read_text()


def test_a_study_that_was_not_run_follows_its_file(script, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    run(script, monkeypatch, "--out", str(page))
    whole = page.read_text()
    page.write_text(whole.replace("| batch / 2 | not run | 17.19 | 3.78 |\n", ""))
    run(script, monkeypatch, "--out", str(page))
    assert page.read_text() == whole


def test_another_size_has_a_table_of_its_own(script, folder):
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(text.replace("size: mini", "size: 60m"))
    assert script["read"](folder)[0] == "pretrain/gu-weight-decay at 60m"


def test_what_is_no_study_is_refused(script, tmp_path, monkeypatch, capsys):
    chosen = choose("trigger/sizes")
    (tmp_path / "config.yaml").write_text(documents.write(chosen.experiment, chosen.config))
    with pytest.raises(SystemExit):
        run(script, monkeypatch, str(tmp_path))
    assert "is no study of pretraining, but of trigger/sizes" in capsys.readouterr().err


def test_the_page_has_a_place_for_every_study(script):
    page = (ROOT / "docs" / "pretraining.md").read_text(encoding="utf-8")
    for name in script["studies"]():
        assert page.count(f"<!-- begin {name} -->") == page.count(f"<!-- end {name} -->") == 1
