"""docs/findings.md is what docs/data/claims.csv says, and short; runs are collected as they state their claims."""

from __future__ import annotations

import csv
import runpy
import sys
from pathlib import Path

import pytest

from sinkjax.analysis.verdicts import COLUMNS

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "findings.py"
MOST_LINES, MOST_WORDS = 150, 6_000
ROW = {
    "study": "kiya/mask", "model": "smollm2-135m", "claim": "all", "kind": "claim", "statement": "The sink moves.",
    "source": "Kiya et al. 2026, Figs. 4a, 8a", "word": "replicates", "unit": "percentage points",
    "d": "41.2", "d_low": "30", "d_high": "52",
    "s": "0.85", "s_low": "0.7", "s_high": "1.01", "n": "12", "controls": "20", "controls_below": "20", "twin_s": "0.012",
    "twin_d": "0.9", "method": "95% t interval, 12 clusters of 48 documents", "reason": "",
}  # fmt: skip


@pytest.fixture(scope="module")
def script() -> dict:
    return runpy.run_path(str(SCRIPT))


def write_run(folder: Path, *rows: dict[str, str], experiment: str = "kiya/mask") -> None:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"experiment: {experiment}\nmodel: smollm2-135m\n")
    with (folder / "claims.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)


def collect(monkeypatch: pytest.MonkeyPatch, docs: Path, *folders: Path) -> list[dict[str, str]]:
    monkeypatch.setattr(sys, "argv", ["findings.py", *map(str, folders), "--docs", str(docs)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    with (docs / "data" / "claims.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_page_is_what_the_table_says_and_fits_on_a_page(script):
    docs = ROOT / "docs"
    written = (docs / "findings.md").read_text(encoding="utf-8")
    assert script["page"](script["read"](docs / script["DATA"]), docs) == written
    assert len(written.splitlines()) <= MOST_LINES
    assert len(written.split()) <= MOST_WORDS


def test_a_cell_has_the_word_the_share_the_controls_and_the_twin(script):
    assert script["cell"](ROW) == "**replicates** 85% [70, 101]<br>12 genres, 20 of 20 controls, untrained 1%"
    log = {"s": "", "unit": "log", "d": "0.6931472", "d_low": "0", "d_high": "1.6094379"}
    log = ROW | log | {"controls": "0", "twin_s": "", "twin_d": "0.0953"}
    assert script["cell"](log) == "**replicates** 2 [1, 5] times<br>12 genres, untrained 1.1 times"
    untested = ROW | {"word": "untested", "d": "", "reason": "|h| is 2"}
    assert script["cell"](untested) == "**untested**<br>|h| is 2"
    whole = "The whole, 0 [-1, 1], is not shown to be above 0"
    measured = ROW | {"word": "untested", "s": "", "reason": f"{whole}, so nothing can be a share of it."}
    assert script["cell"](measured).endswith(f"<br>{whole}")
    assert "<br>There is no interval: no spread." in script["cell"](
        ROW | {"word": "undecided", "s": "", "d_low": "", "d_high": "", "reason": "There is no interval: no spread."}
    )
    far = ROW | {"s": "12", "s_low": "-3.5", "s_high": "1e9", "method": "95% t interval, 8 seeds", "controls": "0", "twin_s": ""}
    points = "41 [30, 52] percentage points"
    assert script["cell"](far) == f"**replicates** {points}<br>12 seeds, untrained 0.9 percentage points"
    near = far | {"whole": "0.04", "twin_s": "0.2"}
    assert script["cell"](near).startswith(f"**replicates** {points} (whole: 0.04 points)<br>")


def test_what_no_paper_states_stands_in_a_table_of_its_own(script):
    own = ROW | {"claim": "own", "statement": "It stays.", "source": "ours, on Kiya et al. 2026, conclusion"}
    papers, extensions = script["page"]([ROW, own]).split("## Beyond the papers")
    assert ("The sink moves." in papers, "The sink moves." in extensions) == (True, False)
    assert ("It stays." in papers, "It stays." in extensions) == (False, True)
    assert "1 replicates" in papers


def test_a_row_names_the_figure_and_its_pipes_do_not_end_its_cells(script):
    table = script["table"](
        [ROW | {"statement": "|h| grows."}, ROW | {"model": "other", "word": "differs"}], ["smollm2-135m", "other"]
    )
    *_, line = table.splitlines()
    assert line.startswith("| \\|h\\| grows. (Figs. 4a, 8a; `kiya/mask`) | **replicates** 85%")
    assert "**differs**" in line


def test_the_last_run_of_a_study_on_a_model_takes_the_place_of_the_others(tmp_path, monkeypatch):
    docs = tmp_path / "docs"
    (docs / "data").mkdir(parents=True)
    write_run(tmp_path / "a", ROW, ROW | {"claim": "gone"})
    assert [row["claim"] for row in collect(monkeypatch, docs, tmp_path / "a")] == ["all", "gone"]
    write_run(tmp_path / "b", ROW | {"word": "weaker"})
    (row,) = collect(monkeypatch, docs, tmp_path / "b")
    assert (row["claim"], row["word"]) == ("all", "weaker")
    assert [*row] == list(COLUMNS)
    assert "**weaker** 85%" in (docs / "findings.md").read_text()


def test_a_study_with_other_rules_is_left_out(tmp_path, monkeypatch):
    docs = tmp_path / "docs"
    (docs / "data").mkdir(parents=True)
    write_run(tmp_path / "a", {"study": "trigger/bound", "claim": "x", "verdict": "supported"}, experiment="trigger/bound")
    assert collect(monkeypatch, docs, tmp_path / "a") == []
