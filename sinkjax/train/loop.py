"""Train every run of a task into a folder; can be resumed at any point, bit for bit.

The folder contains `config.yaml`, the log (`log.jsonl`), the last checkpoint, the models kept so far (in `series`) and, at the
end, `summary.json` and the language models (in `models`). A checkpoint stores the state together with the length of the log, so a
resumed training truncates later lines and writes them again. A model is saved before the checkpoint of its step, so none is ever
missing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sinkjax.analysis.estimates import three_digits
from sinkjax.config_files import documents
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import CONFIG_FILE, attempt, claim_folder, take_lock, user_location, write
from sinkjax.config_files.locations import Location, is_remote
from sinkjax.errors import SinkjaxError, Unavailable, differences
from sinkjax.model.params import check_dtype
from sinkjax.runtime import extras, interruption, processes
from sinkjax.runtime.progress import bar
from sinkjax.train.checkpoint import CHECKPOINTS, Checkpoints, Progress
from sinkjax.train.config import DIVERGED, KIND
from sinkjax.train.folder import MODELS, keep, remove_unfinished, save_run
from sinkjax.train.log import COST, LOG, SUMMARY, Log, plain, read, same_config, same_data
from sinkjax.train.mirror import Mirror, called, local
from sinkjax.train.run_parallel import RunParallel
from sinkjax.train.runs import arrays, table
from sinkjax.train.state import RUNNING, STATUS
from sinkjax.train.task import DataSource, Task
from sinkjax.train.trained import Trained, going, trained
from sinkjax.version import __version__

LOCK = ".lock"
COPYING = 10  # in an object store, also wait at least this many times as long as copying a checkpoint takes
Say = Callable[[str], None]
OnLog = Callable[[dict[str, Any]], object]
PACKAGES = ("jax", "jaxlib", "numpy", "optax")  # beside sinkjax, which need not be installed


@contextlib.contextmanager
def opened(task: Task, folder: str | Location, say: Say, on_log: OnLog | None) -> Iterator[Loop]:
    """Open the training of a task; arguments and errors as for `sinkjax.tasks.train`."""
    check_dtype(task.config.dtype)
    extras.require("training", "train")  # checked before the folder is created
    if not processes.first():
        say, on_log = (lambda line: None), None
    if processes.joined() and is_remote(user_location(folder)):
        raise SinkjaxError(f"joined processes train into a folder that all can access, not into {folder}; copy it afterwards")
    # Joined processes end together, so a signal to one waits until all agree on it.
    together = interruption.held() if processes.joined() else contextlib.nullcontext()
    with processes.needed(), together, local(folder) as (here, mirror), contextlib.ExitStack() as stack:
        yield Loop(task, here, mirror, say, on_log, stack)


class Loop:
    """A training under way: all joined processes compute, and the first one writes.

    state: the state of all runs. done: progress, as stored with the state. mirror: copies the folder to a URL, or None.
    """

    def __init__(
        self, task: Task, folder: Path, mirror: Mirror | None, say: Say, on_log: OnLog | None, stack: contextlib.ExitStack
    ):
        """Open the folder, its checkpoints, its log and the data; `stack` closes them."""
        processes.meet()
        self.task, self.config, self.folder, self.mirror, self.say, self.on_log = task, task.config, folder, mirror, say, on_log
        self.runs = table(task.config, task)
        self.arrays = jax.tree.map(np.asarray, arrays(self.runs, task))
        self.devices = RunParallel(task, len(self.runs))
        processes.by_first(lambda: stack.enter_context(reserved(folder, task)))
        with interruption.held():  # so that it is always closed
            self.checkpoints = stack.enter_context(Checkpoints(folder))
        self.state, self.done = self.checkpoints.restore(self.devices.layout) or (self.devices.begin(), Progress())
        self.claimed = folder.stat()
        self.log: Log | None = processes.by_first(
            lambda: stack.enter_context(contextlib.closing(Log(folder, self.done.log_bytes)))
        )
        left = going(self.state, self.config)
        self.source: DataSource | None = task.open(say) if left and task.on_host else None
        card = (self.source or task).card if left else {}
        processes.check_same("texts", documents.plain(card))
        seeds, rows = [run.seed for run in self.runs], self.devices.rows(self.config.batch)
        self.host = HostBatches(self.source, seeds, self.config.eval_every, rows) if self.source else None
        processes.by_first(lambda: self._resumed(bool(left), card) if self.done.log_bytes else self._begun(card))
        if left:
            begun = f", from step {self.done.step}" if self.done.step > 0 else ""
            say(f"{len(self.runs)} runs of up to {self.config.steps} steps{begun}")

    def run(self, save_every: float, progress: bool) -> Trained:
        """Train until all runs have ended, saving at least every `save_every` seconds, and return them."""
        total, before = len(self.runs) * self.config.steps, self._steps_over()
        with bar("train", progress and processes.first() and before < total, total, before, heed=False) as advance:
            saved, pause = time.monotonic(), save_every
            while left := going(self.state, self.config):
                call(self, left)
                due, asked = processes.largest(time.monotonic() - saved > pause, interruption.received() or 0)
                if due or asked or not going(self.state, self.config):
                    pause = max(save_every, COPYING * self.save())
                    saved = time.monotonic()
                if asked:
                    interruption.receive(asked)
                    interruption.check()
                cost = 1000 * self.done.seconds / self.done.run_steps if self.done.run_steps else None
                advance(self._steps_over(), "" if cost is None else f"{three_digits(cost)} ms a step")
        self.checkpoints.wait()
        state = dataclasses.replace(self.state, params=processes.whole(self.state.params))
        result = trained(self.folder, self.task, state, self.done, self.mirror)
        processes.by_first(lambda: finish(result, self.source))
        if self.mirror:
            self.mirror.push()
        return result

    def save(self) -> float:
        """Save the state and all lines of the log so far; return the seconds of copying them to a URL."""
        if not same_folder(self.folder, self.claimed):
            raise SinkjaxError(f"{self.folder} was moved or replaced while this training wrote to it: it stops")
        if self.log:
            self.log.sync()
        self.checkpoints.save(self.state, self.done)
        begun = time.monotonic()
        if self.mirror:
            self.checkpoints.wait()
            self.mirror.push()
        return time.monotonic() - begun

    def write(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Log the evaluations of a call."""
        if self.log:
            self.log.write(lines)
            self.done = dataclasses.replace(self.done, log_bytes=self.log.size)
        for line in lines:
            if self.on_log:
                self.on_log(plain(line))
            if line["status"] == DIVERGED:
                self.say(f"{self.runs[line['run']].label()} diverged at step {line['step']}: its loss or gradient is not finite")

    def _begun(self, card: dict[str, Any]) -> None:
        """Write the log's first line: the training, its data's card, its devices, and the sampling unit of its intervals."""
        shared = self.config.shared_data
        header = {
            KIND: self.task.name,
            "config": documents.plain(documents.fields(self.config)),
            "runs": [run.labels() for run in self.runs],
            "parameters": sum(math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(self.devices.layout.params)),
            **({"data": card} if card else {}),
            "intervals_over": "initialisations only: all runs see the same data" if shared else "initialisations and data",
            "together": self.devices.together,
            **machine(self.devices),
        }
        if self.log:
            self.log.write([header])

    def _resumed(self, unfinished: bool, card: dict[str, Any]) -> None:
        """Refuse other data than in the log's first line, and report what may change numbers."""
        same_data(self.folder, card)
        began, here = read(self.folder)[0], machine(self.devices)
        if unfinished and (other := differences({name: began.get(name) for name in here}, here)):
            self.say(f"it was started elsewhere ({'; '.join(other)}), so numbers agree to rounding at best")
        if unfinished and self.log and self.log.unchecked:
            self.say(f"{self.folder / LOG} has no checksums (an earlier version wrote it), so only its config is checked")

    def _steps_over(self) -> int:
        """Count the steps of all runs that are done or no longer needed."""
        running = np.asarray(self.state.status) == RUNNING
        return int(np.where(running, np.asarray(self.state.step), self.config.steps).sum())


class HostBatches:
    """Data of the runs, read on the host in a thread while the device computes.

    seeds: by run index. count: batches of a call. rows: rows of each batch; None for all.
    """

    def __init__(self, source: DataSource, seeds: Sequence[int], count: int, rows: np.ndarray | None = None):
        self._source, self._seeds, self._count, self._rows = source, seeds, count, rows
        self._reader, self._calls = ThreadPoolExecutor(1), dict[tuple[tuple[int, ...], int], Future[Any]]()
        self.held_out = source.held_out()

    def at(self, runs: Sequence[int], first: int) -> Any:
        """Return batches `first` to `first + count - 1` of some runs, leaves [runs, count, ...], and begin to read the next."""
        wanted = [(tuple(runs), first), (tuple(runs), first + self._count)]
        self._calls = {call: self._calls.get(call) or self._reader.submit(self._read, *call) for call in wanted}
        return self._calls[wanted[0]].result()

    def _read(self, runs: Sequence[int], first: int) -> Any:
        def stack(trees: list[Any]) -> Any:
            return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)

        seeds, steps = [self._seeds[run] for run in runs], range(first, first + self._count)
        by_seed = {seed: stack([self._source.batch(seed, k, self._rows) for k in steps]) for seed in {*seeds}}
        return stack([by_seed[seed] for seed in seeds])


def call(loop: Loop, left: list[int]) -> None:
    """Advance the runs `left` to their next stop, and log it; the first call only evaluates the initial models."""
    task, done = loop.task, loop.done
    step = loop.config.next_stop(done.step) if done.step >= 0 else 0
    begun, before = time.monotonic(), np.asarray(loop.state.step).sum()
    compiled = loop.devices.slots(len(left)) in loop.devices.compiled
    data = (loop.host.at(left, max(done.step, 0)), loop.host.held_out) if loop.host else ()
    loop.state, metrics = loop.devices.advance(loop.state, loop.arrays, left, step, *data)
    values = {name: np.asarray(array) for name, array in metrics.items()}
    status, steps = np.asarray(loop.state.status), np.asarray(loop.state.step)
    seconds, made = (time.monotonic() - begun, int(steps.sum() - before)) if compiled else (0.0, 0)
    lines = [
        {**loop.runs[run].labels(), "step": int(steps[run]), "status": STATUS[status[run]]}
        | task.summarise({name: array[row] for name, array in values.items()})
        for row, run in enumerate(left)
    ]
    loop.done = dataclasses.replace(done, step=step, seconds=done.seconds + seconds, run_steps=done.run_steps + made)
    processes.by_first(lambda: loop.write(lines))
    if step in loop.config.kept:
        state = dataclasses.replace(loop.state, params=processes.whole(loop.state.params))
        name = called(loop.folder, loop.mirror)
        processes.by_first(lambda: keep(loop.folder, name, task, state, loop.runs, step, loop.source))


def finish(result: Trained, source: DataSource | None) -> None:
    """Save each run's language model as a folder for `sinkjax.load`, then the training's summary. source: as for `save_run`."""
    task, path = result.task, result.folder / SUMMARY
    for ended in result.runs:
        if not path.is_file() and task.model(ended.run.variant).vocab_size is not None:
            save_run(result, ended.run.run, result.folder / MODELS / f"run-{ended.run.run:03d}", source=source)
    facts = {KIND: task.name, COST: result.milliseconds, "runs": [ended.labels() for ended in result.runs]}
    write(path, json.dumps(facts, indent=1) + "\n")


@contextlib.contextmanager
def reserved(folder: Path, task: Task) -> Iterator[None]:
    """Reserve `folder` for a training and lock it; errors as for `train`.

    After an error before the first line of the log, only the config stays, so that the folder takes a corrected one.
    """
    claim(folder, task)
    same_config(folder, task.config)
    with alone(folder):
        claimed = folder.stat()
        remove_unfinished(folder)
        try:
            yield
        except BaseException:
            with contextlib.suppress(OSError):
                if same_folder(folder, claimed) and not (folder / LOG).stat().st_size:
                    shutil.rmtree(folder / CHECKPOINTS)
                    (folder / LOG).unlink()
                    (folder / LOCK).unlink()
            raise


def claim(folder: Path, task: Task) -> None:
    """Write the config into an empty folder. Errors: it has other content, or another config."""
    file = str(folder / CONFIG_FILE)

    def differences(text: str) -> list[str]:
        values = documents.parse(text, file)
        name = values.pop(KIND, None)
        refuse(name is None, f"{file} is not the config of a training: it lacks the key {KIND!r}")
        if name != task.name:
            return [f"task was {name}, now {task.name}"]
        return documents.differences(documents.read_whole(type(task.config), values, text, file), task.config)

    claim_folder(folder, documents.write(task.name, task.config, KIND), differences, "training")


def same_folder(folder: Path, claimed: os.stat_result) -> bool:
    """Return whether a path is still the folder with this status."""
    try:
        return os.path.samestat(folder.stat(), claimed)
    except OSError:
        return False


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock `folder` against other trainings; a kill releases it. Errors: another process is training there."""
    with attempt("write", folder / LOCK):
        try:
            release = take_lock(folder / LOCK)
        except BlockingIOError:
            raise Unavailable(f"another process is training in {folder}; wait for it, or choose another folder") from None
    try:
        yield
    finally:
        release()


def machine(devices: RunParallel) -> dict[str, Any]:
    """Return the devices and versions, which numbers depend on."""
    return {
        "devices": f"{len(devices.devices)} x {devices.devices[0].device_kind}",
        "versions": {name: version(name) for name in PACKAGES} | {"sinkjax": __version__},
    }
