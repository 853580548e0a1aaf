"""A training keeps its models at chosen steps: those of the very steps, whatever interrupts it, and nothing else changes."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax.checkpoints.series import in_folder, series_path
from sinkjax.config_files import documents
from sinkjax.tasks import registry, train
from sinkjax.tasks.language_model.config import Pretrain
from sinkjax.train import loop
from sinkjax.train.folder import remove_unfinished
from sinkjax.train.log import read

SIZES = {"layers": 1, "width": 16, "heads": 2, "mlp_width": 24, "context": 24, "vocabulary": 300, "limit": 60_000}
SMALL = Pretrain(**SIZES, warmup=2, batch=4, steps=12, eval_every=5, eval_batch=4, seeds=2, checkpoints=(0, 3, 10, 12))


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return train(SMALL, tmp_path_factory.mktemp("series") / "out", progress=False)


def bits(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.safetensors")}


def same(one, two):
    return jax.tree.all(jax.tree.map(lambda a, b: np.asarray(a).tobytes() == np.asarray(b).tobytes(), one, two))


def test_the_models_of_the_chosen_steps_are_those_of_shorter_trainings(done, tmp_path):
    kept = sorted(path.parent.name for path in (done.folder / "series" / "run-001").rglob("config.json"))
    assert kept == ["step-000000", "step-000003", "step-000010", "step-000012"]
    shorter = train(dataclasses.replace(SMALL, steps=3, checkpoints=0), tmp_path / "shorter", progress=False)
    model = sinkjax.load(series_path(done.folder, 1, 3))
    assert same(model.params, shorter.of(1))
    assert model.tokenizer is not None
    assert same(sinkjax.load(series_path(done.folder, 1, 12)).params, done.of(1))
    assert same(sinkjax.load(series_path(done.folder, 0, 0)).params, done.task.init(0))
    plain = train(dataclasses.replace(SMALL, checkpoints=0), tmp_path / "plain", progress=False)
    assert same(plain.params, done.params)
    assert [line["step"] for line in read(done.folder)[1] if line["run"] == 0] == [0, 3, 5, 10, 12]


@pytest.mark.parametrize("save_every", [0, 1e9])
def test_what_an_interrupted_training_keeps_is_what_an_undisturbed_one_keeps(save_every, done, tmp_path, monkeypatch):
    """It is killed once its second model is kept and not yet in a checkpoint: it goes on from the one before, or from nothing."""
    original, calls = loop.keep, []

    def interrupted(*given):
        original(*given)
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt

    out = tmp_path / "out"
    monkeypatch.setattr(loop, "keep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(SMALL, out, save_every=save_every, progress=False)
    assert series_path(out, 1, 3).is_dir()
    monkeypatch.setattr(loop, "keep", original)
    train(SMALL, out, progress=False)
    assert bits(out / "series") == bits(done.folder / "series")
    assert len(bits(out / "series")) == 8
    assert (out / "log.jsonl").read_bytes() == (done.folder / "log.jsonl").read_bytes()


def test_a_number_of_checkpoints_is_log_spaced_from_the_first_model_to_the_last():
    kept = Pretrain(steps=3000, checkpoints=24).kept
    assert (len(kept), kept[:3], kept[-1]) == (24, (0, 30, 37), 3000)
    assert 1.2 < (np.array(kept[2:]) / kept[1:-1])[5:].min() < (np.array(kept[2:]) / kept[1:-1]).max() < 1.25
    assert [Pretrain(steps=50, checkpoints=count).kept for count in range(3)] == [(), (50,), (0, 50)]


def test_a_training_of_before_this_field_is_read():
    text = documents.write("pretrain", dataclasses.replace(SMALL, checkpoints=0), "training").replace("checkpoints: 0\n", "")
    assert "checkpoints" not in documents.parse(text, "it")
    assert registry.read(text, "it", written=True) == dataclasses.replace(SMALL, checkpoints=0)


def test_what_a_killed_process_was_writing_is_no_model_of_the_series(tmp_path):
    for step in ("step-000000", ".step-000003.ab12cd34.new"):
        (tmp_path / "series" / "run-000" / step).mkdir(parents=True)
        (tmp_path / "series" / "run-000" / step / "config.json").write_text("{}")
    (tmp_path / "models" / ".run-000.ab12cd34.new").mkdir(parents=True)
    assert [member.label for member in in_folder(tmp_path)] == ["run-000/step-000000"]
    remove_unfinished(tmp_path)
    assert [path.name for path in tmp_path.glob("series/*/*")] == ["step-000000"]
    assert not list((tmp_path / "models").iterdir())
