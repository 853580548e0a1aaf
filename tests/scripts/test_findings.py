"""The pages of findings are what docs/data/claims.csv says, and short; runs are collected as they state their claims."""

from __future__ import annotations

import csv
import runpy
import sys
from pathlib import Path

import pytest

from sinkjax.analysis.verdicts import COLUMNS

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "findings.py"
MOST_LINES, MOST_WORDS = 150, 2_500
ROW = {
    "study": "kiya/mask", "model": "smollm2-135m", "bos": "none", "text": "wikitext", "claim": "all", "kind": "claim",
    "statement": "The sink moves.",
    "source": "Kiya et al. 2026, Figs. 4a, 8a", "word": "replicates", "unit": "percentage points",
    "d": "41.2", "d_low": "30", "d_high": "52",
    "s": "0.85", "s_low": "0.7", "s_high": "1.01", "n": "15", "controls": "20", "controls_below": "20", "twin_s": "0.012",
    "twin_d": "0.9", "method": "95% t interval, 15 documents", "reason": "",
}  # fmt: skip
CELL = "**replicates** 85% [70, 101]<br>20/20 controls, untrained 1%"


@pytest.fixture(scope="module")
def script() -> dict:
    return runpy.run_path(str(SCRIPT))


def write_run(folder: Path, *rows: dict[str, str], settings: str = "bos: none\ntext: wikitext\n") -> None:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"experiment: kiya/mask\nmodel: smollm2-135m\n{settings}")
    with (folder / "claims.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, [name for name in rows[0] if name not in ("bos", "text")], extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)


def collect(monkeypatch: pytest.MonkeyPatch, docs: Path, *folders: Path) -> list[dict[str, str]]:
    monkeypatch.setattr(sys, "argv", ["findings.py", *map(str, folders), "--docs", str(docs)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    with (docs / "data" / "claims.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    (tmp_path / "docs" / "data").mkdir(parents=True)
    return tmp_path / "docs"


def test_the_pages_are_what_the_table_says_and_one_fits_on_a_page(script):
    rows = script["read"](ROOT / "docs" / script["DATA"])
    written = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert script["page"](rows, ROOT / "docs") == written
    assert script["more"](rows) == (ROOT / "docs" / "findings-more.md").read_text(encoding="utf-8")
    assert len(written.splitlines()) <= MOST_LINES
    assert sum(any(map(str.isalnum, word)) for word in written.split()) <= MOST_WORDS  # the bars of tables are no words


def test_a_cell_has_the_word_the_share_the_controls_and_the_twin(script):
    assert script["cell"](ROW) == CELL
    clustered = ROW | {"method": "95% t interval, 12 clusters of 48 documents", "n": "12"}
    assert "<br>n=12 genres, 20/20 controls" in script["cell"](clustered)
    log = {"s": "", "unit": "log", "d": "0.6931472", "d_low": "0", "d_high": "1.6094379"}
    log = ROW | log | {"controls": "0", "twin_s": "", "twin_d": "0.0953"}
    assert script["cell"](log) == "**replicates** 2× [1, 5]<br>untrained 1.1×"
    untested = ROW | {"word": "untested", "d": "", "reason": "|h| is 2"}
    assert script["cell"](untested) == "**untested**<br>|h| is 2"
    whole = "The whole, 0 [-1, 1], is not shown to be above 0"
    measured = ROW | {"word": "untested", "s": "", "reason": f"{whole}, so nothing can be a share of it."}
    assert script["cell"](measured).endswith(f"<br>{whole}")
    no_spread = {"word": "undecided", "s": "", "d_low": "", "d_high": "", "reason": "There is no interval: no spread."}
    assert script["cell"](ROW | no_spread).endswith("<br>There is no interval: no spread")
    far = ROW | {"s": "12", "s_low": "-3.5", "s_high": "1e9", "controls": "0", "twin_s": ""}
    assert script["cell"](far) == "**replicates** 41 [30, 52] points<br>untrained 0.9 points"
    assert script["cell"](ROW | {"n": "7"}).startswith("*replicates* 85%")


def test_what_no_paper_states_stands_on_the_other_page(script):
    own = ROW | {"claim": "own", "statement": "It stays.", "source": "ours, on Kiya et al. 2026, conclusion"}
    first, second = script["page"]([ROW, own]), script["more"]([ROW, own])
    assert ("The sink moves." in first, "The sink moves." in second) == (True, False)
    assert ("It stays." in first, "It stays." in second) == (False, True)


def test_a_row_names_the_figure_and_its_pipes_do_not_end_its_cells(script):
    other = {script["GEMMA"]: "Gemma", script["SMOL"]: "SmolLM2"}
    gemma = {"model": "gemma3-270m", "bos": "model", "word": "differs"}
    head, _, line = script["table"]([ROW | {"statement": "|h| grows."}, ROW | gemma], other).splitlines()
    assert head == "| statement | Gemma | SmolLM2 |"
    assert line.startswith("| \\|h\\| grows. (Figs. 4a, 8a; `kiya/mask`) | **differs** 85%")
    assert line.endswith(f"| {CELL} |")


def test_each_condition_has_a_column(script):
    behind = ROW | {"bos": "0", "word": "weaker"}
    first, second = script["page"]([ROW, behind]), script["more"]([ROW, behind])
    assert f"{CELL} |\n" in first
    assert "**weaker** 85%" not in first
    assert "| SmolLM2 behind `<\\|endoftext\\|>` |" in second
    assert "**weaker** 85%" in second


def test_prose_has_the_numbers_of_its_claims_or_is_left_out(script):
    text = "The next token gains {kiya/mask.all@smollm}."
    assert script["looked_up"](text, [ROW]) == "The next token gains 85% [70, 101]."
    assert script["looked_up"](text, [ROW | {"claim": "other"}]) == ""
    effect = "{kiya/mask.all@smollm=replicates:effect}, untrained {kiya/mask.all@smollm:untrained}"
    assert script["looked_up"](effect, [ROW]) == "41 [30, 52] points, untrained 0.9 points"
    assert script["looked_up"]("{kiya/mask.all@smollm:opposite}", [ROW]) == "-41 [-52, -30] points"
    assert (
        script["looked_up"]("{kiya/mask.all@smollm:whole}% of {kiya/mask.all@smollm:n}", [ROW | {"whole": "73.2"}]) == "73% of 15"
    )
    assert script["rounded"](-1.4e-15) == "0"  # and no sign
    with pytest.raises(SystemExit, match="'weaker'"):
        script["looked_up"](effect, [ROW | {"word": "weaker"}])


def test_prose_has_numbers_of_a_runs_summary_or_is_left_out(script, docs):
    text = "Loss {kiya/mask[all layers][loss]@smollm}, by {kiya/mask[all layers][loss]@smollm:change}."
    assert script["looked_up"](text, [], docs) == ""
    folder = docs / "data/protocol/kiya/mask/smollm2-135m-none-wikitext"
    folder.mkdir(parents=True)
    rows = "edit,measure,mean,effect_mean,effect_low,effect_high\nno edit,loss,3,0,0,0\nall layers,loss,4.25,1.25,1,1.5\n"
    (folder / "summary.csv").write_text(rows)
    assert script["looked_up"](text, [], docs) == "Loss 4.2, by 1.2 [1, 1.5]."
    assert script["looked_up"](text, [], docs, ends=False) == "Loss 4.2, by 1.2."
    assert script["looked_up"]("{kiya/mask[all layers][loss]@smollm:opposite}", [], docs) == "-4.2"


def test_a_remark_follows_a_statement_about_the_two_models_only(script):
    row = ROW | {"study": "li/amplify", "claim": "rises", "source": "Li et al. 2026, Fig. 5"}
    assert "The sink moves. (Fig. 5; `li/amplify`) |" in script["table"]([row], {script["SMOL"]: "SmolLM2"})
    assert "The sink moves. (Fig. 5; `li/amplify`) In SmolLM2 it falls beyond a factor of 20. |" in script["table"](
        [row], script["MAIN"]
    )


def test_a_statement_that_neither_model_tests_stands_on_the_other_page(script):
    cannot = ROW | {"claim": "cannot", "statement": "It cannot.", "word": "untested", "d": "", "reason": "no gate"}
    assert "It cannot." not in script["page"]([ROW, cannot])
    assert "It cannot." in script["more"]([ROW, cannot])
    other = cannot | {"model": "gemma3-270m", "bos": "model", "word": "differs", "d": "1"}
    also = [row | {"claim": "neither", "statement": "Nor can it."} for row in (cannot, other)]
    text = script["page"]([ROW, cannot, other, *also])
    assert "It cannot." in text
    assert text.count("no gate") == 1
    assert "<br>as above |" in text


def test_a_run_takes_the_place_of_the_last_one_in_its_condition(script, docs, tmp_path, monkeypatch):
    (docs / "data" / "claims.csv").write_text(script["as_csv"]([ROW | {"s": "0.1"}, ROW | {"claim": "gone"}]))
    write_run(tmp_path / "a", ROW | {"s": "0.86"})
    (row,) = collect(monkeypatch, docs, tmp_path / "a")
    assert (row["claim"], row["s"], row["text"]) == ("all", "0.86", "wikitext")
    assert [*row] == [*COLUMNS[:2], "bos", "text", *COLUMNS[2:]]
    write_run(tmp_path / "b", ROW, settings="bos: '0'\ntext: wikitext\n")
    assert [row["bos"] for row in collect(monkeypatch, docs, tmp_path / "b")] == ["0", "none"]
    assert "**replicates** 86%" in (docs / "findings.md").read_text()


def test_a_study_with_other_rules_is_left_out(docs, tmp_path, monkeypatch):
    write_run(tmp_path / "a", {"study": "trigger/bound", "claim": "x", "verdict": "supported"})
    assert collect(monkeypatch, docs, tmp_path / "a") == []
