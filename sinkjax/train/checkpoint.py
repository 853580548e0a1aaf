"""Checkpoints of a training: the state of all runs and the length of the log that belongs to it, written in the background."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from sinkjax.errors import SinkjaxError
from sinkjax.train.state import TrainState

CHECKPOINTS = "checkpoints"


class Checkpoints:
    """The checkpoints of a folder; the last one is kept. `meta`: a JSON mapping stored together with the state."""

    def __init__(self, folder: Path, look_only: bool = False):
        self.path = (folder / CHECKPOINTS).absolute()
        options = ocp.CheckpointManagerOptions(
            max_to_keep=None if look_only else 1, cleanup_tmp_directories=not look_only, create=not look_only
        )
        try:
            self._manager = ocp.CheckpointManager(self.path, options=options)
        except OSError as error:
            raise SinkjaxError(f"cannot use {self.path} for checkpoints: {error.strerror or error}") from None

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._manager.close()  # waits for what is being written

    @property
    def latest(self) -> int | None:
        """The number of the last committed checkpoint."""
        return self._manager.latest_step()

    def save(self, number: int, state: TrainState, meta: dict[str, Any]) -> None:
        """Start writing a checkpoint, after waiting for an earlier one. The state may be donated afterwards."""
        copy = jax.tree.map(jnp.copy, state)  # on a CPU the writer would look at the very buffers that the next step overwrites
        self._manager.save(number, args=ocp.args.Composite(state=ocp.args.StandardSave(copy), meta=ocp.args.JsonSave(meta)))

    def restore(self, like: TrainState) -> tuple[TrainState, dict[str, Any]] | None:
        """The last committed state and its `meta`, or None. like: shapes and dtypes. Errors: a state of another shape."""
        number = self.latest
        if number is None:
            return None
        device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=device), like)
        wanted = ocp.args.Composite(state=ocp.args.StandardRestore(shapes), meta=ocp.args.JsonRestore())
        try:
            found = self._manager.restore(number, args=wanted)
        except (ValueError, OSError, KeyError, TypeError) as error:
            words = " ".join(str(error).split())[:120]
            raise SinkjaxError(f"cannot read the checkpoint {self.path / str(number)} ({words})") from None
        return found.state, found.meta
