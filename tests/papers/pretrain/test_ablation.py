"""A study from its file to its page: resumed, shown while it goes on, with rows chosen on the command line."""

from __future__ import annotations

import re

import pytest

from sinkjax.cli import main as cli

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
