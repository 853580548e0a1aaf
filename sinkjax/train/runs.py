"""Runs of a training: one per variant, learning rate and seed, in this order."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from sinkjax.train.config import Training
from sinkjax.train.task import Task


@dataclass(frozen=True)
class Run:
    """One run: its index, and its differences from the others."""

    run: int
    seed: int
    learning_rate: float
    variant: str

    def label(self) -> str:
        """Describe the run as text."""
        return f"run {self.run} (seed {self.seed}, learning rate {self.learning_rate:g}, {self.variant})"

    def labels(self) -> dict[str, Any]:
        """Return the entries of a log line that identify its run."""
        return asdict(self)


@struct.dataclass
class RunArrays:
    """A run as input of a step: seed int32, learning_rate float32, variant int32; [] or stacked over runs [R]."""

    seed: jax.Array
    learning_rate: jax.Array
    variant: jax.Array


def table(config: Training, task: Task) -> tuple[Run, ...]:
    seeds = range(config.seed, config.seed + config.seeds)
    every = itertools.product(task.variants, config.learning_rates, seeds)
    return tuple(Run(number, seed, rate, variant) for number, (variant, rate, seed) in enumerate(every))


def arrays(runs: tuple[Run, ...], task: Task) -> RunArrays:
    return RunArrays(
        jnp.asarray(np.array([run.seed for run in runs], np.int32)),
        jnp.asarray(np.array([run.learning_rate for run in runs], np.float32)),
        jnp.asarray(np.array([task.variants.index(run.variant) for run in runs], np.int32)),
    )
