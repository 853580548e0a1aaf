"""The page of a training has the means of its log; runs that ended early or diverged leave gaps, and nothing is made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sinkjax.config_files.files import user_location
from sinkjax.errors import SinkjaxError
from sinkjax.report.training import _line, is_training, training_section
from sinkjax.train.log import Log


def write(folder: Path, losses: list[list[float | None]], variant: str = "softmax", **more: Any) -> Path:
    """A log with these losses of each run, every ten steps."""
    folder.mkdir()
    log = Log(folder, 0)
    runs = [{"run": run, "seed": run, "learning_rate": 0.1, "variant": variant} for run in range(len(losses))]
    lines = [
        {**runs[run], "step": 10 * number, "status": "running", "loss": loss, **more}
        for run, values in enumerate(losses)
        for number, loss in enumerate(values)
    ]
    log.write([{"runs": runs, "config": {}}, *lines])
    log.close()
    return folder


def test_the_last_evaluation_is_the_mean_over_runs_of_each_training(tmp_path: Path) -> None:
    one = write(tmp_path / "one", [[4.0, 3.0, 2.0], [4.0, 3.5]], sink=[0.1, 0.5], spike=[1.0, 30.0])
    two = write(tmp_path / "two", [[4.0, 1.0]], "sigmoid", sink=[0.0, 0.0], spike=[2.0, 3.0])
    (block,) = training_section([user_location(one), user_location(two)]).blocks
    assert block.lines == (
        ("one, softmax", "2", "10 to 20", "2.75", "50", "30"),
        ("two, sigmoid", "1", "10", "1", "0", "3"),
    )
    assert is_training(user_location(one))
    assert not is_training(user_location(tmp_path))


def test_trainings_of_one_name_stay_apart(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    folders = [user_location(write(tmp_path / where / "run", [[loss]])) for where, loss in (("a", 1.0), ("b", 3.0))]
    assert [line[0] for line in training_section(folders).blocks[0].lines] == ["a/run, softmax", "b/run, softmax"]


def test_a_course_has_gaps_where_a_run_ended_or_was_not_finite() -> None:
    runs = {0: {0: {"loss": 4.0}, 10: {"loss": None}}, 1: {0: {"loss": 2.0}}}
    line = _line("softmax", runs, "loss")
    assert line.values[0].mean == 3.0
    assert line.x == [0, 10]
    assert line.values[1].n == 0


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    empty, other = write(tmp_path / "empty", []), write(tmp_path / "other", [[1.0]], nothing=1)
    with pytest.raises(SinkjaxError, match="no evaluation yet"):
        training_section([user_location(empty)])
    with pytest.raises(SinkjaxError, match="log"):
        training_section([user_location(tmp_path)])
    assert training_section([user_location(other)]).drawings[0].svg.startswith(b"<?xml")
