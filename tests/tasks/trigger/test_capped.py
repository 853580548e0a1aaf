"""BOS's mass held at a value: the edit, and a training under it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax.edits.term import per_prompt
from sinkjax.model import params as model_params
from sinkjax.probes.probe import Probe
from sinkjax.tasks.trigger import capped
from sinkjax.tasks.trigger.config import CappedTraining
from sinkjax.tasks.trigger.data import sample
from sinkjax.tasks.trigger.task import model

MAPS = Probe(attention=(0,))


def other_rows(triggers, length: int):
    """All rows of each sequence except BOS's and the trigger's."""
    return per_prompt([tuple(row for row in range(1, length) if row != trigger) for trigger in np.asarray(triggers).tolist()])


@pytest.fixture(scope="module")
def inputs() -> tuple:
    config = CappedTraining(width=9, length=6)
    data = sample(jax.random.key(0), config.data, 50)
    return model(config), model_params.init(model(config), jnp.int32(1), "float32", 0.5), data


@pytest.mark.parametrize("mass", [0.0, 0.3, 0.99, 1.0])
def test_the_mass_is_held_and_nothing_else_changes(inputs: tuple, mass: float):
    config, params, (x, _, j) = inputs
    rows = other_rows(j, config.context)
    run = lambda edits: np.asarray(sinkjax.forward(params, x, config, edits, MAPS, logits=False).record["attention"])[:, 0, 0]  # noqa: E731
    before, after = run(()), run(capped.held(mass, rows))
    row = np.arange(config.context)
    other = (row > 0) & (row != np.asarray(j)[:, None])
    assert np.allclose(after[..., 0][other], mass, atol=1e-7)
    assert np.allclose(after.sum(axis=-1), 1, atol=1e-6)
    assert np.array_equal(after[~other], before[~other])
    rest, was = after[..., 1:][other], before[..., 1:][other]
    assert np.allclose(rest, was / was.sum(axis=-1, keepdims=True) * (1 - mass), atol=1e-6)


def test_a_training_sees_the_same_weights_as_the_edit(inputs: tuple):
    config, params, batch = inputs
    task = capped.task(CappedTraining(width=9, length=6, caps=(0.2, 0.7)))
    output, record = task._run(params, batch, jnp.int32(1), MAPS)
    edited = sinkjax.forward(params, batch[0], config, capped.held(0.7, other_rows(batch[2], 6)), MAPS, logits=False)
    assert np.allclose(output, edited.output, atol=1e-6)
    assert np.allclose(record["attention"], edited.record["attention"], atol=1e-6)
