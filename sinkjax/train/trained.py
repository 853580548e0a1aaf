"""A finished training read from its folder: parameters, outcome and cost of every run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from sinkjax.errors import SinkjaxError
from sinkjax.model.params import Params
from sinkjax.train.checkpoint import Checkpoints, Progress
from sinkjax.train.config import ALL_STEPS, Training
from sinkjax.train.log import same_config
from sinkjax.train.mirror import Mirror, called
from sinkjax.train.runs import Run, RunArrays, arrays, table
from sinkjax.train.state import RUNNING, STATUS, TrainState, begin
from sinkjax.train.task import Task


@dataclass(frozen=True)
class Ended:
    """A run that has ended.

    outcome: CONVERGED, DIVERGED, or ALL_STEPS if it made every step without reaching its goal. steps: number of updates.
    """

    run: Run
    outcome: str
    steps: int

    def labels(self) -> dict[str, Any]:
        return {**self.run.labels(), "outcome": self.outcome, "steps": self.steps}


@dataclass(frozen=True)
class Trained:
    """A finished training.

    params: leaves [runs, ...]; a diverged run has its last finite ones. folder: the folder of its files; for a training at a URL,
    the mirror's temporary folder, which is deleted with this object. milliseconds: mean wall time of one step of one run without
    compilation; None if every step was part of a first call.
    """

    folder: Path
    config: Training
    task: Task
    runs: tuple[Ended, ...]
    params: Params
    milliseconds: float | None
    mirror: Mirror | None = None

    @property
    def name(self) -> str:
        """The folder or URL of the training."""
        return called(self.folder, self.mirror)

    def groups(self) -> dict[tuple[str, float], list[Ended]]:
        """Runs by variant and learning rate."""
        groups: dict[tuple[str, float], list[Ended]] = {}
        for ended in self.runs:
            groups.setdefault((ended.run.variant, ended.run.learning_rate), []).append(ended)
        return groups

    def of(self, run: int) -> Params:
        """The parameters of one run."""
        return jax.tree.map(lambda leaf: leaf[run], self.params)


def load_trained(folder: Path, task: Task, mirror: Mirror | None) -> Trained:
    """Read a finished training of a task. mirror: see `Trained`. Errors: no checkpoint; unfinished runs; a config that has
    changed since the training started."""
    same_config(folder, task.config)
    with Checkpoints(folder, look_only=True) as checkpoints:
        if restored := checkpoints.restore(shapes(task)):
            return trained(folder, task, *restored, mirror)
    raise SinkjaxError(f"the training in {folder} has no checkpoint yet; rerun the command that started it to continue")


def trained(folder: Path, task: Task, state: TrainState, done: Progress, mirror: Mirror | None = None) -> Trained:
    """Return the finished runs of a state; raise if any is unfinished."""
    steps, left = np.asarray(state.step), going(state, task.config)
    if left:
        unfinished = f"{len(left)} of {len(steps)} runs continue from step {int(steps[left].max())}"
        raise SinkjaxError(f"the training in {folder} is not finished: {unfinished}; rerun the command that began it")
    outcomes = [STATUS[status] if status != RUNNING else ALL_STEPS for status in np.asarray(state.status)]
    ended = tuple(map(Ended, table(task.config, task), outcomes, steps.tolist()))
    milliseconds = 1000 * done.seconds / done.run_steps if done.run_steps else None
    return Trained(folder, task.config, task, ended, state.params, milliseconds, mirror)


def initial_state(task: Task, where: TrainState | None = None) -> TrainState:
    """Initialise the state of all runs. where: shardings in which each array is made, not split along runs; None: one device."""
    runs = table(task.config, task)
    begin: Callable[..., TrainState] = partial(_begin, config=task.config)
    draw: Callable[[int], Params] = task.init
    stack = lambda *trees: jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)  # noqa: E731
    if where is not None:
        each = jax.tree.map(lambda leaf: NamedSharding(leaf.mesh, PartitionSpec(*leaf.spec[1:])), where.params)
        drawn = jax.jit(task.init, out_shardings=each)
        draw = lambda seed: drawn(np.uint32(seed))  # noqa: E731
        stack, begin = jax.jit(stack, out_shardings=where.params), jax.jit(begin, out_shardings=where)
    # Seed by seed, because XLA compiles a small model's random numbers in two seconds, but in ten under vmap.
    params = {seed: draw(seed) for seed in {run.seed for run in runs}}
    return begin(stack(*(params[run.seed] for run in runs)), jax.tree.map(np.asarray, arrays(runs, task)))


@partial(jax.jit, static_argnames="config")
def _begin(params: Params, runs: RunArrays, config: Training) -> TrainState:
    return jax.vmap(lambda params, run: begin(params, run, config))(params, runs)


def shapes(task: Task) -> TrainState:
    """Return the shapes and dtypes of the state of all runs, without computing it."""
    runs = table(task.config, task)
    of_run = jax.eval_shape(lambda: task.init(task.config.seed))
    params = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((len(runs), *leaf.shape), leaf.dtype), of_run)
    return jax.eval_shape(partial(_begin, config=task.config), params, arrays(runs, task))


def going(state: TrainState, config: Training) -> list[int]:
    """Return the unfinished runs."""
    return np.flatnonzero((np.asarray(state.status) == RUNNING) & (np.asarray(state.step) < config.steps)).tolist()
