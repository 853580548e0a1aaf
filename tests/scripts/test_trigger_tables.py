"""docs/results/trigger.md: each study's table between its own markers, and nothing else of the page touched."""

from __future__ import annotations

import dataclasses
import re
import runpy
import sys
from pathlib import Path

import pytest

from sinkjax.analysis import intervals
from sinkjax.analysis.evidence import Judgement
from sinkjax.analysis.summary import Row
from sinkjax.analysis.verdicts import Verdict
from sinkjax.lab.trained import alone
from sinkjax.report.section import Section
from sinkjax.studies.registry import studies

ROOT = Path(__file__).parents[2]
CLAIM = Verdict("one", "It sinks.", "ours", "", Judgement("not applicable", reason="3 of 3 | runs"))


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return runpy.run_path(str(ROOT / "scripts" / "trigger_tables.py"))


def section(**options) -> Section:
    weights = intervals.interval([0.1, 0.2, 0.3])
    rows = (Row("softmax", "models", "weight", weights), Row("softmax, seed 0", "runs", "weight", weights))
    return Section("trigger/x", "A title", "A claim.", (), rows, ("softmax",), (), **options)


def test_a_table_has_a_line_a_model_with_intervals_and_the_verdicts(script):
    text = script["text"](section(verdicts=(CLAIM,), subject="model", over="runs"))
    assert "| model | weight |" in text
    assert "| softmax | 0.200 [" in text
    assert "seed 0" not in text
    assert "| It sinks. | ours | not applicable | 3 of 3 / runs |" in text


def test_a_training_that_was_not_run_is_named_and_has_no_line(script):
    planned = Row("relu", "models", "seeds", alone("not run"))
    found = section(verdicts=(CLAIM,), subject="model", over="runs")
    text = script["text"](dataclasses.replace(found, rows=(*found.rows, planned), featured=("softmax", "relu")))
    assert re.search("1 of 2 trainings .*: relu", text)
    assert "| relu |" not in text
    assert text.index("| It sinks. |") < text.index("| softmax | 0.200 [")


def test_the_page_is_written_between_markers_and_a_second_time_alike(script, tmp_path, monkeypatch):
    page = tmp_path / "trigger.md"
    page.write_text("# Page\n\n<!-- begin trigger/x -->\nNot yet run.\n<!-- end trigger/x -->\n\nThe end.\n")
    monkeypatch.setitem(script["main"].__globals__, "read", lambda folder: (section(),))
    monkeypatch.setattr(sys, "argv", ["trigger_tables.py", "results", "--out", str(page)])
    script["main"]()
    first = page.read_text()
    assert first.startswith("# Page\n\n<!-- begin trigger/x -->\nA title.")
    assert first.endswith("<!-- end trigger/x -->\n\nThe end.\n")
    assert "Not yet run" not in first
    script["main"]()
    assert page.read_text() == first


def test_what_is_no_run_is_refused(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["trigger_tables.py", str(tmp_path)])
    with pytest.raises(SystemExit):
        script["main"]()
    assert f"{tmp_path} is not" in capsys.readouterr().err


def test_the_page_has_a_place_for_every_experiment_of_the_lab():
    page = (ROOT / "docs" / "results" / "trigger.md").read_text(encoding="utf-8")
    for name in studies():
        if name.startswith("trigger/"):
            assert page.count(f"<!-- begin {name} -->") == page.count(f"<!-- end {name} -->") == 1
