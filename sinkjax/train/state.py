"""The state of a run (parameters, optimiser, step, status) and its optimiser.

Adam at a constant rate, or, for an `AdamWTraining`, AdamW with warm-up, decay and clipping.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from flax import struct

from sinkjax import extras
from sinkjax.model.params import Params
from sinkjax.train.config import CONVERGED, DIVERGED, AdamWTraining, Training
from sinkjax.train.runs import RunArrays

if TYPE_CHECKING:
    import optax

RUNNING, STOPPED, BROKEN = range(3)
STATUS = ("running", CONVERGED, DIVERGED)


@struct.dataclass
class TrainState:
    """One run, or many stacked on a leading axis.

    step: int32 [], updates made. status: int32 [], RUNNING, STOPPED (the goal of its task was reached, by these parameters) or
    BROKEN (loss or gradient was not finite; the parameters are the last ones before that); STATUS in words.
    """

    params: Params
    optimiser: optax.OptState
    step: jax.Array
    status: jax.Array


def begin(params: Params, run: RunArrays, config: Training) -> TrainState:
    """The state of one run before its first step."""
    return TrainState(params, optimiser_of(config, run.learning_rate).init(params), jnp.int32(0), jnp.int32(RUNNING))


def optimiser_of(config: Training, learning_rate: jax.Array) -> optax.GradientTransformation:
    """The optimiser of a run. learning_rate: float [], the highest of its schedule."""
    extras.require("training", "train", "optax")
    import optax

    if not isinstance(config, AdamWTraining):
        return optax.adam(learning_rate, config.beta1, config.beta2)
    adamw = optax.adamw(
        lambda count: learning_rate * factor(config, count), config.beta1, config.beta2, weight_decay=config.weight_decay
    )
    return adamw if config.clip is None else optax.chain(optax.clip_by_global_norm(config.clip), adamw)


def factor(config: AdamWTraining, count: jax.Array) -> jax.Array:
    """The factor on the learning rate in the update after `count` others, float32 []."""
    count = jnp.asarray(count, jnp.float32)
    warm = jnp.minimum(1, (count + 1) / max(1, config.warmup))
    if config.schedule == "constant":
        return warm
    done = jnp.clip((count - config.warmup) / max(1, config.steps - config.warmup), 0, 1)
    return warm * (config.lowest + (1 - config.lowest) * (1 + jnp.cos(jnp.pi * done)) / 2)
