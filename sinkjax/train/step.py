"""Computation of one call: a scan over many steps of a run, then an evaluation on held-out data.

Random bits for training data come from JAX's threefry or from `HASH`, which hashes a counter and the two words of a key with the
32-bit mixer "lowbias32" (C. Wellons, 2018, public domain). `HASH` is cheap even compared with a small model; it is not
cryptographic and never used for parameters. Its statistics are tested, and each word depends only on (key, index), also under
vmap. Time saved: docs/results/benchmarks-full.md, "Random bits for training data".
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.random import define_prng_impl

from sinkjax.model.params import Params
from sinkjax.runtime.settings import random_key
from sinkjax.train.config import AdamWTraining, Training
from sinkjax.train.runs import RunArrays
from sinkjax.train.state import BROKEN, RUNNING, STOPPED, TrainState, optimiser_of
from sinkjax.train.task import Task

GOLDEN = 0x9E3779B9  # 2^32 over the golden ratio: an odd number without a pattern
WORDS = {8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32}


def key(seed: int, name: str, generator: str) -> jax.Array:
    """Make a stream's key. generator: "threefry" or "hash"."""
    start = jax.random.key(seed, impl=HASH) if generator == "hash" else random_key(seed)
    return jax.random.fold_in(start, zlib.crc32(name.encode()))


def mix(x: jax.Array) -> jax.Array:
    """Permute the 32-bit words so that every input bit flips about half of the output bits."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def _seed(seed: jax.Array) -> jax.Array:
    word = jnp.asarray(seed).astype(jnp.uint32)
    return jnp.stack([mix(word ^ jnp.uint32(GOLDEN)), mix(mix(word) + jnp.uint32(GOLDEN))])


def _fold_in(words: jax.Array, data: jax.Array | int) -> jax.Array:
    first = mix(words[0] ^ mix(jnp.asarray(data).astype(jnp.uint32) + jnp.uint32(GOLDEN)))
    return jnp.stack([first, mix(words[1] + first)])


def _split(words: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    numbers = jax.lax.iota(jnp.uint32, math.prod(shape))
    return jax.vmap(lambda number: _fold_in(words, number))(numbers).reshape(*shape, 2)


def _bits(words: jax.Array, width: int, shape: tuple[int, ...]) -> jax.Array:
    if width == 64:
        high, low = (_bits(_fold_in(words, half), 32, shape).astype(jnp.uint64) for half in (0, 1))
        return (high << 32) | low
    index = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    return mix(mix(index ^ words[0]) + words[1]).astype(WORDS[width])


HASH = define_prng_impl(
    key_shape=(2,), seed=_seed, split=_split, random_bits=_bits, fold_in=_fold_in, name="sinkjax_hash32", tag="hash"
)


Metrics = dict[str, jax.Array]
Used = Callable[[Params], Params]


def advance(
    state: TrainState, run: RunArrays, limit: jax.Array, batches: Any, held_out: Any, task: Task, used: Used
) -> tuple[TrainState, Metrics]:
    """Advance one run to step `limit`, int32 [], by at most `eval_every` steps, and evaluate it.

    batches, held_out: data read on the host (batches with a leading axis of `eval_every`), None for data generated on the device.
    used: maps the state's parameters to the ones used in the computation, which are the same numbers in another layout. A run
    that stops earlier keeps its state. A negative limit leaves the run unchanged, with zero metrics.
    """

    def go(state: TrainState) -> tuple[TrainState, Metrics]:
        def step(state: TrainState, batch: Any) -> tuple[TrainState, Any]:
            going = (state.status == RUNNING) & (state.step < limit)
            idle = lambda state: (state, (jnp.float32(jnp.nan), jnp.float32(jnp.nan)))  # noqa: E731
            state, curve = jax.lax.cond(going, lambda state: update(state, run, batch, task, used), idle, state)
            return state, curve if isinstance(task.config, AdamWTraining) else None

        state, curves = jax.lax.scan(step, state, batches, length=task.config.eval_every)
        stream = key(task.config.data_seed, "held-out data", task.config.random_bits)
        metrics = task.evaluate(used(state.params), held_out if task.on_host else task.held_out(stream), run.variant)
        return state, metrics if curves is None else metrics | _watched(*curves)

    metrics = jax.eval_shape(lambda: go(state)[1])
    stay = lambda state: (state, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), metrics))  # noqa: E731
    return jax.lax.cond(limit >= 0, go, stay, state)


def update(
    state: TrainState, run: RunArrays, batch: Any, task: Task, used: Used = lambda params: params
) -> tuple[TrainState, tuple[jax.Array, jax.Array]]:
    """Make one step, without an update if the batch reaches the goal or its loss or gradient is not finite.

    batch: read on the host, or None. Also returns the loss and the squared norm of the gradient.
    """
    import optax

    if not task.on_host:
        batch = task.batch(data_key(task.config, run.seed, state.step))
    (loss, reached), gradient = gradient_of(state.params, batch, run.variant, task, used, state.step)
    squared = optax.tree.norm(gradient, squared=True)
    finite = jnp.isfinite(loss) & jnp.isfinite(squared)

    def move(state: TrainState) -> TrainState:
        changes, optimiser = optimiser_of(task.config, run.learning_rate).update(gradient, state.optimiser, state.params)
        return TrainState(optax.apply_updates(state.params, changes), optimiser, state.step + 1, state.status)

    def stop(state: TrainState) -> TrainState:
        return dataclasses.replace(state, status=jnp.where(finite, STOPPED, BROKEN).astype(jnp.int32))

    return jax.lax.cond(finite & ~reached, move, stop, state), (loss.astype(jnp.float32), squared.astype(jnp.float32))


def gradient_of(
    params: Params, batch: Any, variant: jax.Array, task: Task, used: Used = lambda params: params, step: jax.Array | None = None
) -> tuple[tuple[jax.Array, jax.Array], Params]:
    """Return ((loss, reached), gradient) of a batch, averaged over the config's micro-batches, if any. step: see `Task.loss`."""
    config, of = task.config, jax.value_and_grad(lambda params, rows: task.loss(used(params), rows, variant, step), has_aux=True)
    if not isinstance(config, AdamWTraining) or config.micro_batch in (None, config.batch):
        return of(params, batch)

    def add(sums: Any, group: Any) -> tuple[Any, jax.Array]:
        (loss, reached), gradient = of(params, group)
        return jax.tree.map(jnp.add, sums, (loss.astype(jnp.float32), gradient)), reached

    zeros = (jnp.float32(0), jax.tree.map(jnp.zeros_like, params))
    (loss, gradient), reached = jax.lax.scan(add, zeros, grouped(batch, config.micro_batch))
    loss, gradient = jax.tree.map(lambda leaf: leaf / reached.size, (loss, gradient))
    return (loss, reached.all()), gradient


def grouped(batch: Any, rows: int) -> Any:
    """Split a batch into groups of `rows`, [groups, rows, ...], padded with rows of zeros.

    A group takes every n-th row, so that each device's rows (adjacent in a mesh) are spread over all groups.
    """

    def group(leaf: jax.Array) -> jax.Array:
        padded = jnp.pad(leaf, ((0, -len(leaf) % rows), *[(0, 0)] * (leaf.ndim - 1)))
        return padded.reshape(rows, -1, *leaf.shape[1:]).swapaxes(0, 1)

    return jax.tree.map(group, batch)


def _watched(losses: jax.Array, squares: jax.Array) -> Metrics:
    """Return log entries for the steps of a call, [K] each, with NaN for skipped steps."""
    norms = jnp.sqrt(squares)
    return {
        "train_loss": jnp.nanmean(losses),
        "gradient_norm": jnp.nanmean(norms),
        "gradient_norm_max": jnp.nanmax(norms, initial=-jnp.inf),
    }


def data_key(config: Training, seed: jax.Array, step: jax.Array) -> jax.Array:
    """Make the key of a run's batch from (data seed, run's seed, step), or from (data seed, step) if the data are shared."""
    stream = key(config.data_seed, "training data", config.random_bits)
    return jax.random.fold_in(stream if config.shared_data else jax.random.fold_in(stream, seed), step)
