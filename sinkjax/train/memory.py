"""The device memory that one run of a training needs, from shapes alone: nothing is computed and no data are read."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sinkjax.train.config import Training
from sinkjax.train.state import optimiser_of
from sinkjax.train.task import DeviceDataTask, HostDataTask, Task


def training_bytes(task: Task, config: Training) -> dict[str, int]:
    """Part -> bytes, for a run on one device.

    The part kept for the gradient is the residuals of the loss of a (micro-)batch; the compiler may keep less, and needs memory
    of its own.
    """
    rows = getattr(config, "micro_batch", None) or config.batch
    params = jax.eval_shape(task.init, 0)
    optimiser = jax.eval_shape(lambda params: optimiser_of(config, jnp.float32(0)).init(params), params)
    batch = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((rows, *leaf.shape[1:]), leaf.dtype), _batch(task))
    kept = jax.eval_shape(lambda params, batch: jax.vjp(lambda p: task.loss(p, batch, jnp.int32(0))[0], params)[1], params, batch)
    return {
        "weights and optimiser": _size(params) + _size(optimiser),
        "gradient": _size(params),
        f"kept for the gradient of {rows} sequences": _size(kept),
    }


def _batch(task: Task) -> Any:
    if isinstance(task, HostDataTask):
        return task.batch_shapes()
    assert isinstance(task, DeviceDataTask)
    return jax.eval_shape(task.batch, jax.random.key(0))


def _size(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
