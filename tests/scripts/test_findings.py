"""The pages of findings are what docs/results/data/claims.csv says, and short; runs are collected as they state their claims."""

from __future__ import annotations

import csv
import lzma
from functools import partial
from pathlib import Path

import pytest

from sinkjax.analysis.verdicts import COLUMNS

ROOT = Path(__file__).parents[2]
SCRIPT = "findings.py"
MOST_LINES, MOST_WORDS = 150, 2_500
OTHER = {"claim": "forms", "source": "Kiya et al. 2026, Fig. 9"}  # a statement that the page of the four papers leaves out
ROW = {
    "study": "kiya/mask", "model": "smollm2-135m", "bos": "none", "text": "wikitext", "claim": "all", "kind": "claim",
    "statement": "The sink moves.",
    "source": "Kiya et al. 2026, Figs. 4a, 8a", "word": "replicates", "unit": "percentage points",
    "d": "41.2", "d_low": "30", "d_high": "52",
    "s": "0.85", "s_low": "0.7", "s_high": "1.01", "n": "15", "controls": "20", "controls_below": "20", "twin_s": "0.012",
    "twin_d": "0.9", "whole": "48.5", "stays": "", "contrast": "effect", "method": "95% t interval, 15 documents", "reason": "",
}  # fmt: skip
CELL = "85% [70, 101] **replicates**"
BESIDE = "n=15, 20/20 controls, untrained 1%"


def write_run(folder: Path, *rows: dict[str, str], settings: str = "bos: none\ntext: wikitext\n") -> None:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"experiment: kiya/mask\nmodel: smollm2-135m\n{settings}")
    with (folder / "claims.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, [name for name in rows[0] if name not in ("bos", "text")], extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)


def collect(script, docs: Path, *folders: Path) -> list[dict[str, str]]:
    """The table after the claims of runs have joined it."""
    kept = docs / "results/data" / "claims.csv"
    rows = script["read"](kept) if kept.exists() else []
    kept.write_text(script["as_csv"](script["collect"](rows, folders, docs)))
    return script["read"](kept)


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    (tmp_path / "docs" / "results/data").mkdir(parents=True)
    return tmp_path / "docs"


def test_the_pages_are_what_the_table_says_and_one_fits_on_a_page(script):
    rows = script["read"](ROOT / "docs" / script["CLAIMS"])
    written = (ROOT / "docs" / "results" / "findings.md").read_text(encoding="utf-8")
    page, named = script["page"], script["Named"]
    assert page("findings.md", named(**script["main_tables"](rows))) == written
    more = page("findings-more.md", named(**script["other_tables"](rows)))
    assert more == (ROOT / "docs" / "results" / "findings-more.md").read_text(encoding="utf-8")
    for text in (written, more):
        assert len(text.splitlines()) <= MOST_LINES
        assert sum(any(map(str.isalnum, word)) for word in text.split()) <= MOST_WORDS  # the bars of tables are no words
    kept = script["read"](ROOT / "docs" / script["STATEMENTS"])
    assert kept == [{name: line[name] for name in script["STATED"]} for line in script["statements"](rows)]


def test_a_statement_has_its_number_the_controls_and_the_twin(script):
    evidence = script["evidence"]
    assert evidence(ROW) == ("85% [70, 101]", BESIDE)
    clustered = ROW | {"method": "95% t interval, 12 clusters of 48 documents", "n": "12"}
    assert evidence(clustered)[1].startswith("n=12, 20/20 controls")  # of what, the method says: genres, articles or positions
    log = {"s": "", "unit": "log", "d": "0.6931472", "d_low": "0", "d_high": "1.6094379"}
    log = ROW | log | {"controls": "0", "twin_s": "", "twin_d": "0.0953"}
    assert evidence(log) == ("2× [1, 5]", "n=15, untrained 1.1×")
    assert evidence(ROW | {"word": "not applicable", "d": "", "reason": "|h| is 2"}) == ("", "|h| is 2")
    whole = "The whole, 0 [-1, 1], is not shown to be above 0"
    measured = ROW | {"word": "nothing to undo", "s": "", "reason": f"{whole}, so nothing can be a share of it."}
    assert evidence(measured) == ("", whole)
    no_spread = {"word": "undecided", "s": "", "d_low": "", "d_high": "", "reason": "There is no interval: no spread."}
    assert evidence(ROW | no_spread)[1].endswith("There is no interval: no spread")
    far = ROW | {"s": "12", "s_low": "-3.5", "s_high": "1e9", "controls": "0", "twin_s": ""}
    assert evidence(far) == ("41 [30, 52] points", "n=15, untrained 0.9 points")
    assert script["short"](ROW | {"n": "7"}) == "85% [70, 101] *replicates*"


def test_a_statement_is_a_papers_or_ours_and_its_words_are_counted(script):
    own = ROW | {"claim": "own", "statement": "It stays.", "source": "ours, on Kiya et al. 2026, conclusion"}
    other = ROW | {"study": "background/massive", "claim": "zero", "word": "replicates (untrained too)"}
    assert "It stays." not in script["main_tables"]([ROW, own])["statements"]
    assert [line["of"] for line in script["statements"]([ROW, own, other])] == ["Kiya et al. 2026", "ours", "other papers"]
    words = script["other_tables"]([ROW, ROW | {"claim": "all-2"}, own, other])["words"].splitlines()
    assert "| Kiya et al. 2026 | 2 replicates | - | - |" in words
    assert "| other papers | 1 replicates | - | - |" in words


def test_the_short_table_has_chosen_statements_with_the_number_and_the_word_of_the_present_rule(script):
    weaker = ROW | {"word": "weaker", "s": "0.3", "s_low": "0.2", "s_high": "0.4", "paper": "all of it"}
    gemma = ROW | {"model": "gemma3-270m", "bos": "model", "word": "differs", "s": "0.02", "s_low": "-0.01", "s_high": "0.05"}
    text = script["main_tables"]([weaker, gemma, ROW | OTHER | {"statement": "It forms."}])["statements"]
    assert text.endswith("| 30% [20, 40] **replicates** | 2% [-1, 5] **absent** | 15 |")
    assert "all of it" not in text
    assert "It forms." not in text
    assert weaker["word"] == "weaker"  # the table itself keeps the word of then


def test_a_row_names_the_figure_and_its_pipes_do_not_end_its_cells(script):
    other = {script["GEMMA"]: "Gemma", script["SMOL"]: "SmolLM2"}
    gemma = {"claim": "grows", "model": "gemma3-270m", "bos": "model", "word": "absent"}
    head, _, line = script["table"]([ROW | {"claim": "grows", "statement": "|h| grows."}, ROW | gemma], other).splitlines()
    assert head == "| statement | Gemma | SmolLM2 | n |"
    assert line.startswith("| \\|h\\| grows. (Figs. 4a, 8a; `kiya/mask`) | 85% [70, 101] **absent**")
    assert line.endswith(f"| {CELL} | 15 |")
    few = script["table"](
        [ROW | {"claim": "grows", "n": "6"}, ROW | gemma, ROW | gemma | {"claim": "x", "word": "not applicable", "d": ""}], other
    )
    assert [line.rpartition("| ")[2] for line in few.splitlines()[2:]] == ["15, 6 |", "- |"]


def test_each_condition_has_a_line(script):
    behind = ROW | {"bos": "0", "s": "0.02", "s_low": "0.01", "s_high": "0.03"}
    first, second = script["statements"]([ROW, behind])
    assert (first["bos"], first["word"], first["number"]) == ("none", "replicates", "85% [70, 101]")
    assert (second["bos"], second["word"], second["number"]) == ("0", "absent", "2% [1, 3]")


def named(script, docs: Path, *rows: dict[str, str], **options):
    """The numbers of a folder with these claims."""
    (docs / "results/data" / "claims.csv").write_text(script["as_csv"](rows))
    return script["Named"](docs, **options)


def test_prose_has_the_numbers_of_its_claims(script, docs):
    look = named(script, docs, ROW | {"whole": "73.2"})
    filled = partial(script["filled"], look=look)
    assert filled("The next token gains {kiya/mask.all@smollm}.") == "The next token gains 85% [70, 101]."
    effect = "{kiya/mask.all@smollm=replicates:effect}, untrained {kiya/mask.all@smollm:untrained}"
    assert filled(effect) == "41 [30, 52] points, untrained 0.9 points"
    assert filled("By {kiya/mask.all@smollm:opposite}") == "By -41 [-52, -30] points"
    assert filled("{kiya/mask.all@smollm:whole}% of {kiya/mask.all@smollm:n}") == "73% of 15"
    assert script["effect"]("", "-1.4e-15") == "0"  # and no sign
    with pytest.raises(SystemExit, match=r"kiya/mask\.other"):
        filled("{kiya/mask.other@smollm}")
    with pytest.raises(SystemExit, match="'replicates'"):
        filled("{kiya/mask.all@smollm=absent}")


def test_prose_has_numbers_of_a_runs_summary(script, docs):
    text = "Loss {kiya/mask[all layers][loss]@smollm}, by {kiya/mask[all layers][loss]@smollm:change}."
    look = named(script, docs)
    with pytest.raises(SystemExit, match=r"kiya/mask\[all layers\]\[loss\]"):
        script["filled"](text, look)
    (docs / "results/data/protocol").mkdir()
    lines = ["study,model,bos,text,edit,measure,mean,effect_mean,effect_low,effect_high"]
    run = "kiya/mask,smollm2-135m,none,wikitext"
    lines += [f"{run},no edit,loss,3,0,0,0", f"{run},all layers,loss,4.25,1.25,1,1.5"]
    lines += ["kiya/mask,gemma3-270m,model,wikitext,all layers,loss,5,1,1,1"]
    (docs / "results/data/protocol/summary.csv.xz").write_bytes(lzma.compress("\n".join(lines).encode()))
    assert script["filled"](text, look) == "Loss 4.2, by 1.2 [1, 1.5]."
    assert script["filled"](text, named(script, docs, ends=False)) == "Loss 4.2, by 1.2."
    assert look("kiya/mask[all layers][loss]@smollm", "opposite") == "-4.2"


def test_a_remark_follows_a_statement_about_the_two_models_only(script):
    row = ROW | {"study": "li/amplify", "claim": "rises", "source": "Li et al. 2026, Fig. 5"}
    remark = "In SmolLM2 it falls beyond a factor of 20."
    assert [line["remark"] for line in script["statements"]([row, row | {"text": "packaged"}])] == [remark, ""]
    assert f"The sink moves. (Fig. 5; `li/amplify`) {remark} |" in script["table"]([row], script["MAIN"])


def test_a_run_takes_the_place_of_the_last_one_in_its_condition(script, docs, tmp_path):
    (docs / "results/data" / "claims.csv").write_text(script["as_csv"]([ROW | {"s": "0.1"}, ROW | {"claim": "gone"}]))
    write_run(tmp_path / "a", ROW | {"s": "0.86"})
    (row,) = collect(script, docs, tmp_path / "a")
    assert (row["claim"], row["s"], row["text"]) == ("all", "0.86", "wikitext")
    assert [*row] == [*COLUMNS[:2], "bos", "text", *COLUMNS[2:]]
    write_run(tmp_path / "b", ROW, settings="bos: '0'\ntext: wikitext\n")
    rows = collect(script, docs, tmp_path / "b")
    assert [row["bos"] for row in rows] == ["0", "none"]
    assert [line["number"].partition(" ")[0] for line in script["statements"](rows)] == ["85%", "86%"]


def test_a_study_with_other_rules_is_left_out(script, docs, tmp_path):
    write_run(tmp_path / "a", {"study": "trigger/bound", "claim": "x", "verdict": "supported"})
    assert collect(script, docs, tmp_path / "a") == []
