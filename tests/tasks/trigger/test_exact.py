"""The layer of ReLU attention that solves the trigger task exactly, through the forward of every other model."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax.probes.probe import Probe
from sinkjax.tasks.trigger.config import Trigger, TriggerTraining
from sinkjax.tasks.trigger.data import BIAS, TRIGGER_FLAG, sample, targets
from sinkjax.tasks.trigger.task import model

EXACT = 1e-12


def solution(data: Trigger) -> tuple[dict, sinkjax.Config]:
    """Build a layer of ReLU attention with zero loss and no weight on BOS (Ran-Milo 2026, Theorem 3).

    The construction is ours, for sequences with BOS as the only token before the ordinary ones. The query reads the trigger flag,
    the key the trigger flag and the bias channel: q.k is 1 between the trigger's row and every token but BOS, and 0 elsewhere.
    ReLU keeps these scores, the divisor max(i, 1) turns row j into the mean of tokens 1 to j, and W_V = W_O = I copies it.
    """
    n = data.width
    query = jnp.zeros((1, n, 1, n)).at[0, TRIGGER_FLAG, 0, 0].set(1)
    key = jnp.zeros((1, n, 1, n)).at[0, jnp.array([TRIGGER_FLAG, n + BIAS]), 0, 0].set(1)
    copy = jnp.eye(n)
    params = {"layers": {"q": query, "k": key, "v": copy[None, :, None, :], "o": copy[None, None]}}
    return params, model(TriggerTraining(width=n, length=data.length, normalisers=("relu-index",)))


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
