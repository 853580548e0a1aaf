"""Runs are dealt to devices evenly, each to a slot of its own, and an empty slot costs nothing."""

from __future__ import annotations

import subprocess
import sys

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


@given(st.integers(1, 70), st.integers(1, 8), st.sampled_from(["map", "vmap"]))
def test_slots_hold_all_that_go_on_and_change_few_times(runs, devices, together):
    spread = object.__new__(RunParallel)
    spread.runs, spread.together, spread.devices = runs, together, list(range(min(devices, runs)))
    sizes = [spread.slots(going) for going in range(1, runs + 1)]
    assert all(size >= going and size % len(spread.devices) == 0 for going, size in enumerate(sizes, 1))
    assert sizes == sorted(sizes)
    assert len({*sizes}) <= (1 if together == "map" else 2 + np.log2(runs))


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


WIDE = """
import jax
jax.config.update("jax_num_cpu_devices", 4)
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from sinkjax.model import params
from sinkjax.model.config import Config, NoPosition
from sinkjax.tasks.language_model.task import measure

shape = {"layers": 4, "width": 128, "heads": 1, "kv_heads": 1, "head_dim": 8, "mlp_width": None, "vocab_size": 16, "context": 8}
config = Config(**shape, norm=None, position=NoPosition(), activation="silu", tied=True)
specs = {"in_specs": (PartitionSpec(), PartitionSpec("run")), "out_specs": PartitionSpec("run"), "check_vma": False}
on_device = lambda p, rows: jax.lax.map(lambda tokens: measure(p, tokens, config, "highest"), rows)
each = jax.jit(jax.shard_map(on_device, mesh=Mesh(jax.devices(), ("run",)), **specs))
for _ in range(20):
    found = jax.block_until_ready(each(params.init(config, 0), jnp.zeros((4, 2, 9), jnp.int32)))
print(found["spectrum"].shape)
"""


def test_devices_of_one_cpu_that_measure_at_once_do_not_wait_for_each_other():
    """They did, for ever, on two cores: LAPACK took the layers' decompositions as a batch."""
    done = subprocess.run([sys.executable, "-c", WIDE], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == "(4, 4, 128)"
