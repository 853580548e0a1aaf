"""One study on many models: each what it is alone, all on one page and in one table; what is there twice is named."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import jax
import pytest

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.cli import main as cli
from sinkjax.config_files import documents
from sinkjax.study import run, suite
from sinkjax.study.registry import Chosen, choose
from sinkjax.study.settings import Series
from tests.study.tiny import study, write_both

SMALL = {"prompts": 3, "length": 12, "bos": "none", "split": "confirm"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and a text, and the model at three steps, the last two of which are the same."""
    folder = write_both(tmp_path_factory.mktemp("tiny"))
    model = sinkjax.load(folder / "model")
    for step, factor in ((9, 0.5), (10, 1.0), (100, 1.0)):
        scaled = jax.tree.map(lambda leaf, factor=factor: factor * leaf, model.params)
        sinkjax.save(sinkjax.Model(model.config, scaled, model.tokenizer, model.source), folder / "kept" / f"step-{step}")
    return folder


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "RESAMPLES", 100)


def chosen(files: Path, **fields: Any) -> Chosen:
    settings = {**SMALL, "text": str(files / "text.txt")}
    return Chosen("series", Series(study="gu/norms", settings=settings, **{"checkpoints": str(files / "kept"), **fields}))


def test_each_checkpoint_is_a_run_of_its_own_and_the_same_weights_are_named(files, tmp_path):
    report = suite.carry_out(chosen(files), tmp_path / "out")
    assert [section.study for section in report.sections] == ["gu/norms on step-9", "gu/norms on step-10"]
    assert [*report.skipped] == ["step-100"]
    assert "same weights as step-10:" in report.skipped["step-100"]
    alone = study("gu/norms", files, model=str(files / "kept" / "step-9"), **SMALL)
    assert run.carry_out(alone, tmp_path / "alone").rows == report.sections[0].rows
    lines = list(csv.DictReader((tmp_path / "out" / "series.csv").open()))
    assert {(line["checkpoint"], line["step"]) for line in lines} == {("step-9", "9"), ("step-10", "10")}
    assert len(lines) == sum(len(section.rows) for section in report.sections)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert report.skipped["step-100"] in page
    assert page.index("<figure>") < page.index("<details><summary>gu/norms on step-9</summary>")  # of both steps
    (tmp_path / "out" / "refused.yaml").write_text(documents.dump({**report.skipped, "step-9": "and has finished since"}))
    again = suite.build(choose(str(tmp_path / "out")), tmp_path / "out")
    assert [section.rows for section in again.sections] == [section.rows for section in report.sections]
    assert again.skipped == report.skipped


def test_the_command_takes_a_folder_of_checkpoints(files, tmp_path, capsys):
    options = ["--prompts", "3", "--length", "12", "--text", str(files / "text.txt")]
    out = ["--out", str(tmp_path / "out")]
    assert cli.main(["run", "gu/norms", "--checkpoints", str(files / "kept"), *options, *out]) == 2  # step-100 was refused
    assert "gu/norms on 2 models" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("config.yaml", "refused.yaml", "report.html", "series.csv", "step-9", "step-10", "step-100")
    }
    assert cli.main(["report", str(tmp_path / "out")]) == 0
    assert cli.main(["run", str(tmp_path / "out")]) == 2
    for asked in ([str(tmp_path / "out")], ["gu/norms", "--checkpoints", str(files / "kept"), *options]):
        capsys.readouterr()
        assert cli.main(["plan", *asked]) == 0
        assert re.search("gu/norms on step-9, .* 2 more .*: text", capsys.readouterr().out)


def test_a_plan_is_made_once_for_each_architecture_and_of_known_ones_without_the_hub(capsys, monkeypatch):
    monkeypatch.setattr("sinkjax.study.plan.block_rate", lambda *args: 1e12)
    models = ["EleutherAI/pythia-14m", "mini-softmax", "no-such-owner/no-such-model"]
    assert cli.main(["plan", "gu/norms", "--models", *models]) == 0
    shown = capsys.readouterr().out
    assert "gu/norms on EleutherAI/pythia-14m: text" in shown
    assert "gu/norms on mini-softmax: text" in shown
    assert "no-such-owner/no-such-model does not run: " in shown
