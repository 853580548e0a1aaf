"""The layer of ReLU attention that solves the trigger task exactly, through the forward of every other model."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax.probes.probe import Probe
from sinkjax.tasks.trigger.config import Trigger
from sinkjax.tasks.trigger.data import sample, targets
from sinkjax.tasks.trigger.task import solution

EXACT = 1e-12


@pytest.mark.parametrize("data", [Trigger(), Trigger(width=4, length=3), Trigger(width=7, length=24, first=5, last=11)], ids=str)
def test_no_loss_and_no_weight_on_bos(data: Trigger):
    with jax.enable_x64(True):
        x, _, j = sample(jax.random.key(0), data, 300)
        x = jnp.asarray(x, jnp.float64)
        y = targets(x, j, data)
        params, config = solution(data)
        out = sinkjax.forward(params, x, config, probe=Probe(attention=(0,)), logits=False)
        error = np.asarray(out.output - y)
        weights = np.asarray(out.record["attention"])[:, 0, 0]
    assert error.dtype == np.float64
    assert np.square(error).mean() < EXACT**2
    assert np.abs(error).max() < EXACT
    assert np.abs(weights[:, :, 0]).max() == 0
    own = weights[np.arange(300), np.asarray(j)]
    averaged = (np.arange(data.length) >= 1) & (np.arange(data.length) <= np.asarray(j)[:, None])
    assert np.abs(own - averaged / np.asarray(j)[:, None]).max() < EXACT
    assert np.abs(weights).sum() == pytest.approx(np.abs(own).sum())


def test_the_same_weights_under_softmax_solve_nothing():
    """What makes it exact is ReLU: softmax of the same scores spreads every other row evenly."""
    import dataclasses

    from sinkjax.model.normalisers import Softmax

    data = Trigger()
    x, y, _ = sample(jax.random.key(1), data, 300)
    params, config = solution(data, "float32")
    config = dataclasses.replace(config, normaliser=Softmax())
    out = sinkjax.forward(params, x, config, probe=Probe(), logits=False)
    assert float(jnp.square(out.output - y).mean()) > float(jnp.square(y).mean())
