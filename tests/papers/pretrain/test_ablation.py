"""A study from its file to its page: resumed, shown while it goes on, with rows chosen on the command line."""

from __future__ import annotations

import re

import pytest

from sinkjax.cli import main as cli
from sinkjax.config_files import documents
from sinkjax.study import training
from sinkjax.study.choice import choose, claim
from sinkjax.study.registry import documented
from tests.papers.pretrain.logs import curve, log

TINY = "{layers: 1, width: 8, heads: 1, mlp_width: 8, vocabulary: 260, context: 12, batch: 2, eval_batch: 2, eval_every: 2"
STUDY = f"""
study: mine/two-rows
title: Two rows
question: One of them is better.
settings: {{steps: 4, seeds: 2}}
trainings:
  plain: {{row: {{label: plain row, changes: {TINY}}}, paper: {{sink_1: 18.18, valid_loss: 3.73}}}}}}
  other: {{row: {{label: other row, changes: {TINY}, unique: 0.5}}}}}}
measures: [sink_1, valid_loss]
claims:
  better: {{statement: One is better., contrast: {{versus: {{measure: valid_loss, training: other, minus: plain}}}}}}
figures: [learning_curves]
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "mine.yaml"
    path.write_text(STUDY)
    return path


@pytest.fixture(scope="module")
def half(file, tmp_path_factory):
    """The folder of a study of which one row was run."""
    out = tmp_path_factory.mktemp("out") / "mine"
    assert cli.main(["run", str(file), "--only", "plain", "--out", str(out)]) == 0
    return out


def test_a_row_that_was_chosen_is_trained_and_the_others_are_listed(half):
    page = (half / "report.html").read_text()
    assert re.search("1 of 2 trainings .*: other row", page)
    assert (half / "plain.zarr").is_dir()
    assert not (half / "other").exists()
    assert "plain row,models" in (half / "summary.csv").read_text()
    assert "not applicable" in (half / "claims.csv").read_text()


def test_the_whole_study_goes_on_in_the_same_folder(half, file, capsys, monkeypatch):
    trained = []
    train = training.train
    monkeypatch.setattr(training, "train", lambda *given: trained.append(given[1].name) or train(*given))
    assert cli.main(["run", str(file), "--out", str(half)]) == 0
    assert trained == ["other"]
    shown = capsys.readouterr()
    assert "other (2 of 2; about" in shown.err
    assert "other row" in (half / "report.html").read_text()
    assert cli.main(["run", str(file), "--seeds", "3", "--out", str(half)]) == 2
    assert "seeds was 2, now 3" in capsys.readouterr().err


def test_a_page_can_be_made_while_a_row_goes_on(file, tmp_path, capsys):
    chosen = choose(str(file))
    claim(tmp_path, chosen)
    log(tmp_path / "plain", curve(0, [5.0, 4.0, 3.0])[:2])
    assert cli.main(["report", str(tmp_path)]) == 0
    assert re.search("Plain row: seed 0 .*step 50", capsys.readouterr().out)
    assert (tmp_path / "figures" / "learning.png").is_file()


def test_rows_and_sizes_that_do_not_exist_are_refused(file, capsys):
    for option, message in ((["--only", "plan"], "did you mean 'plain'"), (["--size", "60"], "--size must be")):
        assert cli.main(["run", str(file), *option]) == 2
        assert message in capsys.readouterr().err


def test_a_plan_has_the_rows_that_are_wanted(file, capsys):
    assert cli.main(["plan", str(file), "--only", "other", "--steps", "7"]) == 0
    shown = capsys.readouterr().out
    assert ": other" in shown
    assert "plain" not in shown
    assert "at most 7 of 2" in shown  # sequences
    assert "weights and optimiser" in " ".join(shown.split())


def test_a_shipped_study_is_found_by_its_name():
    assert choose("pretrain/gu-weight-decay").config.size == "mini"
    rows = documents.parse(documented()["pretrain/gu-weight-decay"], "")["trainings"]
    assert rows["decay-5"]["row"]["changes"] == {"weight_decay": 5}
