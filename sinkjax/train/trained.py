"""A finished training read from its folder: parameters, outcome and cost of every run."""

from __future__ import annotations

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
from sinkjax.train.checkpoint import Checkpoints
from sinkjax.train.config import ALL_STEPS, Training
from sinkjax.train.mirror import Mirror, called
from sinkjax.train.prefetch import same_config
from sinkjax.train.runs import Run, RunArrays, arrays, table
from sinkjax.train.state import RUNNING, STATUS, TrainState, begin
from sinkjax.train.task import Task


@dataclass(frozen=True)
class Ended:
    """Outcome of a run.

    outcome: CONVERGED, DIVERGED, or ALL_STEPS if it made every step without reaching its goal. steps: number of updates.
    """

    run: Run
    outcome: str
    steps: int

    def labels(self) -> dict[str, Any]:
        return {**self.run.labels(), "outcome": self.outcome, "steps": self.steps}


@dataclass(frozen=True)
class Trained:
    """A finished training. params: leaves [runs, ...]; a diverged run has its last finite ones. folder: the folder of its files;
    for a training at a URL, the mirror's temporary folder, which is deleted with this object. milliseconds: mean wall time of one
    step of one run without compilation; None if every step was part of a first call.
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
        found: dict[tuple[str, float], list[Ended]] = {}
        for ended in self.runs:
            found.setdefault((ended.run.variant, ended.run.learning_rate), []).append(ended)
        return found

    def of(self, run: int) -> Params:
        return jax.tree.map(lambda leaf: leaf[run], self.params)


def load_trained(folder: Path, task: Task, mirror: Mirror | None = None) -> Trained:
    """Read a finished training of a task. mirror: see `Trained`. Errors: no checkpoint; unfinished runs; a config that has
    changed since the training started."""
    config = task.config
    same_config(folder, config)
    with Checkpoints(folder, look_only=True) as checkpoints:
        found = checkpoints.restore(shapes(task, config))
    if found is None:
        raise SinkjaxError(f"the training in {folder} has no checkpoint yet; rerun the command that started it to continue")
    state, meta = found
    return trained(folder, task, state, meta, mirror)


def trained(folder: Path, task: Task, state: TrainState, meta: dict[str, Any], mirror: Mirror | None = None) -> Trained:
    """Return the finished runs of a state; raise if any is unfinished."""
    config = task.config
    left = going(state, config)
    if left:
        raise SinkjaxError(
            f"the training in {folder} is not finished: {len(left)} of {len(state.step)} runs continue from step "
            f"{int(np.asarray(state.step)[left].max())}; rerun the command that began it to continue it"
        )
    ended = tuple(
        Ended(run, STATUS[status] if status != RUNNING else ALL_STEPS, int(step))
        for run, status, step in zip(table(config, task), np.asarray(state.status), np.asarray(state.step), strict=True)
    )
    milliseconds = 1000 * meta["seconds"] / meta["run_steps"] if meta["run_steps"] else None
    return Trained(folder, config, task, ended, state.params, milliseconds, mirror)


def begin_all(task: Task, config: Training) -> tuple[TrainState, RunArrays]:
    """Initialise the stacked state of all runs, and the table of runs."""
    every = table(config, task)
    # Seed by seed, because XLA compiles a small model's random numbers in two seconds, but in ten under vmap.
    params = {seed: task.init(seed) for seed in {run.seed for run in every}}
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(params[run.seed] for run in every))
    runs = arrays(every, task)
    return _begin(stacked, runs, config), runs


@partial(jax.jit, static_argnames="config")
def _begin(params: Params, runs: RunArrays, config: Training) -> TrainState:
    return jax.vmap(lambda params, run: begin(params, run, config))(params, runs)


def shapes(task: Task, config: Training) -> TrainState:
    """Return the shapes and dtypes of the state of all runs, without computing it."""
    every = table(config, task)
    one = jax.eval_shape(lambda: task.init(config.seed))
    params = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((len(every), *leaf.shape), leaf.dtype), one)
    return jax.eval_shape(partial(_begin, config=config), params, arrays(every, task))


def begin_divided(task: Task, config: Training, where: TrainState) -> TrainState:
    """Initialise the state of `begin_all` with each array made in place. where: the shardings, not split along runs."""
    every = table(config, task)
    runs = jax.tree.map(np.asarray, arrays(every, task))
    each = jax.tree.map(lambda leaf: NamedSharding(leaf.mesh, PartitionSpec(*leaf.spec[1:])), where.params)
    draw = jax.jit(task.init, out_shardings=each)
    params = {seed: draw(np.uint32(seed)) for seed in {run.seed for run in every}}
    stack = jax.jit(lambda *trees: jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees), out_shardings=where.params)
    stacked = stack(*(params[run.seed] for run in every))
    return jax.jit(partial(_begin, config=config), out_shardings=where)(stacked, runs)


def going(state: TrainState, config: Training) -> list[int]:
    """Return the unfinished runs."""
    return np.flatnonzero((np.asarray(state.status) == RUNNING) & (np.asarray(state.step) < config.steps)).tolist()
