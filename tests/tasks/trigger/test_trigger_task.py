"""The trigger task, trained: softmax sinks on BOS, ReLU solves it without a sink; and what it refuses."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax.probes.probe import Probe
from sinkjax.tasks import train
from sinkjax.tasks.trigger.config import TriggerTraining
from sinkjax.tasks.trigger.data import sample
from sinkjax.tasks.trigger.task import TriggerTask, model, task
from sinkjax.train.log import read

SMALL = TriggerTraining(
    normalisers=("softmax", "relu-index"), steps=1500, batch=32, eval_batch=64, eval_every=300, width=6, length=6
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    config = dataclasses.replace(SMALL, learning_rates=(3e-3,))
    return train(config, tmp_path_factory.mktemp("trigger") / "small", progress=False)


def test_both_normalisers_solve_the_task_in_one_program_and_only_softmax_sinks(trained):
    assert [ended.outcome for ended in trained.runs] == ["converged", "converged"]
    softmax, relu = (next(line for line in reversed(read(trained.folder)[1]) if line["run"] == run) for run in (0, 1))
    for line in (softmax, relu):
        assert line["loss"] < 1e-5
    assert softmax["bos"][0][0] > 0.97
    assert relu["bos"][0][0] < 0.01
    x, y, _ = sample(jax.random.key(5), trained.config.data, 100)
    for run, normaliser in enumerate(trained.config.normalisers):
        out = sinkjax.forward(trained.of(run), x, model(trained.config, normaliser), probe=Probe(), logits=False)
        assert float(jnp.square(out.output - y).mean()) < 1e-5


def test_a_variant_has_the_loss_and_gradient_of_its_normaliser_alone():
    names = ("softmax", "relu-none", "relu-index", "sigmoid", "elu", "softpick", "clipped", "off-by-one")
    together = task(dataclasses.replace(SMALL, normalisers=names, init_std=0.5))
    batch = together.batch(jax.random.key(0))
    params = together.init(3)
    both = jax.jit(jax.value_and_grad(together.loss, has_aux=True))
    for number, name in enumerate(names):
        alone = TriggerTask(dataclasses.replace(SMALL, normalisers=(name,), init_std=0.5))
        got, want = (
            both(params, batch, jnp.int32(number)),
            jax.jit(jax.value_and_grad(alone.loss, has_aux=True))(params, batch, 0),
        )
        for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_an_evaluation_measures_attention_as_defined():
    config = dataclasses.replace(SMALL, layers=2, heads=3, normalisers=("elu",), init_std=0.3)
    chosen = task(config)
    params, (x, y, j) = chosen.init(1), chosen.held_out(jax.random.key(2))
    found = chosen.evaluate(params, (x, y, j), 0)
    out = sinkjax.forward(params, x, model(config), probe=Probe(attention=(0, 1)), logits=False)
    maps, j = np.asarray(out.record["attention"], np.float64), np.asarray(j)
    rows = [(b, i) for b in range(len(j)) for i in range(1, 6) if i != j[b]]
    for layer in range(2):
        for head in range(3):
            own = maps[:, layer, head]
            np.testing.assert_allclose(found["bos"][layer, head], np.mean([own[b, i, 0] for b, i in rows]), rtol=1e-5)
            share = np.mean([own[b, i, 0] / np.abs(own[b, i]).sum() for b, i in rows])
            np.testing.assert_allclose(found["bos_share"][layer, head], share, rtol=1e-5)
            at_trigger = np.mean([own[b, j[b], 0] for b in range(len(j))])
            np.testing.assert_allclose(found["bos_trigger"][layer, head], at_trigger, rtol=1e-5)
    assert float(found["largest_error"]) == float(jnp.abs(out.output - y).max())


def test_a_penalty_and_an_escape_are_what_their_fields_say():
    config = dataclasses.replace(SMALL, layers=2, heads=2, normalisers=("softmax",), init_std=0.5)
    plain, charged = task(config), task(dataclasses.replace(config, penalty=0.1))
    params, batch = plain.init(0), plain.batch(jax.random.key(1))
    extra = charged.loss(params, batch, 0)[0] - plain.loss(params, batch, 0)[0]
    assert float(extra) == pytest.approx(0.1 * float(plain.evaluate(params, batch, 0)["bos"].mean()), rel=1e-4)
    gated = dataclasses.replace(SMALL, gate=True, normalisers=("softmax",), escape=4.0)
    x, _, j = sample(jax.random.key(0), gated.data, 50)
    logits = np.einsum("btd,dh->bt", x, task(gated).init(0)["layers"]["head_gate"][0])
    trigger = np.arange(6) == np.asarray(j)[:, None]
    np.testing.assert_allclose(logits, np.where(trigger, 4, np.where(np.arange(6) > 0, -4, 0)), atol=0.3)
    sink = task(dataclasses.replace(SMALL, normalisers=("sink-logit",), escape=4.0)).init(0)["layers"]["normaliser"]["sink"]
    np.testing.assert_array_equal(sink, 4)
