"""Runs are dealt to devices evenly, each to a slot of its own, and an empty slot costs nothing."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from sinkjax.train import step
from sinkjax.train.run_parallel import RunParallel
from sinkjax.train.runs import arrays, table
from sinkjax.train.trained import initial_state
from tests.train.linear import Linear, Regression


@pytest.mark.mesh
@pytest.mark.parametrize("together", ["map", "vmap"])
def test_runs_that_have_ended_stay_as_they_are_while_the_others_go_on(together):
    config = Linear(seeds=5, batch=8, eval_every=10, together=together)
    task = Regression(config)
    state, runs = initial_state(task), arrays(table(config, task), task)
    before = jax.tree.map(np.array, state)
    going = [1, 2, 8]
    after, metrics = RunParallel(task, 10).advance(state, runs, going, 7)
    assert np.asarray(after.step).tolist() == [0, 7, 7, 0, 0, 0, 0, 0, 7, 0]
    assert metrics["errors"].shape == (3, 2)
    for old, new in zip(jax.tree.leaves(before.params), jax.tree.leaves(after.params), strict=True):
        same = [np.array_equal(a, b) for a, b in zip(old, np.asarray(new), strict=True)]
        assert same == [run not in going for run in range(10)]
    held_out = task.held_out(step.key(config.data_seed, "held-out data", config.random_bits))
    losses = [task.evaluate({n: leaf[run] for n, leaf in after.params.items()}, held_out, 0)["loss"] for run in going]
    np.testing.assert_allclose(metrics["loss"], losses, rtol=1e-4)
