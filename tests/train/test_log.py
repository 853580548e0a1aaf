"""A training's log and config that something changed between two calls: refused, by name."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from sinkjax.errors import SinkjaxError
from sinkjax.tasks import train
from sinkjax.tasks.registry import load_runs
from sinkjax.train import checkpoint
from sinkjax.train.log import LOG, SUM, Log, read
from tests.train import linear

HEADER: dict[str, Any] = {"runs": [], "config": {"steps": 3}}
LINES: list[dict[str, Any]] = [{"run": 0, "step": step, "status": "running", "loss": 1.5 + step} for step in range(3)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A folder with a log that was written in two calls."""
    with contextlib.closing(Log(tmp_path, 0)) as first:
        first.write([HEADER, LINES[0]])
    with contextlib.closing(Log(tmp_path, first.size)) as second:
        second.write(LINES[1:])
    return tmp_path


def without_sums(text: str) -> str:
    return re.sub(SUM + r"[0-9a-f]{8}\"", "", text)


def test_every_flipped_bit_is_noticed_and_every_cut_is_read(log: Path) -> None:
    assert read(log) == (HEADER, LINES)
    raw = (log / LOG).read_bytes()
    for place in range(len(raw)):
        (log / LOG).write_bytes(raw[:place] + bytes([raw[place] ^ 1 << place % 7]) + raw[place + 1 :])
        with pytest.raises(SinkjaxError, match=r"log\.jsonl"):
            read(log)
    ends = [place for place, byte in enumerate(raw, 1) if byte == ord("\n")]
    for size in range(ends[0], len(raw)):  # as a kill leaves it
        (log / LOG).write_bytes(raw[:size])
        assert read(log)[1] == LINES[: sum(end <= size for end in ends) - 1]


def test_a_line_that_was_removed_repeated_or_moved_is_noticed(log: Path) -> None:
    lines = (log / LOG).read_text().splitlines(keepends=True)
    for changed in (lines[:1] + lines[2:], [*lines, lines[-1]], [lines[0], lines[2], lines[1], lines[3]]):
        (log / LOG).write_text("".join(changed))
        with pytest.raises(SinkjaxError, match="has changed since it was written"):
            read(log)


def test_lines_without_sums_are_read_and_covered_by_the_next(log: Path) -> None:
    (log / LOG).write_text(without_sums((log / LOG).read_text()))
    assert read(log) == (HEADER, LINES)
    with contextlib.closing(Log(log, (log / LOG).stat().st_size)) as continued:
        assert continued.unchecked
        continued.write([{**LINES[0], "step": 3}])
    assert len(read(log)[1]) == 4
    (log / LOG).write_text((log / LOG).read_text().replace("2.5", "2.6"))
    with pytest.raises(SinkjaxError, match="has changed since it was written"):
        read(log)


@pytest.fixture
def half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A training that was stopped at its first checkpoint."""
    linear.register()
    save = checkpoint.Checkpoints.save

    def last(self: Any, *given: Any) -> None:
        save(self, *given)
        self.wait()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.Checkpoints, "save", last)
        with pytest.raises(KeyboardInterrupt):
            train(CONFIG, tmp_path / "half", save_every=0, progress=False)
    return tmp_path / "half"


CONFIG = linear.Linear(steps=40, eval_every=20, batch=8, stop_below=0.0, learning_rates=(0.1,))


@pytest.mark.parametrize(("field", "was", "now"), [("learning_rates", "0.1", "0.3"), ("batch", "batch: 8", "batch: 16")])
def test_a_config_that_was_edited_between_two_calls_is_refused(half: Path, field: str, was: str, now: str) -> None:
    file = half / "config.yaml"
    old = file.read_text()
    start = old.index(field)
    edited = old[:start] + old[start:].replace(was, now, 1)
    assert edited != old
    file.write_text(edited)
    config = linear.Linear(**{**vars(CONFIG), **({"batch": 16} if field == "batch" else {"learning_rates": (0.3,)})})
    with pytest.raises(SinkjaxError, match=rf"changed since it started \({field} was"):
        train(config, half, progress=False)
    file.write_text(old)
    assert train(CONFIG, half, progress=False).runs[0].steps == 40
    file.write_text(edited)
    with pytest.raises(SinkjaxError, match=rf"{field} was"):
        load_runs(half)


def test_a_training_of_an_earlier_version_is_continued_with_a_line_that_says_so(half: Path) -> None:
    """Its checkpoint has the length of the log, so each line keeps its own."""
    lines = (half / LOG).read_text().splitlines()
    (half / LOG).write_text("".join(without_sums(line).ljust(len(line)) + "\n" for line in lines))
    said: list[str] = []
    copy = shutil.copytree(half, half.with_name("edited"))
    assert train(CONFIG, half, say=said.append, progress=False).runs[0].steps == 40
    assert any("no checksums" in line for line in said)
    assert json.loads((half / LOG).read_text().splitlines()[-1])["crc32"]
    (copy / "config.yaml").write_text((copy / "config.yaml").read_text().replace("batch: 8", "batch: 16"))
    with pytest.raises(SinkjaxError, match=r"batch was 8, now 16"):
        train(linear.Linear(**{**vars(CONFIG), "batch": 16}), copy, progress=False)
