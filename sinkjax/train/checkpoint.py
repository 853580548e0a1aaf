"""Checkpoints of a training: the state of all runs and the length of the log that belongs to it, written in the background."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import jax.numpy as jnp

from sinkjax.config_files.files import cannot_write, reserve
from sinkjax.errors import SinkjaxError
from sinkjax.runtime import extras, interruption, processes
from sinkjax.train.state import TrainState

CHECKPOINTS = "checkpoints"
BESIDE = 1 << 16  # bytes that Orbax writes in addition to the arrays: its metadata, and for each array ...
EACH = 1 << 12  # ... a name, a description and the rest of a block
SYSTEM_ERROR = re.compile(r"os_error_code='(\d+)'")  # in the text of the ValueError that Orbax's C++ raises
ORBAX_LOG = logging.getLogger("absl")


class Checkpoints:
    """The checkpoints of a folder; the last one is kept. `meta`: a JSON mapping stored together with the state."""

    def __init__(self, folder: Path, look_only: bool = False):
        extras.require("the folder of a training", "train", "orbax.checkpoint")
        import orbax.checkpoint as ocp

        self.path = (folder / CHECKPOINTS).absolute()
        options = ocp.CheckpointManagerOptions(max_to_keep=None if look_only else 1, create=not look_only)
        try:
            # Remains of a kill. Orbax would remove them in a thread that nothing waits for.
            for left in () if look_only or not processes.first() else self.path.glob(f"*{ocp.utils.TMP_DIR_SUFFIX}*"):
                shutil.rmtree(left)
            self._manager = ocp.CheckpointManager(self.path, options=options)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self._under_way, self._wanted = self.path, 0

    def __enter__(self) -> Checkpoints:
        self._level, ORBAX_LOG.level = ORBAX_LOG.level, logging.CRITICAL  # errors that its threads log are raised here too
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            with interruption.held(), self._in_one_sentence():
                self._manager.close()  # waits for the writing threads; their errors would be lost otherwise
        except SinkjaxError:
            if error is None:  # else what came first is what counts
                raise
        finally:
            ORBAX_LOG.level = self._level

    @property
    def latest(self) -> int | None:
        """The number of the last committed checkpoint."""
        return self._manager.latest_step()

    def save(self, number: int, state: TrainState, meta: dict[str, Any]) -> None:
        """Start writing a checkpoint, after waiting for an earlier one. The state may be donated afterwards.

        Errors: no room for this one; the earlier one could not be written. The last committed one stays.
        """
        import orbax.checkpoint as ocp

        with self._in_one_sentence():
            self._manager.wait_until_finished()
            leaves = jax.tree.leaves(state)
            written = (shard for leaf in leaves for shard in leaf.addressable_shards if shard.replica_id == 0)  # by this process
            self._wanted = sum(shard.data.nbytes for shard in written) + EACH * len(leaves) + BESIDE
            self._under_way = self.path / str(number)
            reserve(self.path, self._wanted, self._under_way)
            copy = jax.tree.map(jnp.copy, state)  # on a CPU the writer would look at the buffers that the next step overwrites
            self._manager.save(number, args=ocp.args.Composite(state=ocp.args.StandardSave(copy), meta=ocp.args.JsonSave(meta)))

    def wait(self) -> None:
        """Wait until the last one is committed. Errors: it could not be written."""
        with self._in_one_sentence():
            self._manager.wait_until_finished()

    def restore(self, like: TrainState) -> tuple[TrainState, dict[str, Any]] | None:
        """The last committed state and its `meta`, or None. Errors: a state of another shape.

        like: shapes, dtypes and shardings, by default the first device. Each device reads its own part.
        """
        import orbax.checkpoint as ocp

        number = self.latest
        if number is None:
            return None
        device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding or device), like)
        wanted = ocp.args.Composite(state=ocp.args.StandardRestore(shapes), meta=ocp.args.JsonRestore())
        try:
            found = self._manager.restore(number, args=wanted)
        except (ValueError, OSError, KeyError, TypeError) as error:
            words = " ".join(str(error).split())[:120]
            raise SinkjaxError(f"cannot read the checkpoint {self.path / str(number)} ({words})") from None
        return found.state, found.meta

    @contextmanager
    def _in_one_sentence(self) -> Iterator[None]:
        """Errors: one sentence when the file system refuses something to Orbax."""
        try:
            yield
        except (OSError, ValueError) as error:
            code = SYSTEM_ERROR.search(str(error))
            if isinstance(error, OSError):
                raise cannot_write(self._under_way, error, self._wanted) from error
            if code is None:
                raise
            number = int(code[1])
            raise cannot_write(self._under_way, OSError(number, os.strerror(number)), self._wanted) from error
