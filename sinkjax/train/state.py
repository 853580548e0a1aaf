"""State of a run (parameters, optimiser, step, status), its optimiser, and the memory that it needs.

The optimiser is Adam at a constant rate or, for an `AdamWTraining`, AdamW with warm-up, decay and clipping.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import struct

from sinkjax.model.params import Params, abstract
from sinkjax.model.quantisation import MATRICES, rotate
from sinkjax.runtime import extras
from sinkjax.train.config import CONVERGED, DIVERGED, AdamWTraining, Training
from sinkjax.train.runs import RunArrays, table
from sinkjax.train.task import Task

if TYPE_CHECKING:
    import optax


RUNNING, STOPPED, BROKEN = range(3)
HEADS = ("q", "k", "v", "o")  # matrices with one side split into two axes
TOKENS = {"embed": 0, "unembed": 1, "unembed_bias": 0}  # the axis of the vocabulary
STATUS = ("running", CONVERGED, DIVERGED)


@struct.dataclass
class TrainState:
    """One run, or many stacked on a leading axis.

    step: int32 [], number of updates. status: int32 [], RUNNING, STOPPED (these parameters reached the task's goal) or BROKEN (a
    loss or gradient was not finite; the parameters are the last ones before that). STATUS has their names.
    """

    params: Params
    optimiser: optax.OptState
    step: jax.Array
    status: jax.Array


def begin(params: Params, run: RunArrays, config: Training) -> TrainState:
    """Initialise the state of one run."""
    return TrainState(params, optimiser_of(config, run.learning_rate).init(params), jnp.int32(0), jnp.int32(RUNNING))


def optimiser_of(config: Training, learning_rate: jax.Array) -> optax.GradientTransformation:
    """Make a run's optimiser. learning_rate: float [], the maximum of its schedule."""
    extras.require("training", "train")
    import optax

    if not isinstance(config, AdamWTraining):
        return optax.adam(learning_rate, config.beta1, config.beta2)

    def schedule(count: jax.Array) -> jax.Array:
        return learning_rate * factor(config, count)

    decay, rate = optax.add_decayed_weights(config.weight_decay), optax.scale_by_learning_rate(schedule)
    match config.optimiser:
        case "sgd":
            made = optax.chain(optax.trace(config.momentum), decay, rate)
        case "muon":
            made = muon(config, schedule)
        case "orthoadam":
            made = optax.chain(scale_by_orthoadam(config), decay, rate)
        case _:
            made = optax.adamw(schedule, config.beta1, config.beta2, weight_decay=config.weight_decay)
    return made if config.clip is None else optax.chain(optax.clip_by_global_norm(config.clip), made)


def muon(config: AdamWTraining, schedule: Callable[[jax.Array], jax.Array]) -> optax.GradientTransformation:
    """Use Muon (Jordan et al. 2024) for stacked matrices, one per block, and AdamW with Nesterov momentum for the rest."""
    from optax import contrib

    def matrices(params: Params) -> Any:
        def axes(path: tuple, leaf: jax.Array) -> Any:
            inputs = MATRICES.get(path[-1].key)
            if inputs is None or leaf.ndim < 3:
                return None
            begin = leaf.ndim - (3 if path[-1].key in HEADS else 2)  # leading axes: blocks and experts
            inputs = min(inputs, leaf.ndim - begin - 1)
            return contrib.MuonDimensionNumbers(tuple(range(begin, begin + inputs)), tuple(range(begin + inputs, leaf.ndim)))

        return jax.tree_util.tree_map_with_path(axes, params)

    return contrib.muon(
        schedule,
        beta=config.beta2,
        weight_decay=config.weight_decay,
        adam_b1=config.beta1,
        adam_b2=config.beta2,
        adam_weight_decay=config.weight_decay,
        muon_weight_dimension_numbers=matrices,
    )


def scale_by_orthoadam(config: AdamWTraining) -> optax.GradientTransformation:
    """Adam with the moments of rotated gradients (OrthoAdam, Kaul et al. 2024, arXiv 2410.17174).

    A fixed randomised Hadamard matrix turns every axis of an array, except those of layers and of the vocabulary. The paper draws
    an orthogonal matrix for each array.
    """
    import optax

    adam = optax.scale_by_adam(config.beta1, config.beta2)

    def update(gradient: Params, state: optax.OptState, params: Params | None = None) -> tuple[Params, optax.OptState]:
        step, state = adam.update(rotated(gradient), state, params)
        return rotated(step, back=True), state

    return optax.GradientTransformation(adam.init, update)


def rotated(tree: Params, back: bool = False) -> Params:
    """Rotate every axis of each array in a tree of parameters, except the axes of layers and of the vocabulary."""

    def each(path: tuple, leaf: jax.Array) -> jax.Array:
        kept = 0 if path[0].key == "layers" else TOKENS.get(path[-1].key)
        for axis in range(leaf.ndim):
            if axis != kept:
                leaf = jnp.moveaxis(rotate(jnp.moveaxis(leaf, axis, -1), back), -1, axis)
        return leaf

    return jax.tree_util.tree_map_with_path(each, tree)


def factor(config: AdamWTraining, count: jax.Array) -> jax.Array:
    """Return the learning rate factor of the update that follows `count` others, float32 []."""
    count = jnp.asarray(count, jnp.float32)
    warm = jnp.minimum(1, (count + 1) / max(1, config.warmup))
    if config.schedule == "constant":
        return warm
    done = jnp.clip((count - config.warmup) / max(1, config.steps - config.warmup), 0, 1)
    return warm * (config.lowest + (1 - config.lowest) * (1 + jnp.cos(jnp.pi * done)) / 2)


def training_bytes(task: Task) -> dict[str, int]:
    """Estimate bytes by part, for a run on one device.

    The part kept for the gradient is the residuals of the loss of a (micro-)batch. The compiler may keep less, and needs some
    memory itself.
    """
    rows = getattr(task.config, "micro_batch", None) or task.config.batch
    params = jax.eval_shape(task.init, 0)
    batch = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((rows, *leaf.shape[1:]), leaf.dtype), task.batch_shapes())
    kept = jax.eval_shape(lambda params, batch: jax.vjp(lambda p: task.loss(p, batch, jnp.int32(0))[0], params)[1], params, batch)
    return {
        "weights and optimiser": _state_bytes(task.config, params),
        "gradient": _size(params),
        f"kept for the gradient of {rows} sequences": _size(kept),
    }


def least_bytes(task: Task) -> int:
    """Return a training's minimum memory: the state of all runs, plus a call's batches if they come from the host."""
    config, leaves = task.config, abstract(task.model(task.variants[0]))
    runs = table(config, task)
    state = _state_bytes(config, jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, config.dtype), leaves))
    batch = _size(task.batch_shapes()) if task.on_host else 0
    return state * len(runs) + batch * config.eval_every * len({run.seed for run in runs})


def _state_bytes(config: Training, params: Params) -> int:
    """Return the bytes of a run's parameters and optimiser."""
    return _size(params) + _size(jax.eval_shape(lambda params: optimiser_of(config, jnp.float32(0)).init(params), params))


def _size(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
