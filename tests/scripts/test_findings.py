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


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("|")]


def test_a_row_is_a_claim_and_a_column_a_model(script):
    columns = {"trained": {"kiya/mask": section(MOVES, STAYS)}, "random": {"kiya/mask": section(STAYS)}}
    text = script["page"](columns, [Path("results/all")])
    _, _, overview, head, _, *claims = rows(text)
    assert overview == ["[kiya/mask](#kiyamask)", "1 supported, 1 inconclusive", "1 inconclusive"]
    assert head == ["claim", "the paper's number", "trained", "random"]
    assert claims == [
        ["The sink moves.", "95 %", "**supported**: Rule: in 9 of 10 \\|prompts\\|.", "-"],
        ["The activation stays.", "", *["**inconclusive**: Rule: 0.1 [0.0, 0.2]."] * 2],
    ]
    assert "## kiya/mask" in text
    assert "findings.py results/all" in text


def test_a_model_that_was_refused_and_a_study_without_claims_are_told(script):
    columns = {"trained": {"kiya/mask": section()}, "gateless": {"kiya/mask": "it has no gate"}}
    text = script["page"](columns, [])
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
