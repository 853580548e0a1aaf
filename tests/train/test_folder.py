"""A run of a training becomes a model like any other."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax.tasks import load_runs, train
from sinkjax.tasks.language_model.config import Pretrain
from sinkjax.tasks.language_model.task import PretrainTask
from sinkjax.tasks.trigger.config import TriggerTraining
from sinkjax.train.folder import save_run

MINI = {"layers": 1, "width": 16, "heads": 2, "mlp_width": 24, "context": 24, "vocabulary": 300}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A finished training of two tiny language models."""
    small = Pretrain(**MINI, batch=4, steps=6, eval_every=3, eval_batch=4, seeds=2, warmup=2)
    open_text, opened = PretrainTask.open, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PretrainTask, "open", lambda *arguments: [opened.append(arguments), open_text(*arguments)][1])
        done = train(small, tmp_path_factory.mktemp("text") / "out", progress=False)
    assert len(opened) == 1  # and not once more for each model, when all is computed
    return done


def test_a_language_model_keeps_its_weights_its_tokenizer_and_its_loss(text, tmp_path):
    model = sinkjax.load(save_run(load_runs(text.folder), 1, tmp_path))
    card = (tmp_path / "README.md").read_text()
    for words in ("run 1 (seed 1", "| corpus | ", "| loss | ", "| sink | ", "training: pretrain", "| jax version |"):
        assert words in card
    assert str(text.folder) not in card
    jax.tree.map(np.testing.assert_array_equal, model.params, text.of(1))
    assert model.config == text.task.model("softmax")
    source = text.task.open(lambda line: None)
    held_out = source.held_out()
    assert model.tokenizer.backend.to_str() == source.tokenizer.backend.to_str()
    tokens, mask = held_out["tokens"], held_out["loss_mask"][:, 1:]
    nll = np.asarray(sinkjax.forward(model.params, tokens[:, :-1], model.config, probe=sinkjax.Probe(nll=True)).record["nll"])
    logged = text.task.evaluate(text.of(1), held_out, 0)["loss"]
    mask = mask[:, :-1].astype(bool)  # the last target is beyond what the forward was given
    assert nll[:, :-1][mask].mean() == pytest.approx(float(logged), rel=0.02)
    assert sinkjax.encode(model, ["It was"], bos="model", length=8)[0][0, 0] == model.tokenizer.bos


def test_a_model_of_the_trigger_task_is_saved_with_its_own_normaliser(tmp_path):
    config = TriggerTraining(normalisers=("softmax", "relu-index"), steps=4, eval_every=2, batch=4, eval_batch=4)
    done = train(config, tmp_path / "out", progress=False)
    model = sinkjax.load(save_run(done, 1, tmp_path / "model"))
    assert (type(model.config.normaliser).__name__, model.tokenizer) == ("ReLU", None)
    jax.tree.map(np.testing.assert_array_equal, model.params, done.of(1))
