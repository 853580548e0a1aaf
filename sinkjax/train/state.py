"""The state of a run: parameters, optimiser, step, and whether it still goes on."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from flax import struct

from sinkjax.model.params import Params
from sinkjax.train.config import CONVERGED, DIVERGED, Training
from sinkjax.train.optimiser import optimiser_of
from sinkjax.train.runs import RunArrays

RUNNING, STOPPED, BROKEN = range(3)
STATUS = ("running", CONVERGED, DIVERGED)


@struct.dataclass
class TrainState:
    """One run, or many stacked on a leading axis.

    step: int32 [], updates made. status: int32 [], RUNNING, STOPPED (its task's goal was reached; the parameters are those that
    reached it) or BROKEN (loss or gradient were not finite; the parameters are the last before that), in words STATUS.
    """

    params: Params
    optimiser: optax.OptState
    step: jax.Array
    status: jax.Array


def begin(params: Params, run: RunArrays, config: Training) -> TrainState:
    """The state of one run before its first step."""
    return TrainState(params, optimiser_of(config, run.learning_rate).init(params), jnp.int32(0), jnp.int32(RUNNING))
