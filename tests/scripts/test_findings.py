"""docs/findings.md: a row a claim, a column a model, and no claim or refusal lost."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from sinkjax.analysis.claims import Judgement
from sinkjax.report.section import Section
from sinkjax.studies import run
from tests.studies.tiny import study, write_both

SCRIPT = Path(__file__).parents[2] / "scripts" / "findings.py"


@pytest.fixture(scope="module")
def script() -> dict:
    return runpy.run_path(str(SCRIPT))


def section(*claims: Judgement) -> Section:
    return Section("kiya/mask", "A title", "A claim.", ("Found nothing to judge.",), (), (), (), claims=claims)


MOVES = Judgement("The sink moves.", "supported", "in 9 of 10 |prompts|", paper="95 %")
STAYS = Judgement("The activation stays.", "inconclusive", "0.1 [0.0, 0.2]")


SPLITS = {"trained": "confirm", "random": "confirm", "gateless": "confirm"}


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("|")]


def test_a_row_is_a_claim_and_a_column_a_model(script):
    columns = {"trained": {"kiya/mask": section(MOVES, STAYS)}, "random": {"kiya/mask": section(STAYS)}}
    text = script["page"](columns, SPLITS, [Path("results/all")])
    overview, head, _, *claims = rows(text.split("## Studies")[1])[2:]
    assert overview == ["[kiya/mask](#kiyamask)", "1 supported, 1 inconclusive", "1 inconclusive"]
    assert head == ["claim", "the paper's number", "trained", "random"]
    assert claims == [
        ["The sink moves.", "95 %", "**supported**: Rule: in 9 of 10 \\|prompts\\|.", "-"],
        ["The activation stays.", "", *["**inconclusive**: Rule: 0.1 [0.0, 0.2]."] * 2],
    ]
    assert "## kiya/mask" in text
    assert "findings.py results/all" in text


@pytest.mark.parametrize(
    ("verdicts", "title"),
    [
        ({"a": "supported", "b": "inconclusive"}, "What holds on these models"),
        ({"a": "contradicted", "b": "not applicable"}, "What does not hold"),
        ({"a": "contradicted", "b": "supported"}, "What differs between models"),
        ({"a": "inconclusive", "b": "not applicable", "untrained:a": "supported"}, "What cannot be said"),
        ({"a": "not applicable", "untrained:a": "contradicted"}, "What does not apply"),
    ],
)
def test_a_claim_stands_under_what_the_trained_models_say(script, verdicts, title):
    claims = {model: Judgement("s", verdict, "r") for model, verdict in verdicts.items()}
    assert script["group"](claims) == title


def test_the_page_opens_with_what_can_be_said_and_the_csv_holds_every_verdict(script):
    identity = Judgement("All are equal.", "holds", "r", kind="identity")
    columns = {"trained": {"kiya/mask": section(MOVES, identity)}, "random": {"kiya/mask": section(STAYS)}}
    text = script["page"](columns, SPLITS, [])
    counts = rows(text)[2:4]
    assert counts == [["trained", "1", "0", "0", "0", "1", "0", "0"], ["random", "0", "0", "1", "0", "0", "0", "0"]]
    short = text.split("## In short")[1].split("## Studies")[0]
    assert ["The sink moves.", "[kiya/mask](#kiyamask)", "supported", "-"] in rows(short)
    assert "All are equal" not in short
    lines = script["rows"](columns, SPLITS).splitlines()
    assert [line.split(",")[:4] for line in lines[1:]] == [
        ["kiya/mask", "trained", "confirm", "The sink moves."],
        ["kiya/mask", "trained", "confirm", "All are equal."],
        ["kiya/mask", "random", "confirm", "The activation stays."],
    ]


def test_the_claims_of_a_paper_are_counted_together(script):
    def sourced(verdict, source):
        return Judgement(f"{verdict} by {source}", verdict, "r", source=source)

    own = sourced("supported", "")
    first, second = sourced("supported", "Kiya et al. 2026, Fig. 2"), sourced("contradicted", "after Kiya et al. 2026, section 3")
    third = sourced("inconclusive", "Bondarenko et al. 2023; Sun et al. 2024")
    columns = {
        "trained": {"kiya/mask": section(first, second), "gu/norms": section(third, own)},
        "random": {"kiya/mask": section(first)},
    }
    assert rows(script["by_paper"](columns))[2:] == [
        ["Kiya et al. 2026", "1 supported, 1 contradicted", "1 supported"],
        ["Bondarenko et al. 2023", "1 inconclusive", "-"],
        ["our own", "1 supported", "-"],
    ]


def test_a_model_that_was_refused_and_a_study_without_claims_are_told(script):
    columns = {"trained": {"kiya/mask": section()}, "gateless": {"kiya/mask": "it has no gate"}}
    text = script["page"](columns, SPLITS, [])
    assert "no claims to judge | not run" in text
    assert "- Found nothing to judge." in text
    assert "gateless: not run, because it has no gate" in text


def test_it_reads_the_folders_of_finished_runs(tmp_path, monkeypatch, capsys):
    files = write_both(tmp_path / "files")
    chosen = study("sweep", files, edits=[{"compose": []}, {"mask_key": {"key": 0}}])
    run.carry_out(chosen, tmp_path / "one")
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(tmp_path / "one"), "--out", str(tmp_path / "findings.md")])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert capsys.readouterr().out.strip() == str(tmp_path / "findings.md")
    assert f"| study | {files / 'model'} |" in (tmp_path / "findings.md").read_text()
