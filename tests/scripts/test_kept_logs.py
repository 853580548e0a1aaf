"""The kept logs of trainings: what was written is read, and the tables of finished plans have their numbers."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from sinkjax.papers.pretrain._outcomes import at_end
from sinkjax.papers.pretrain._task import of_lines

SCRIPT = "kept_logs.py"


def test_a_series_keeps_what_one_log_lacks_and_numbers_that_no_float32_holds(script, tmp_path):
    plain, more = (
        {"step": 0, "loss": 0.1},
        {"loss": None, "step": 1, "kurtosis": [[0.1, 3.5], [None, 1e300]], "status": "running"},
    )
    for name, line in (("a/b", plain), ("a/c", more), ("d/e", {"loss": 1 / 3})):
        script["keep"](f"search/{name}", {"config": {"seed": 3}}, [line, line], tmp_path)
    assert script["names"]("search/a", tmp_path) == ["search/a/b", "search/a/c"]
    found = {name: script["read"](f"search/{name}", tmp_path)[1] for name in ("a/b", "a/c", "d/e")}
    assert [json.dumps(lines) for lines in found.values()] == [
        json.dumps([line, line]) for line in (plain, more, {"loss": 1 / 3})
    ]
    with pytest.raises(KeyError, match="a/z"):
        script["read"]("search/a/z", tmp_path)


def test_a_log_kept_again_gives_equal_bytes(script, tmp_path):
    for _ in range(2):
        script["keep"]("search/f1/seed-0", {"config": {"seed": 0}}, [{"step": 0, "loss": 0.07568311}], tmp_path)
        before = (tmp_path / "search.parquet").read_bytes()
    script["keep"]("search/f1/seed-0", {"config": {"seed": 0}}, [{"step": 0, "loss": 0.07568311}], tmp_path)
    assert (tmp_path / "search.parquet").read_bytes() == before


@pytest.mark.parametrize(
    ("file", "table", "row", "log"),
    [
        ("pretraining-340k", "li-head-norm", "head-wise RMSNorm", "340k/mini/head-norm"),
        ("pretraining-340k", "gu-weight-decay", "decay 0", "340k/mini/decay-0"),
        ("while-it-learns", "table hidden", "hidden throughout", "learning/hidden/throughout"),
    ],
)
def test_the_tables_of_finished_plans_have_the_numbers_of_the_kept_logs(script, file, table, row, log):
    """Their means over seeds. The scripts that made them are those of an earlier commit, which the pages name."""
    with (script["LOGS"].parent / f"{file}.csv").open(encoding="utf-8", newline="") as opened:
        lines = {line["column"]: line for line in csv.DictReader(opened) if (line["table"], line["row"]) == (table, row)}
    runs = [of_lines(*script["read"](name)) for name in script["names"](log)]
    for column, variable, reduce in (
        ("attention to token 1", "received", np.mean),
        ("spike", "spike", np.max),
        ("loss", "loss", np.mean),
    ):
        values = [at_end(run, variable, reduce).item() for run in runs]
        assert len(values) == int(lines[column]["n"]) == 8
        assert np.mean(values) == pytest.approx(float(lines[column]["mean"]), rel=1e-4)
