"""Training checkpoints: the state of all runs and the matching length of the log, written in the background.

Each has checksums of its files, which are compared before it is read. The last two are kept: if the last is damaged, a training
resumes from the other.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import jax
import jax.numpy as jnp

from sinkjax.config_files.checks import refuse
from sinkjax.config_files.checksums import damage, write_checksums
from sinkjax.config_files.files import attempt, cannot_write, reserve
from sinkjax.errors import SinkjaxError
from sinkjax.runtime import extras, interruption, processes
from sinkjax.runtime.progress import say
from sinkjax.train.state import TrainState

CHECKPOINTS = "checkpoints"
LATER = ("_CHECKPOINT_METADATA", "commit_success.txt")  # files that Orbax still changes when it commits; the state is not in them
WORDS = 120  # maximum characters of an error of Orbax in a message
BESIDE = 1 << 16  # bytes that Orbax writes besides the arrays: its metadata, and for each array ...
EACH = 1 << 12  # ... a name, a description and the rest of a block
SYSTEM_ERROR = re.compile(r"os_error_code='(\d+)'")  # in the message of the ValueError from Orbax's C++ code
ORBAX_LOG = logging.getLogger("absl")


@dataclasses.dataclass(frozen=True)
class Progress:
    """Numbers stored with a state.

    step: the step reached, -1 before the first evaluation. log_bytes: the length of the log. seconds: time of `run_steps` steps,
    without compilation.
    """

    step: int = -1
    log_bytes: int = 0
    seconds: float = 0.0
    run_steps: int = 0


META = tuple(field.name for field in dataclasses.fields(Progress))


class Checkpoints:
    """The last two checkpoints in a folder.

    look_only: nothing is written or removed. Errors: the last checkpoint is damaged, and, unless look_only, so is the one before.
    """

    def __init__(self, folder: Path, look_only: bool = False):
        extras.require("the folder of a training", "train", "orbax.checkpoint")
        import orbax.checkpoint as ocp

        self.path = (folder / CHECKPOINTS).absolute()
        self._under_way, self._wanted = self.path, 0
        self._suffix = ocp.utils.TMP_DIR_SUFFIX
        listed = ocp.AsyncOptions(post_finalization_callback=self._list_files)
        options = ocp.CheckpointManagerOptions(max_to_keep=None, create=not look_only, async_options=listed)
        try:
            with attempt("write", self.path):
                # Left over after a kill. Orbax would remove them in a thread that nothing waits for.
                for left in () if look_only or not processes.first() else self.path.glob(f"*{self._suffix}*"):
                    shutil.rmtree(left)
                if look_only:
                    self._check(remove=False)
                else:
                    processes.by_first(lambda: self._check(remove=True))
                self._manager = ocp.CheckpointManager(self.path, options=options)
        except (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:  # of Orbax's own records
            raise SinkjaxError(f"cannot read the checkpoints {self.path} ({_words(error)})") from None

    def _check(self, remove: bool) -> None:
        """Compare the last checkpoint with its checksums. remove: whether to remove a damaged one if an earlier one is sound."""
        faults: dict[Path, str] = {}
        for path in sorted((path for path in self.path.glob("*") if path.name.isdecimal()), key=lambda path: -int(path.name)):
            if fault := damage(path):
                faults[path] = f"the checkpoint {path} is damaged ({fault})"
                refuse(not remove, f"{faults[path]}; rerun the command that started the training, which uses the last sound one")
                continue
            if fault is None and remove:
                say(f"{path} has no checksums (an earlier version wrote it), so it is read unchecked")
            for damaged, words in faults.items():
                say(f"{words}; resuming from step {path.name}")
                shutil.rmtree(damaged)
            return
        for words in faults.values():
            raise SinkjaxError(f"{words}, and none before it is sound; delete {self.path.parent} to train from the beginning")

    def _list_files(self) -> None:
        """Write the checksums of the checkpoint that Orbax is about to commit, in its thread."""
        for path in self.path.glob(f"{self._under_way.name}{self._suffix}*") if processes.first() else ():
            write_checksums(path, LATER, durable=True)

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

    def save(self, state: TrainState, done: Progress) -> None:
        """Wait for any earlier checkpoint and start writing this one. The state may be donated afterwards.

        Errors: no space for this one; the earlier one could not be written. The last committed checkpoint stays.
        """
        import orbax.checkpoint as ocp

        self.wait()
        with self._in_one_sentence():
            leaves = jax.tree.leaves(state)
            written = (shard for leaf in leaves for shard in leaf.addressable_shards if shard.replica_id == 0)  # by this process
            self._wanted = sum(shard.data.nbytes for shard in written) + EACH * len(leaves) + BESIDE
            self._under_way = self.path / str(done.step)
            for earlier in [number for number in self._manager.all_steps() if number != self.latest]:
                self._manager.delete(earlier)
            reserve(self.path, self._wanted, self._under_way)
            copy = jax.tree.map(jnp.copy, state)  # on a CPU, the writer would read buffers that the next step overwrites
            meta = ocp.args.JsonSave(dataclasses.asdict(done))
            self._manager.save(done.step, args=ocp.args.Composite(state=ocp.args.StandardSave(copy), meta=meta))

    def wait(self) -> None:
        """Wait until the last checkpoint is committed; raise if it could not be written."""
        with self._in_one_sentence():
            self._manager.wait_until_finished()

    def restore(self, like: TrainState) -> tuple[TrainState, Progress] | None:
        """Load the last committed state and its progress, or None. Errors: the state has a different shape.

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
            stored = self._manager.restore(number, args=wanted)
        except Exception as error:  # Orbax has no error of its own
            raise SinkjaxError(f"cannot read the checkpoint {self.path / str(number)} ({_words(error)})") from None
        meta = stored.meta if isinstance(stored.meta, dict) else {}
        numbers = [name for name in META if isinstance(meta.get(name), int | float)]
        wrong = numbers != [*META] or len(meta) > len(META)
        refuse(wrong, f"cannot read the checkpoint {self.path / str(number)}: its meta must have the numbers {', '.join(META)}")
        return stored.state, Progress(**meta)

    @contextmanager
    def _in_one_sentence(self) -> Iterator[None]:
        """Turn Orbax's file system errors into a single sentence."""
        try:
            yield
        except TimeoutError as error:  # Orbax's, by the system's clock
            why = "the clock jumped (a computer that slept), or the disk does not respond"
            way = "rerun the same command to resume from the checkpoint before it"
            raise SinkjaxError(f"the checkpoint {self._under_way} was not written in time: {why}; {way}") from error
        except OSError as error:
            raise cannot_write(self._under_way, error, self._wanted) from error
        except SinkjaxError:
            raise
        except ValueError as error:
            if code := SYSTEM_ERROR.search(str(error)):
                raise cannot_write(self._under_way, OSError(int(code[1]), os.strerror(int(code[1]))), self._wanted) from error
            raise SinkjaxError(f"cannot write the checkpoint {self._under_way} ({_words(error)})") from error


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:WORDS]
