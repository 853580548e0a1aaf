"""One run on many devices: the batch is sharded along the mesh axis "data", matrices along "model".

Between steps, parameters and optimiser state are sharded along both axes, with the residual stream's axis along "data" (fully
sharded data parallelism). We only specify the placement of arrays; XLA partitions a step accordingly.
"""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sinkjax.config_files.checks import refuse
from sinkjax.model import params
from sinkjax.model.params import Params
from sinkjax.runtime import processes
from sinkjax.train.config import AdamWTraining
from sinkjax.train.state import TrainState
from sinkjax.train.task import Task

T = TypeVar("T")
STORED = params.RULES | {"width": "data"}  # logical axis -> mesh axis, between steps


def mesh_of(task: Task) -> Mesh | None:
    """Return the mesh that a config requests, or None. Joined processes shard batches read on the host over all devices by
    default.

    Errors: too few devices, or not all devices of the joined processes; batches that every device would generate in full; a
    (micro-)batch or width that is not divisible by the devices, so that each would store a whole state.
    """
    config = task.config
    if not isinstance(config, AdamWTraining):
        return None
    shape, here = config.mesh, jax.device_count()
    if shape == (1, 1):
        if not (processes.joined() and task.on_host):
            return None
        shape, rows = (here, 1), config.micro_batch or config.batch
        refuse(rows % here > 0, f"a (micro-)batch of {rows} sequences is not divisible by {here} devices; change it, or set mesh")
    count, mesh, width = shape[0] * shape[1], f"mesh {list(shape)}", task.model(task.variants[0]).width
    refuse(count > here, f"{mesh} needs {count} devices, and there are {here}")
    some = processes.joined() and count < here
    refuse(some, f"{mesh} leaves out some of the {here} devices of the joined processes")
    generated = "mesh shards batches read on the host, but these are generated on the device"
    refuse(shape[0] > 1 and not task.on_host, f"{generated}; choose [1, {shape[1]}]")
    whole = f"{mesh} shards parameters along the width, and {width} is not divisible by {shape[0]}"
    refuse(width % shape[0] > 0, whole)
    return Mesh(np.array(jax.devices()[:count]).reshape(shape), ("data", "model"))


def placement(state: TrainState, task: Task, mesh: Mesh) -> TrainState:
    """Return the sharding between steps for each leaf of a state of many runs. state: arrays or shapes."""
    leaves = jax.tree_util.tree_leaves_with_path(params.abstract(task.model(task.variants[0])))
    specs = {jax.tree_util.keystr(path): params.sharding(leaf, mesh, STORED).spec for path, leaf in leaves}

    def place(path: tuple, leaf: jax.Array) -> NamedSharding:
        name = jax.tree_util.keystr(path)
        spec = next((spec for end, spec in specs.items() if name.endswith(end) and leaf.ndim == len(spec) + 1), ())
        return NamedSharding(mesh, PartitionSpec(None, *spec))

    return jax.tree_util.tree_map_with_path(place, state)


def gather(values: Params, task: Task, mesh: Mesh) -> Params:
    """Gather one run's traced parameters for a step: each device has all of them, except for shards along "model".

    Otherwise XLA would shard the residual stream like the parameters, and exchange activations instead of parameters.
    """
    where = jax.tree.map(lambda leaf: params.sharding(leaf, mesh), params.abstract(task.model(task.variants[0])))
    return jax.lax.with_sharding_constraint(values, where)


def rows_here(mesh: Mesh, rows: int) -> np.ndarray:
    """Return the rows of a batch of `rows` on this process's devices, int64, ascending."""
    held = NamedSharding(mesh, PartitionSpec("data")).addressable_devices_indices_map((rows,))
    return np.unique(np.concatenate([np.arange(rows)[index] for index in held.values()]))


def place_batches(batches: T, mesh: Mesh, rows: int) -> T:
    """Place batches of `rows` sequences as global arrays, sharded along the sequences. batches: numpy [runs, steps, `rows_here`,
    ...]."""
    where, held = NamedSharding(mesh, PartitionSpec(None, None, "data")), rows_here(mesh, rows)

    def place(leaf: Any) -> jax.Array:
        def part(index: Any) -> np.ndarray:
            return leaf[:, :, np.searchsorted(held, np.arange(rows)[index[2]])]

        return jax.make_array_from_callback((*leaf.shape[:2], rows, *leaf.shape[3:]), where, part)

    return jax.tree.map(place, batches)


def place_held_out(batch: T, mesh: Mesh) -> T:
    """Place held-out sequences, which every process has in full, sharded over the devices if divisible. batch: [rows, ...]."""
    rows = {len(leaf) for leaf in jax.tree.leaves(batch)}
    divided = all(count % mesh.shape["data"] == 0 for count in rows)
    return processes.place(batch, NamedSharding(mesh, PartitionSpec("data" if divided else None)))
