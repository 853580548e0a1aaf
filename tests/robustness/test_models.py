"""A model that was written stays whole until the next one is, and nothing that is not a model is overwritten."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import sinkjax
from sinkjax.checkpoints import native
from sinkjax.config_files import temporary
from sinkjax.config_files.checksums import SUMS
from sinkjax.errors import SinkjaxError
from tests.checkpoints.test_native import assert_same, drawn


@pytest.fixture
def model(tiny_config):
    return drawn(dataclasses.replace(tiny_config, width=36))  # which a Hugging Face folder can hold too


@pytest.fixture
def other(model):
    return dataclasses.replace(model, params=jax.tree.map(lambda leaf: leaf + 1, model.params))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


WRITERS = pytest.mark.parametrize("write", [sinkjax.save, sinkjax.export])


@WRITERS
@pytest.mark.parametrize("step", ["a file", "the second rename", "an interrupt"])
def test_a_write_that_breaks_off_leaves_the_old_model_as_it_was(write, step, model, other, tmp_path, monkeypatch):
    folder = write(model, tmp_path / "model")
    before, renames = contents(tmp_path), []

    def full(path, arrays):
        path.write_bytes(b"half")
        raise KeyboardInterrupt if step == "an interrupt" else OSError(28, "No space left on device")

    def rename(self, target, original=Path.rename):
        renames.append(self)
        if len(renames) == 2:
            raise OSError(28, "No space left on device")
        return original(self, target)

    if step == "the second rename":
        monkeypatch.setattr(temporary, "exchange", lambda one, other: False)  # as on a file system without it
        monkeypatch.setattr(Path, "rename", rename)
    else:
        monkeypatch.setattr(native, "write_safetensors", full)
    wanted = sum(leaf.nbytes for leaf in jax.tree.leaves(model.params))
    words = f"^cannot write {folder}: No space .* {wanted:,} bytes"
    with pytest.raises(KeyboardInterrupt) if step == "an interrupt" else pytest.raises(SinkjaxError, match=words):
        write(other, folder)
    assert contents(tmp_path) == before
    assert len(renames) == (3 if step == "the second rename" else 0)


KILLED = """
import os, sys, sinkjax
from sinkjax.config_files import files, temporary
model, (verb, folder, place) = sinkjax.load("mini-softmax"), sys.argv[1:]
def kill(*arguments): os.kill(os.getpid(), 9)
exchange = temporary.exchange
if place == "before": temporary.exchange = kill
if place == "after": temporary.exchange = lambda *names: (exchange(*names), kill())
if place == "new": os.rename = kill; files.Path.rename = kill
getattr(sinkjax, verb)(model, folder)
"""


@pytest.mark.parametrize("place", ["before", "after", "new"])
@pytest.mark.parametrize("verb", ["save", "export"])
def test_a_kill_while_a_model_is_replaced_leaves_one_and_the_next_write_removes_the_rest(verb, place, tmp_path):
    write, model = getattr(sinkjax, verb), sinkjax.load("mini-softmax")
    if place != "new":
        write(model, tmp_path / "model")
        (tmp_path / ".model.01234567.old").mkdir()
    done = subprocess.run([sys.executable, "-c", KILLED, verb, str(tmp_path / "model"), place], capture_output=True)
    assert done.returncode == -9
    assert len([*tmp_path.glob(".model.*.new")]) == 1
    if place != "new":
        assert_same(sinkjax.load(tmp_path / "model"), model)
    with temporary.named_after(tmp_path / "model", make=Path.mkdir) as alive:  # as of another process
        write(model, tmp_path / "model")
        assert sorted(tmp_path.iterdir()) == [alive, tmp_path / "model"]
    assert_same(sinkjax.load(tmp_path / "model"), model)


@WRITERS
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_bit_that_flips_in_what_was_written_is_named(write, name, tmp_path):
    folder = write(sinkjax.load("mini-softmax"), tmp_path / "model")
    sound = (folder / name).read_bytes()
    for tenth in range(1, 10):
        place = len(sound) * tenth // 10
        (folder / name).write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
        with pytest.raises(SinkjaxError, match=rf"model is damaged \({name} "):
            sinkjax.load(folder)
    (folder / SUMS).unlink()  # as in a model that was written before there were checksums
    (folder / name).write_bytes(sound)
    (folder / "README.md").write_text("mine")
    sinkjax.load(folder)
