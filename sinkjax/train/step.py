"""What one call computes: many steps of a run in a scan, then an evaluation on held-out data."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import optax

from sinkjax.train import bits
from sinkjax.train.config import Training
from sinkjax.train.runs import RunArrays
from sinkjax.train.state import BROKEN, RUNNING, STOPPED, TrainState, adam
from sinkjax.train.task import Task

Metrics = dict[str, jax.Array]


def advance(state: TrainState, run: RunArrays, limit: jax.Array, task: Task, config: Training) -> tuple[TrainState, Metrics]:
    """Bring one run to step `limit`, int32 [], by at most `eval_every` steps, and evaluate it.

    A run that stops on the way keeps its state. A negative limit means that nothing is to be done: the metrics are zeros.
    """

    def go(state: TrainState) -> tuple[TrainState, Metrics]:
        def step(state: TrainState, _: None) -> tuple[TrainState, None]:
            going = (state.status == RUNNING) & (state.step < limit)
            return jax.lax.cond(going, lambda state: update(state, run, task, config), lambda state: state, state), None

        state, _ = jax.lax.scan(step, state, length=config.eval_every)
        held_out = task.held_out(bits.key(config.data_seed, "held-out data", config.random_bits))
        return state, task.evaluate(state.params, held_out, run.variant)

    metrics = jax.eval_shape(lambda: go(state)[1])
    stay = lambda state: (state, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), metrics))  # noqa: E731
    return jax.lax.cond(limit >= 0, go, stay, state)


def update(state: TrainState, run: RunArrays, task: Task, config: Training) -> TrainState:
    """One step: no update on a batch on which the goal is reached, nor after a loss or gradient that is not finite."""
    batch = task.batch(data_key(config, run.seed, state.step))
    (loss, reached), gradient = jax.value_and_grad(task.loss, has_aux=True)(state.params, batch, run.variant)
    finite = jnp.isfinite(loss) & jnp.isfinite(optax.tree.norm(gradient, squared=True))

    def move(state: TrainState) -> TrainState:
        changes, optimiser = adam(config, run.learning_rate).update(gradient, state.optimiser, state.params)
        return TrainState(optax.apply_updates(state.params, changes), optimiser, state.step + 1, state.status)

    def stop(state: TrainState) -> TrainState:
        return dataclasses.replace(state, status=jnp.where(finite, STOPPED, BROKEN).astype(jnp.int32))

    return jax.lax.cond(finite & ~reached, move, stop, state)


def data_key(config: Training, seed: jax.Array, step: jax.Array) -> jax.Array:
    """The key of a run's batch: of (data seed, seed of the run, step), or of (data seed, step) if the data are shared."""
    stream = bits.key(config.data_seed, "training data", config.random_bits)
    return jax.random.fold_in(stream if config.shared_data else jax.random.fold_in(stream, seed), step)
