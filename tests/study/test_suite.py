"""All studies of a family: each in its folder, all on one page, those that refuse the model named with their reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.cli import main as cli
from sinkjax.errors import SinkjaxError
from sinkjax.study import Lab, loss, registry, run, suite
from sinkjax.study.contrasts import Parts
from sinkjax.study.lab import Study
from sinkjax.study.numbers import Numbers
from sinkjax.study.prose import Prose, Statement
from sinkjax.study.registry import Chosen, choose
from sinkjax.study.settings import All, OnText
from tests.study.tiny import write_both

STATEMENT = "The loss is a number (Fig. 1)."
IT = np.array([1.0, 2.0, 4.0, 1.0, 2.0, 4.0, 2.0, 2.0])


def made_up(name: str, study: Callable[[Lab, OnText], None]) -> Study:
    """A study that is not in a file."""
    prose = Prose("Seed {seed}", "A claim.", (), {"one": Statement(STATEMENT, "3.1")})
    return Study(name, study, OnText, prose, False, "")


def unedited(lab: Lab, s: OnText) -> None:
    """One unedited sweep, with one claim."""
    sweep = lab.sweep("sweep", measures=[loss()])

    def of_loss(read: Numbers) -> Parts:
        read.first(loss(), sweep)
        return Parts(IT, None, None, None, "", "it")

    lab.claim("one", "Fig. 1", of_loss)


def no_gate(lab: Lab, s: OnText) -> None:
    unedited(lab, s)
    raise SinkjaxError("the model has no gate")


def no_bos(model: sinkjax.Model, batch: Any) -> xarray.Dataset:
    """It turns out when the model is loaded."""
    raise SinkjaxError("the tokenizer names no BOS")


def numbers(lab: Lab, s: OnText) -> None:
    of = lab.calculate("numbers", no_bos, (), None, s.prompts)
    lab.claim("one", "Fig. 1", lambda read: read.data(of.name))


STUDIES = (
    made_up("made-up/gated", no_gate),
    made_up("made-up/late", numbers),
    made_up("made-up/sweep", unedited),
    made_up("other/sweep", unedited),
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_both(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def chosen(files: Path, monkeypatch: pytest.MonkeyPatch) -> Chosen:
    """The suite "made-up" on a tiny model."""
    monkeypatch.setattr(registry, "declared", dict)
    monkeypatch.setattr(registry, "_registered", {study.name: study for study in STUDIES})
    shipped = {study.name: Chosen(study.name, OnText(prompts=2, length=10, seed=5)) for study in STUDIES}
    monkeypatch.setattr(suite, "by_name", lambda name: shipped.get(name) or choose(name))
    config = All(family="made-up", model=str(files / "model"), text=str(files / "text.txt"), prompts=3)
    return Chosen("all", config)


def test_each_runs_in_its_folder_and_refusals_are_listed_with_their_sentence(chosen, tmp_path):
    report = suite.carry_out(chosen, tmp_path / "out")
    (section,) = report.sections
    assert (section.title, section.rows[0].value.n) == ("Seed 5", 3)  # the study's own seed, and the suite's prompts
    assert report.skipped == {"made-up/gated": "the model has no gate", "made-up/late": "the tokenizer names no BOS"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"config.yaml", "refused.yaml", "report.html", "late", "sweep"}
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for words in ('href="#made-up/sweep"', 'id="made-up/sweep"', "1 replicates", report.skipped["made-up/gated"], "it: 2.25"):
        assert words in page


def test_a_second_run_resumes_and_a_report_is_rebuilt_from_the_stores(chosen, tmp_path, monkeypatch):
    suite.carry_out(chosen, tmp_path)
    page = (tmp_path / "report.html").read_bytes()
    monkeypatch.setattr("sinkjax.sweeps.run.compute", lambda computation, schedule, todo: iter(()))
    for again in (suite.carry_out, suite.build):
        (tmp_path / "report.html").unlink()
        again(chosen, tmp_path)
        assert (tmp_path / "report.html").read_bytes() == page


def test_a_full_disk_stops_the_suite(chosen, tmp_path, monkeypatch):
    def full(*args: Any, **options: Any) -> None:
        try:
            raise OSError(28, "No space left on device")
        except OSError as error:
            raise SinkjaxError("cannot write") from error

    monkeypatch.setattr(run, "carry_out", full)
    with pytest.raises(SinkjaxError, match="cannot write"):
        suite.carry_out(chosen, tmp_path)


def test_the_command_line_runs_plans_and_reports_a_suite(chosen, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sinkjax.cli.common.choose", lambda name, own: choose(name) if (tmp_path / "out").exists() else chosen)
    assert cli.main(["plan", "kiya/all"]) == 0
    assert "made-up/gated does not run: " in capsys.readouterr().out
    assert cli.main(["run", "kiya/all", "--out", str(tmp_path / "out")]) == 0
    ran = capsys.readouterr()
    assert "made-up/sweep (3 of 3)" in ran.err
    assert cli.main(["report", str(tmp_path / "out")]) == 0
    for shown in (ran.out, capsys.readouterr().out):
        assert "Seed 5" in shown
        assert "1 replicates" in shown
        assert shown.splitlines()[-1] == str(tmp_path / "out" / "report.html")
