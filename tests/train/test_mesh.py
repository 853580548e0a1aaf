"""A run sharded over devices learns what it learns on one."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sinkjax.errors import SinkjaxError
from sinkjax.tasks.backcopy import task as backcopy
from sinkjax.tasks.backcopy.config import BackcopyTraining
from sinkjax.tasks.language_model import task as pretrain
from sinkjax.tasks.language_model.config import Pretrain
from sinkjax.train.mesh import mesh_of, place_held_out
from sinkjax.train.run_parallel import RunParallel
from sinkjax.train.runs import arrays, table
from sinkjax.train.step import gradient_of
from sinkjax.train.trained import initial_state

pytestmark = pytest.mark.mesh

MODEL = {"vocabulary": 300, "context": 16, "layers": 1, "width": 16, "heads": 2, "mlp_width": 24}
SMALL = Pretrain(**MODEL, batch=8, eval_batch=8, steps=6, eval_every=3, warmup=0, learning_rates=(1e-3,), seeds=2)


def trained(config: Pretrain, batches: dict):
    task = pretrain.task(config)
    devices = RunParallel(task, 2)
    state, runs = devices.begin(), arrays(table(config, task), task)
    held_out = {name: leaf[0, 0] for name, leaf in batches.items()}
    for number, going in enumerate(([0, 1], [1])):
        some = {name: leaf[going] for name, leaf in batches.items()}
        state, metrics = devices.advance(state, runs, going, 3 * number + 3, some, held_out)
    return state, metrics


def test_on_a_mesh_a_run_learns_what_it_learns_on_one_device(rng):
    tokens = rng.integers(0, 300, (2, 3, 8, 17)).astype(np.int32)
    batches = {"tokens": tokens, "loss_mask": np.ones(tokens.shape, bool)}
    alone, measured = trained(SMALL, batches)
    state, found = trained(dataclasses.replace(SMALL, mesh=(4, 2), micro_batch=4), batches)
    assert np.asarray(state.step).tolist() == np.asarray(alone.step).tolist() == [3, 6]
    for one, two in zip(jax.tree.leaves(state.params), jax.tree.leaves(alone.params), strict=True):
        np.testing.assert_allclose(one, two, atol=2e-4)
    np.testing.assert_allclose(found["loss"], measured["loss"], rtol=1e-4)
    for leaves in (state.params, state.optimiser[1][0].mu, state.optimiser[1][0].nu):
        up = leaves["layers"]["up"]  # [run, layer, width, mlp]: the width over "data", the units over "model"
        assert up.addressable_shards[0].data.shape == (2, 1, 16 // 4, 24 // 2)


def test_a_state_is_drawn_where_it_is_stored_with_the_bits_of_one_device():
    task = pretrain.task(dataclasses.replace(SMALL, mesh=(4, 2)))
    devices = RunParallel(task, 2)
    for leaf, want, where in zip(*map(jax.tree.leaves, (devices.begin(), initial_state(task), devices.where)), strict=True):
        np.testing.assert_array_equal(leaf, want)
        assert leaf.sharding == where


def test_the_rows_of_a_micro_batch_and_of_an_evaluation_are_divided_among_devices():
    task = pretrain.task(dataclasses.replace(SMALL, micro_batch=4, eval_batch=16))
    batch = {"tokens": np.ones((16, 17), np.int32), "loss_mask": np.ones((16, 17), bool)}

    def flops(function, devices: int) -> float:
        mesh = Mesh(np.array(jax.devices()[:devices]).reshape(devices, 1), ("data", "model"))
        params = jax.device_put(task.init(0), NamedSharding(mesh, PartitionSpec()))
        return jax.jit(function).lower(params, place_held_out(batch, mesh)).compile().cost_analysis()["flops"]  # of one device

    for function in (
        lambda params, rows: gradient_of(params, rows, 0, task),
        lambda params, rows: task.evaluate(params, rows, 0),
    ):
        assert flops(function, 4) < 0.4 * flops(function, 1)


def test_joined_processes_share_a_text_over_all_devices(monkeypatch):
    assert mesh_of(pretrain.task(SMALL)) is None
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    assert mesh_of(pretrain.task(SMALL)).shape == {"data": 8, "model": 1}
    for fields, words in (
        ({"mesh": (2, 1)}, r"mesh \[2, 1\] leaves out"),
        ({"batch": 12}, r"\(micro-\)batch of 12 .* 8 devices"),
    ):
        with pytest.raises(SinkjaxError, match=words):
            mesh_of(pretrain.task(dataclasses.replace(SMALL, **fields)))


def test_a_mesh_that_cannot_divide_a_training_is_refused():
    """No device may hold all of a state without a word."""
    wide = dataclasses.replace(SMALL, width=18, heads=9)
    copy = BackcopyTraining(layers=1, width=16, mlp_width=16, batch=8, context=8, text="packaged")
    for module, config, mesh, words in (
        (pretrain, wide, (4, 1), r"mesh \[4, 1\] .*width, .*18 .* 4"),
        (pretrain, SMALL, (8, 4), r"mesh \[8, 4\] .*32 devices, .* 8"),
        (backcopy, copy, (2, 1), r"on the device; .*\[1, 1\]"),
    ):
        with pytest.raises(SinkjaxError, match=words):
            mesh_of(module.task(dataclasses.replace(config, mesh=mesh)))
    state = RunParallel(pretrain.task(dataclasses.replace(wide, mesh=(2, 1))), 2).begin()
    matrices = [leaf for leaf in jax.tree.leaves(state.params) if leaf.ndim > 1 and 18 in leaf.shape]
    assert all(leaf.addressable_shards[0].data.size == leaf.size // 2 for leaf in matrices)
