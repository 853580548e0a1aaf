"""The tables of the trigger lab: a cell a line, older ones of the same study replaced, and those of other studies kept."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from sinkjax.analysis import intervals
from sinkjax.analysis.evidence import Judgement
from sinkjax.analysis.summary import Row
from sinkjax.analysis.verdicts import Verdict
from sinkjax.report.section import Section
from sinkjax.study.registry import studies
from sinkjax.study.trained import alone

ROOT = Path(__file__).parents[2]
SCRIPT = "trigger_tables.py"
CLAIM = Verdict("one", "It sinks.", "ours", "", Judgement("not applicable", reason="3 of 3 runs"))


def section(study: str, *weights: float) -> Section:
    weight = intervals.interval(weights)
    rows = (Row("softmax", "models", "weight", weight), Row("softmax, seed 0", "runs", "weight", weight))
    rows += (Row("relu", "models", "seeds", alone("not run")),)
    return Section(study, "A title", "A claim.", (), rows, ("softmax", "relu"), (), verdicts=(CLAIM,))


def test_a_study_takes_the_place_of_its_older_lines(script, tmp_path, monkeypatch):
    found = [(section("trigger/a", 0.1, 0.2, 0.3), section("trigger/b", 0.5, 0.5, 0.5)), (section("trigger/a", 0.2, 0.3, 0.4),)]
    monkeypatch.setitem(script["main"].__globals__, "read", lambda folder: found.pop(0))
    monkeypatch.setattr(sys, "argv", [SCRIPT, "results", "--data", str(tmp_path)])
    script["main"]()
    script["main"]()
    with (tmp_path / "trigger.csv").open(newline="") as file:
        lines = {(line["table"], line["row"], line["column"]): line for line in csv.DictReader(file)}
    assert float(lines["a", "softmax", "weight"]["mean"]) == pytest.approx(0.3)
    assert float(lines["b", "softmax", "weight"]["mean"]) == 0.5
    assert lines["a", "softmax", "weight"]["n"] == "3"
    assert float(lines["a", "softmax", "weight"]["low"]) < 0.2
    assert lines["a", "relu", "seeds"]["text"] == "not run"
    assert not any(row == "softmax, seed 0" for _, row, _ in lines)
    claims = (tmp_path / "trigger-claims.csv").read_text().splitlines()
    assert sorted(claims[1:]) == [f"{name},It sinks.,ours,,not applicable,3 of 3 runs" for name in "ab"]


def test_what_is_no_run_is_refused(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [SCRIPT, str(tmp_path)])
    with pytest.raises(SystemExit):
        script["main"]()
    assert f"{tmp_path} is not" in capsys.readouterr().err


def test_the_table_has_every_experiment_of_the_lab():
    with (ROOT / "docs/results/data/trigger.csv").open(newline="") as file:
        tables = {line["table"] for line in csv.DictReader(file)}
    assert tables == {name.removeprefix("trigger/") for name in studies() if name.startswith("trigger/")}
