"""Checkpoints of trainings that were damaged are noticed before anything is read, and the last sound one is used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from sinkjax.config_files.checksums import SUMS
from sinkjax.errors import SinkjaxError
from sinkjax.tasks import load_runs, train
from sinkjax.train import checkpoint, loop
from tests.robustness.disk import Disk
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


def test_the_last_two_are_kept_each_with_the_checksums_of_its_files(done):
    assert sorted(path.name for path in (done / "checkpoints").iterdir()) == ["30", "40"]
    for number in ("30", "40"):
        step = done / "checkpoints" / number
        assert json.loads((step / SUMS).read_text()).keys() == listed(step)


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


@pytest.mark.parametrize(
    "make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["folder", "pipe", "device"]
)
def test_what_is_no_file_is_damage(copy, make):
    file = next(last(copy).glob("meta/*"))
    file.unlink()
    make(file)
    with pytest.raises(SinkjaxError, match=f"{file.name} has changed"):
        load_runs(copy)


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


def test_a_clock_that_jumps_ends_a_training_in_a_sentence_and_the_same_call_resumes(tmp_path, monkeypatch, done):
    class Late:
        def __init__(self, manager):
            self.manager = manager

        def __getattr__(self, name):
            return getattr(self.manager, name)

        def save(self, number, args):
            if number == 20:
                raise TimeoutError("ChainedFuture completed 0/2 futures but timed out after 9000.00 seconds.")
            return self.manager.save(number, args=args)

    begun = checkpoint.Checkpoints.__enter__

    def enter(self):
        self._manager = Late(self._manager)
        return begun(self)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.Checkpoints, "__enter__", enter)
        with pytest.raises(SinkjaxError, match=r"/20 was not written in time: .*resume"):
            train(CONFIG, tmp_path / "out", progress=False, save_every=0)
    train(CONFIG, tmp_path / "out", progress=False, save_every=0)
    assert w(tmp_path / "out") == w(done)


@pytest.mark.parametrize("instead", ["nothing", "an empty folder", "another training"])
def test_a_folder_that_is_replaced_while_a_training_runs_ends_it_in_a_sentence(tmp_path, monkeypatch, done, instead):
    call, calls = loop.call, []

    def moved(*arguments):
        calls.append(1)
        if len(calls) == 3:
            (tmp_path / "out").rename(tmp_path / "moved")
            if instead == "another training":
                shutil.copytree(done, tmp_path / "out", dirs_exist_ok=True)  # Orbax may just have made it again
            elif instead == "an empty folder":
                (tmp_path / "out").mkdir(exist_ok=True)
        return call(*arguments)

    monkeypatch.setattr(loop, "call", moved)
    with pytest.raises(SinkjaxError, match="out was moved or replaced"):
        train(CONFIG, tmp_path / "out", progress=False, save_every=0)
    if instead == "another training":
        assert w(tmp_path / "out") == w(done)


def test_a_lock_that_is_a_link_to_a_folder_is_a_sentence(copy, tmp_path):
    (copy / loop.LOCK).unlink(missing_ok=True)
    (copy / loop.LOCK).symlink_to(tmp_path)
    with pytest.raises(SinkjaxError, match=rf"cannot write .*{loop.LOCK}"):
        train(CONFIG, copy, progress=False)


def test_a_finished_training_on_a_read_only_disk_is_read_and_not_trained(done, tmp_path):
    (tmp_path / "disk").mkdir()
    disk = Disk(tmp_path / "disk", 1 << 24)
    try:
        shutil.copytree(done, disk.folder / "out")
        disk.set_read_only()
        assert w(disk.folder / "out") == w(done)
        with pytest.raises(SinkjaxError, match=r"cannot write .*Read-only file system"):
            train(CONFIG, disk.folder / "out", progress=False)
    finally:
        subprocess.run(["umount", "-l", str(disk.folder)], check=True)
