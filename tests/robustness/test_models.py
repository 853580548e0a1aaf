"""A model that was written stays whole until the next one is, and nothing that is not a model is overwritten."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax.checkpoints import native
from sinkjax.checkpoints.native import FILES
from sinkjax.config_files import temporary
from sinkjax.config_files.checksums import SUMS
from sinkjax.errors import SinkjaxError
from sinkjax.model import params
from tests.checkpoints.files import LLAMA, random_weights, write_folder
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
def test_a_new_model_takes_the_place_of_the_old_one_and_nothing_else_stays(write, model, other, tmp_path):
    folder = tmp_path / "deep" / "model"
    assert_same(sinkjax.load(write(model, folder)), model)
    assert_same(sinkjax.load(write(other, folder)), other)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    assert {path.name for path in folder.iterdir()} <= {*FILES}
    assert folder.stat().st_mode & 0o777 == (tmp_path / "deep").stat().st_mode & 0o777  # others may read it as before


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


@WRITERS
def test_what_is_no_model_is_left_alone(write, model, tmp_path):
    notes, mixed, llama = tmp_path / "notes", tmp_path / "mixed", tmp_path / "llama"
    notes.mkdir()
    for name in ("README.md", "model.safetensors", "tokenizer.json", "plan.txt"):
        (notes / name).write_text("mine")
    write(model, mixed)
    (mixed / "notes.txt").write_text("mine")
    write_folder(llama, LLAMA, random_weights(LLAMA))
    (llama / "generation_config.json").write_text("{}")
    (tmp_path / "file").write_text("mine")
    before = contents(tmp_path)
    for folder, sentence in (
        (notes, r"is not the folder of a model \(README.md, model.safetensors, plan.txt and 1 more\), so it is left alone"),
        (mixed, r"does not hold a model alone \(notes.txt\), so it is left alone"),
        (
            llama,
            "holds a model of type 'llama', which is left alone|does not hold a model alone .generation_config.json.*left alone",
        ),
        (tmp_path / "file", "file is a file; choose a folder for the model"),
    ):
        with pytest.raises(SinkjaxError, match=sentence):
            write(model, folder)
    assert contents(tmp_path) == before


@WRITERS
def test_an_empty_folder_is_taken(write, model, tmp_path):
    (tmp_path / "model").mkdir()
    assert_same(sinkjax.load(write(model, tmp_path / "model")), model)


@WRITERS
@pytest.mark.parametrize("name", [".", "../here", "absolute"])
def test_the_working_directory_is_no_folder_for_a_model(write, name, model, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(SinkjaxError, match="not the working directory"):
        write(model, tmp_path / "here" if name == "absolute" else name)
    assert contents(tmp_path) == {}


@WRITERS
def test_a_symbolic_link_is_not_followed(write, model, other, tmp_path):
    target = write(model, tmp_path / "model")
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "mine.md").write_text("mine")
    (target / "README.md").unlink()
    (target / "README.md").symlink_to(tmp_path / "mine.md")
    before = contents(tmp_path)
    for folder, sentence in (
        (tmp_path / "link", "link is a symbolic link"),
        (tmp_path / "dangling", "dangling is a symbolic link"),
        (target, r"does not hold a model alone \(README.md\)"),
    ):
        with pytest.raises(SinkjaxError, match=sentence):
            write(other, folder)
    assert contents(tmp_path) == before
    assert not (tmp_path / "nowhere").exists()


def broken(model, *leaves, value=np.nan):
    """A model with one number of some leaves of its layers replaced."""
    layers = {
        name: leaf.at[(0,) * leaf.ndim].set(value) if name in leaves else leaf for name, leaf in model.params["layers"].items()
    }
    return dataclasses.replace(model, params={**model.params, "layers": layers})


EDITS = [sinkjax.compose(), sinkjax.mask_key(0)]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_sweep_refuses_parameters_that_are_not_finite_by_name(value, model, tmp_path):
    tokens = np.arange(12).reshape(2, 6)
    with pytest.raises(SinkjaxError, match=r"^layers\.down, layers\.k hold NaN .*check=False"):
        sinkjax.sweep(broken(model, "k", "down", value=value), tokens, EDITS, out=tmp_path / "x.zarr")
    with pytest.raises(SinkjaxError, match=r"^layers\.k holds NaN"):
        sinkjax.sweep(broken(model, "k", value=value), tokens, EDITS)
    assert not (tmp_path / "x.zarr").exists()


def test_a_sweep_of_a_broken_model_can_be_asked_for(model):
    tokens = np.arange(12).reshape(2, 6)
    found = sinkjax.sweep(broken(model, "up"), tokens, EDITS, probe=sinkjax.Probe(nll=True), check=False)
    assert np.isinf(found.nll[..., :-1]).all()


def test_every_place_of_a_leaf_is_checked(model):
    leaf = model.params["layers"]["down"]
    for place in np.random.default_rng(0).integers(0, leaf.size, 50):
        params.check_finite({"down": leaf})
        with pytest.raises(SinkjaxError, match=r"^down holds"):
            params.check_finite({"down": leaf.at[np.unravel_index(place, leaf.shape)].set(np.nan)})


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_every_dtype_is_checked(dtype, model):
    cast = dataclasses.replace(model, params=jax.tree.map(lambda leaf: leaf.astype(dtype), model.params))
    tokens = np.arange(12).reshape(2, 6)
    sinkjax.sweep(cast, tokens, EDITS)
    largest = broken(cast, "k", value=jnp.finfo(dtype).max)
    sinkjax.sweep(largest, tokens, EDITS[:1], probe=sinkjax.Probe(resid_max=True))
    with pytest.raises(SinkjaxError, match=r"layers\.k holds NaN or infinity"):
        sinkjax.sweep(broken(cast, "k"), tokens, EDITS)


@WRITERS
def test_weights_that_are_not_finite_are_refused_unless_they_are_asked_for(write, model, tmp_path, monkeypatch):
    monkeypatch.setattr(native.np, "isfinite", np.ones_like)  # only so that they can be written
    folder = write(broken(model, "down"), tmp_path / "model")
    monkeypatch.undo()
    with pytest.raises(SinkjaxError, match=r"down.* of .*model holds NaN .*float32; check=False"):
        sinkjax.load(folder)
    loaded = sinkjax.load(folder, check=False)
    assert np.isnan(loaded.params["layers"]["down"]).sum() == 1
