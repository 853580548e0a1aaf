"""A run divided among devices learns what it learns on one."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sinkjax.data.batches import Batch
from sinkjax.errors import SinkjaxError
from sinkjax.tasks.backcopy import task as backcopy
from sinkjax.tasks.backcopy.config import BackcopyTraining
from sinkjax.tasks.language_model import task as pretrain
from sinkjax.tasks.language_model.config import Pretrain
from sinkjax.train.mesh import mesh_of, place_batches, place_held_out, rows_here
from sinkjax.train.run_parallel import RunParallel
from sinkjax.train.step import gradient_of
from sinkjax.train.trained import begin_all

pytestmark = pytest.mark.mesh

SMALL = Pretrain(
    vocabulary=300,
    context=16,
    batch=8,
    eval_batch=8,
    steps=6,
    eval_every=3,
    warmup=0,
    learning_rates=(1e-3,),
    layers=1,
    width=16,
    heads=2,
    mlp_width=24,
    seeds=2,
)


def trained(config: Pretrain, batches: Batch):
    task = pretrain.task(config)
    state, runs = begin_all(task, config)
    spread = RunParallel(task, config, 2)
    held_out = {name: leaf[0, 0] for name, leaf in batches.items()}
    for number, going in enumerate(([0, 1], [1])):
        some = {name: leaf[going] for name, leaf in batches.items()}
        state, metrics = spread.advance(state, runs, going, 3 * number + 3, some, held_out)
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
    assert {len(leaf.sharding.device_set) for leaf in jax.tree.leaves(state.params)} == {8}
    for leaves in (state.params, state.optimiser[1][0].mu, state.optimiser[1][0].nu):
        up = leaves["layers"]["up"]  # [run, layer, width, mlp]: the width over "data", the units over "model"
        assert up.addressable_shards[0].data.shape == (2, 1, 16 // 4, 24 // 2)


def test_a_state_is_drawn_where_it_lies_with_the_bits_of_one_device():
    config = dataclasses.replace(SMALL, mesh=(4, 2))
    devices = RunParallel(pretrain.task(config), config, 2)
    divided, alone = devices.begin(), begin_all(pretrain.task(config), config)[0]
    for leaf, want, where in zip(*map(jax.tree.leaves, (divided, alone, devices.where)), strict=True):
        np.testing.assert_array_equal(leaf, want)
        assert leaf.sharding == where


def test_a_device_gets_its_rows_of_a_batch_and_no_others(rng):
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
    whole = rng.integers(0, 300, (2, 3, 8, 17))
    assert rows_here(mesh, 8).tolist() == [*range(8)]
    placed = place_batches({"tokens": whole}, mesh, 8)["tokens"]
    np.testing.assert_array_equal(placed, whole)
    for shard in placed.addressable_shards:
        number = jax.devices().index(shard.device) // 2
        np.testing.assert_array_equal(shard.data, whole[:, :, 2 * number : 2 * number + 2])


def test_processes_that_are_joined_divide_a_text_over_all_devices(monkeypatch):
    task = pretrain.task(SMALL)
    assert mesh_of(SMALL, task) is None
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    assert mesh_of(SMALL, task).shape == {"data": 8, "model": 1}
    for fields, sentence in (
        ({"mesh": (2, 1)}, r"mesh \[2, 1\] leaves out some of the 8 devices of the joined processes"),
        ({"batch": 12}, r"a \(micro-\)batch of 12 sequences is not divisible by 8 devices"),
    ):
        config = dataclasses.replace(SMALL, **fields)
        with pytest.raises(SinkjaxError, match=sentence):
            mesh_of(config, pretrain.task(config))


def test_the_rows_of_a_micro_batch_are_divided_among_devices():
    config = dataclasses.replace(SMALL, micro_batch=4)
    task = pretrain.task(config)
    tokens = np.zeros((8, 17), np.int32)
    batch = {"tokens": tokens, "loss_mask": np.ones(tokens.shape, bool)}
    params = jax.eval_shape(task.init, 0)

    def work(devices: int) -> float:
        mesh = Mesh(np.array(jax.devices()[:devices]), ("data",))
        place = lambda spec: lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))  # noqa: E731
        given = jax.tree.map(place(PartitionSpec()), params), jax.tree.map(place(PartitionSpec("data")), batch)
        step = jax.jit(lambda params, batch: gradient_of(params, batch, 0, task, config))
        return step.lower(*given).compile().cost_analysis()["flops"]  # of one device

    alone, shared = work(1), work(4)
    assert shared < 0.4 * alone


def test_the_rows_of_an_evaluation_are_divided_among_devices():
    def flops(mesh):
        config = dataclasses.replace(SMALL, mesh=mesh, batch=8, eval_batch=16)
        task = pretrain.task(config)
        spread = Mesh(np.array(jax.devices()[: mesh[0]]).reshape(mesh), ("data", "model"))
        params = jax.device_put(task.init(0), NamedSharding(spread, PartitionSpec()))
        rows = {"tokens": np.ones((16, 17), np.int32), "loss_mask": np.ones((16, 17), bool)}
        evaluate = jax.jit(lambda params, batch: task.evaluate(params, batch, 0))
        return evaluate.lower(params, place_held_out(rows, spread)).compile().cost_analysis()["flops"]  # of one device

    assert flops((4, 1)) < 0.35 * flops((1, 1))


@pytest.mark.parametrize("mesh", [(3, 1), (0, 1)])
def test_a_mesh_must_divide_the_batch(mesh):
    with pytest.raises(SinkjaxError, match="mesh must be two numbers"):
        dataclasses.replace(SMALL, mesh=mesh)


def test_a_mesh_must_divide_the_width():
    """No device may hold all of a state without a word."""
    config = dataclasses.replace(SMALL, width=18, heads=9, mesh=(4, 1))
    with pytest.raises(SinkjaxError, match=r"mesh \[4, 1\] .*width, .*18 .* 4"):
        RunParallel(pretrain.task(config), config, 2)
    state = RunParallel(pretrain.task(config), dataclasses.replace(config, mesh=(2, 1)), 2).begin()
    matrices = [leaf for leaf in jax.tree.leaves(state.params) if leaf.ndim > 1 and 18 in leaf.shape]
    assert all(leaf.addressable_shards[0].data.size == leaf.size // 2 for leaf in matrices)


def test_a_mesh_does_not_divide_batches_that_each_device_would_make():
    config = BackcopyTraining(layers=1, width=16, mlp_width=16, batch=8, context=8, text="packaged", mesh=(2, 1))
    with pytest.raises(SinkjaxError, match=r"on the device; .*\[1, 1\]"):
        RunParallel(backcopy.task(config), config, 1)
    RunParallel(backcopy.task(config), dataclasses.replace(config, mesh=(1, 2)), 1)


def test_a_mesh_needs_its_devices():
    config = dataclasses.replace(SMALL, mesh=(8, 4))
    with pytest.raises(SinkjaxError, match=r"mesh \[8, 4\] .*32 devices, .* 8"):
        RunParallel(pretrain.task(config), config, 2)
