"""Training checkpoints: the state of all runs and the matching length of the log, written in the background."""

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
BESIDE = 1 << 16  # bytes that Orbax writes besides the arrays: its metadata, and for each array ...
EACH = 1 << 12  # ... a name, a description and the rest of a block
SYSTEM_ERROR = re.compile(r"os_error_code='(\d+)'")  # in the message of the ValueError from Orbax's C++ code
ORBAX_LOG = logging.getLogger("absl")


class Checkpoints:
    """Checkpoints in a folder; only the last is kept. `meta`: a JSON mapping stored with the state."""

    def __init__(self, folder: Path, look_only: bool = False):
        extras.require("the folder of a training", "train", "orbax.checkpoint")
        import orbax.checkpoint as ocp

        self.path = (folder / CHECKPOINTS).absolute()
        options = ocp.CheckpointManagerOptions(max_to_keep=None if look_only else 1, create=not look_only)
        try:
            # Left over after a kill. Orbax would remove them in a thread that nothing waits for.
            for left in () if look_only or not processes.first() else self.path.glob(f"*{ocp.utils.TMP_DIR_SUFFIX}*"):
                shutil.rmtree(left)
            self._manager = ocp.CheckpointManager(self.path, options=options)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self._under_way, self._wanted = self.path, 0

    def __enter__(self) -> Checkpoints:
        self._level, ORBAX_LOG.level = ORBAX_LOG.level, logging.CRITICAL  # raise errors that its threads only log
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            with interruption.held(), self._in_one_sentence():
                self._manager.close()  # waits for the writing threads, whose errors would otherwise be lost
        except SinkjaxError:
            if error is None:  # otherwise the first error counts
                raise
        finally:
            ORBAX_LOG.level = self._level

    @property
    def latest(self) -> int | None:
        """The number of the last committed checkpoint."""
        return self._manager.latest_step()

    def save(self, number: int, state: TrainState, meta: dict[str, Any]) -> None:
        """Wait for any earlier checkpoint and start writing this one. The state may be donated afterwards.

        Errors: no space for this one; the earlier one could not be written. The last committed checkpoint stays.
        """
        import orbax.checkpoint as ocp

        with self._in_one_sentence():
            self._manager.wait_until_finished()
            leaves = jax.tree.leaves(state)
            written = (shard for leaf in leaves for shard in leaf.addressable_shards if shard.replica_id == 0)  # by this process
            self._wanted = sum(shard.data.nbytes for shard in written) + EACH * len(leaves) + BESIDE
            self._under_way = self.path / str(number)
            reserve(self.path, self._wanted, self._under_way)
            copy = jax.tree.map(jnp.copy, state)  # on a CPU, the writer would read buffers that the next step overwrites
            self._manager.save(number, args=ocp.args.Composite(state=ocp.args.StandardSave(copy), meta=ocp.args.JsonSave(meta)))

    def wait(self) -> None:
        """Wait until the last checkpoint is committed; raise if it could not be written."""
        with self._in_one_sentence():
            self._manager.wait_until_finished()

    def restore(self, like: TrainState) -> tuple[TrainState, dict[str, Any]] | None:
        """Load the last committed state and its `meta`, or None. Errors: the state has a different shape.

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
        """Turn Orbax's file system errors into a single sentence."""
        try:
            yield
        except OSError as error:
            raise cannot_write(self._under_way, error, self._wanted) from error
        except ValueError as error:
            if (code := SYSTEM_ERROR.search(str(error))) is None:
                raise
            number = int(code[1])
            raise cannot_write(self._under_way, OSError(number, os.strerror(number)), self._wanted) from error
