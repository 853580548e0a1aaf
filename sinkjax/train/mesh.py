"""One run on many devices: the batch divided along the mesh axis "data", matrices along "model".

Only the placement of arrays is stated; XLA divides the computation of a step accordingly.
"""

from __future__ import annotations

from typing import TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sinkjax.errors import SinkjaxError
from sinkjax.model import params
from sinkjax.train.config import AdamWTraining, Training
from sinkjax.train.task import HostDataTask, ModelTask, Task

T = TypeVar("T")


def mesh_of(config: Training, task: Task) -> Mesh | None:
    """The mesh that a config asks for, or None.

    Errors: too few devices; a task without models of this library, or whose batches each device would generate in full.
    """
    if not isinstance(config, AdamWTraining) or config.mesh == (1, 1):
        return None
    count = config.mesh[0] * config.mesh[1]
    if count > jax.device_count():
        raise SinkjaxError(f"mesh {list(config.mesh)} needs {count} devices, and there are {jax.device_count()}")
    if not isinstance(task, ModelTask):
        raise SinkjaxError("mesh is for models of this library")
    if config.mesh[0] > 1 and not isinstance(task, HostDataTask):
        raise SinkjaxError(f"mesh divides batches that are read, and these are made on the device; choose [1, {config.mesh[1]}]")
    return Mesh(np.array(jax.devices()[:count]).reshape(config.mesh), ("data", "model"))


def place_state(state: T, task: Task, mesh: Mesh) -> T:
    """A state of many runs, with parameters and their optimiser state divided as `params.RULES` state."""
    assert isinstance(task, ModelTask)
    leaves = jax.tree_util.tree_leaves_with_path(params.abstract(task.model(task.variants[0])))
    where = {jax.tree_util.keystr(path): params.sharding(leaf, mesh).spec for path, leaf in leaves}

    def place(path: tuple, leaf: jax.Array) -> jax.Array:
        name = jax.tree_util.keystr(path)
        spec = next((spec for end, spec in where.items() if name.endswith(end) and leaf.ndim == len(spec) + 1), ())
        return jax.device_put(leaf, NamedSharding(mesh, PartitionSpec(None, *spec)))

    return jax.tree_util.tree_map_with_path(place, state)


def place_batches(batches: T, mesh: Mesh) -> T:
    """Batches [runs, steps, B, ...], divided along B."""
    return jax.device_put(batches, NamedSharding(mesh, PartitionSpec(None, None, "data")))
