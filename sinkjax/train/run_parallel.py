"""Distribute runs over devices.

Each device computes its runs together (vmap) or in sequence (map). If there is a mesh, each run is sharded over all of its
devices instead (`sinkjax/train/mesh.py`). The devices belong to all joined processes.

With 64 runs of the trigger task (one layer, one head) on two CPU devices, a step of a run takes 0.41 ms of processor time in
sequence and 0.66 ms together. Both ways agree to rounding. Runs are redistributed whenever some end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from sinkjax.model.params import Params
from sinkjax.runtime import processes
from sinkjax.train.mesh import gather, mesh_of, place_batches, place_held_out, placement, rows_here
from sinkjax.train.runs import RunArrays
from sinkjax.train.state import TrainState
from sinkjax.train.step import Metrics, advance
from sinkjax.train.task import Task
from sinkjax.train.trained import initial_state, shapes

T = TypeVar("T")
AXIS = PartitionSpec("run")


class RunParallel:
    """The devices of a training and the compiled call.

    parallel: the mesh of devices that share each run, or None. mesh: the devices that share the runs. together: "vmap" or "map",
    resolved. where, layout: shardings of the state of all runs between calls, and shapes with them.
    """

    def __init__(self, task: Task, runs: int):
        self.task, self.runs, together = task, runs, task.config.together
        self.parallel = mesh_of(task)
        # Every joined process takes part, even without runs.
        count = jax.device_count() if processes.joined() else min(runs, jax.device_count())
        self.devices = list(self.parallel.devices.flat) if self.parallel else jax.devices()[:count]
        in_sequence = self.parallel or self.devices[0].platform == "cpu"
        self.together = together if together != "auto" else ("map" if in_sequence else "vmap")
        self.mesh = Mesh(np.array(self.devices[:1] if self.parallel else self.devices), ("run",))
        self.compiled: set[int] = set()  # numbers of slots used so far
        # If runs are distributed, every joined process needs the state of all of them between calls.
        everywhere = NamedSharding(self.mesh, PartitionSpec()) if processes.joined() else None
        self.home = everywhere or SingleDeviceSharding(self.devices[0])
        every = shapes(task)
        self.where = placement(every, task, self.parallel) if self.parallel else jax.tree.map(lambda leaf: self.home, every)
        self.layout = jax.tree.map(lambda leaf, at: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=at), every, self.where)

    def begin(self) -> TrainState:
        """Initialise the state of all runs, placed on the devices."""
        state = initial_state(self.task, self.where if self.parallel else None)
        return state if self.parallel or not isinstance(self.home, NamedSharding) else processes.place(state, self.home)

    def rows(self, rows: int) -> np.ndarray | None:
        """Return the rows of a batch of `rows` that this process needs; None for all."""
        return rows_here(self.parallel, rows) if self.parallel else None

    def advance(
        self, state: TrainState, runs: RunArrays, going: Sequence[int], limit: int, batches: Any = None, held_out: Any = None
    ) -> tuple[TrainState, Metrics]:
        """Advance the runs `going` to step `limit`; return the new state of all runs, and the metrics of `going` in order.

        state, runs: of all runs [R]. batches (leaves [going, steps of a call, ...], the `rows` of each), held_out: data read on
        the host, if any.
        """
        self.compiled.add(self.slots(len(going)))
        call = partial(_advance, task=self.task, together=self.together, mesh=self.mesh, parallel=self.parallel)
        every = np.arange(self.runs)
        # With a mesh, each run is on all devices, in the slot of its number.
        slots, places = (every, np.array(going)) if self.parallel else deal(going, len(self.devices), self.slots(len(going)))
        rows, limits = np.zeros(len(slots), np.int32), np.full(len(slots), -1, np.int32)
        rows[places], limits[places] = np.arange(len(going)), limit
        batches = jax.tree.map(lambda leaf: leaf[rows], batches)
        if self.parallel:
            data = place_batches(batches, self.parallel, self.task.config.batch), place_held_out(held_out, self.parallel)
            state, metrics = call(jax.device_put(state, self.where), runs, limits, *data)
            return state, jax.tree.map(lambda leaf: np.asarray(leaf)[places], metrics)
        if self.mesh.size == 1 and np.array_equal(slots, every):
            return call(state, runs, jnp.asarray(limits), batches, held_out)
        some, of_some = _take((state, runs), slots)
        part, metrics = call(*jax.device_put((some, of_some, limits, batches), NamedSharding(self.mesh, AXIS)), held_out)
        part, metrics = jax.device_put((part, metrics), self.home)
        return _put(state, part, slots), _take(metrics, places)

    def slots(self, going: int) -> int:
        """Return the number of run slots in a call: a multiple of the number of devices. Each number needs one compilation.

        Empty slots cost nothing in sequence, so their number stays; under vmap they cost time, so it is halved when possible.
        """
        each = -(-self.runs // len(self.devices))
        while self.together == "vmap" and each > 1 and going <= len(self.devices) * (each - each // 2):
            each -= each // 2
        return each * len(self.devices)


def deal(going: Sequence[int], devices: int, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Deal runs to devices evenly.

    Returns the run in each slot, int [slots], with a device's slots adjacent and an out-of-range index in empty ones; and the
    slot of each run of `going`, int [len(going)].
    """
    each = slots // devices
    hand = np.arange(len(going))
    places = (hand % devices) * each + hand // devices
    numbers = np.full(slots, np.iinfo(np.int32).max, np.int32)
    numbers[places] = going
    return numbers, places


@partial(jax.jit, static_argnames=("task", "together", "mesh", "parallel"), donate_argnums=0)
def _advance(*given: Any, task: Task, together: str, mesh: Mesh, parallel: Mesh | None) -> tuple[TrainState, Metrics]:
    """Advance runs. given: their state, run arrays, limits and batches, and the held-out data."""

    def used(params: Params) -> Params:
        return gather(params, task, parallel) if parallel else params

    def on_device(*given: Any) -> tuple[TrainState, Metrics]:
        *each, held_out = given
        run = partial(advance, held_out=held_out, task=task, used=used)
        return jax.vmap(run)(*each) if together == "vmap" else jax.lax.map(lambda args: run(*args), tuple(each))

    if parallel:
        state, metrics = on_device(*given)
        where = placement(state, task, parallel), NamedSharding(parallel, PartitionSpec())
        return jax.lax.with_sharding_constraint(state, where[0]), jax.lax.with_sharding_constraint(metrics, where[1])
    if mesh.size == 1:
        return on_device(*given)
    specs = (AXIS, AXIS, AXIS, AXIS, PartitionSpec())
    return jax.shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=AXIS, check_vma=False)(*given)


@jax.jit
def _take(tree: T, numbers: jax.Array) -> T:
    return jax.tree.map(lambda leaf: leaf.at[numbers].get(mode="clip"), tree)


@partial(jax.jit, donate_argnums=0)
def _put(state: TrainState, part: TrainState, numbers: jax.Array) -> TrainState:
    return jax.tree.map(lambda leaf, new: leaf.at[numbers].set(new, mode="drop"), state, part)
