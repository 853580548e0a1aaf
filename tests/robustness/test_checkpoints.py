"""Checkpoints of trainings that were damaged are noticed before anything is read, and the last sound one is used."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from sinkjax.config_files.checksums import SUMS
from sinkjax.errors import SinkjaxError
from sinkjax.tasks import load_runs, train
from sinkjax.train import checkpoint
from tests.train import linear
from tests.train.linear import Linear

CONFIG = Linear(seeds=2, steps=40, eval_every=10, batch=8, eval_batch=8, stop_below=0)


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Path:
    linear.register()
    return train(CONFIG, tmp_path_factory.mktemp("train") / "done", progress=False, save_every=0).folder


@pytest.fixture
def copy(done, tmp_path) -> Path:
    return Path(shutil.copytree(done, tmp_path / "copy"))


def w(folder: Path) -> bytes:
    return np.asarray(load_runs(folder).params["w"]).tobytes()


def flip(file: Path, tenth: int = 5) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) * tenth // 10] ^= 64
    file.write_bytes(content)


def listed(step: Path) -> set[str]:
    """The files of a checkpoint that have checksums: all but their list, and what Orbax changes when it commits."""
    files = {path.relative_to(step).as_posix() for path in step.rglob("*") if path.is_file()}
    return files - {SUMS, *checkpoint.LATER}


def last(folder: Path, back: int = 1) -> Path:
    return sorted((folder / "checkpoints").iterdir(), key=lambda path: int(path.name))[-back]


def test_a_flipped_bit_in_any_file_is_named(copy):
    tried = 0
    for file in [last(copy) / name for name in listed(last(copy)) if (last(copy) / name).stat().st_size]:
        content = file.read_bytes()
        for tenth in range(0, 10, 3):
            flip(file, tenth)
            with pytest.raises(SinkjaxError, match=rf"/40 is damaged \({file.relative_to(last(copy))} "):
                load_runs(copy)
            tried += 1
        file.write_bytes(content)
    assert tried > 20
    load_runs(copy)


def test_a_training_resumes_from_the_last_sound_one_to_the_same_bits(copy, done, capsys):
    data = max((path for path in last(copy).rglob("d/*")), key=lambda path: path.stat().st_size)
    flip(data)
    train(CONFIG, copy, progress=False)
    assert "40 is damaged" in (said := capsys.readouterr().err)
    assert said.endswith(" step 30\n")
    assert w(copy) == w(done)
    assert (copy / "log.jsonl").read_bytes() == (done / "log.jsonl").read_bytes()
    for back in (1, 2):
        flip(next(last(copy, back).glob("meta/*")))
    with pytest.raises(SinkjaxError, match=r"40 is damaged .*none before .*delete .*copy "):
        train(CONFIG, copy, progress=False)


def test_one_of_an_earlier_version_is_read_and_that_is_said(copy, done, capsys):
    for path in (copy / "checkpoints").iterdir():
        (path / SUMS).unlink()
    assert w(copy) == w(done)
    train(CONFIG, copy, progress=False)
    assert capsys.readouterr().err.count("has no checksums") == 1
    meta = next(last(copy).glob("meta/metadata"))
    meta.write_text(meta.read_text().replace("log_bytes", "log_bytez"))
    with pytest.raises(SinkjaxError, match=r"meta .*step, log_bytes"):
        train(CONFIG, copy, progress=False)
