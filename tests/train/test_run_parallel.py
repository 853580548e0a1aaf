"""Runs are dealt to devices evenly, each to a slot of its own, and an empty slot costs nothing."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkjax.train import step
from sinkjax.train.run_parallel import RunParallel, deal
from sinkjax.train.runs import arrays, table
from sinkjax.train.trained import initial_state
from tests.train.linear import Linear, Regression


@given(st.integers(1, 9), st.integers(1, 5), st.data())
def test_a_deal_gives_each_run_one_slot_and_each_device_its_share(devices, each, data):
    slots = devices * each
    going = data.draw(st.lists(st.integers(0, 99), min_size=1, max_size=slots, unique=True))
    numbers, places = deal(going, devices, slots)
    assert numbers[places].tolist() == going
    assert (np.delete(numbers, places) > 99).all()
    counts = np.bincount(places // each, minlength=devices)
    assert counts.max() - counts.min() <= 1


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
