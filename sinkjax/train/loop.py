"""`train`: train every run of a task into a folder; can be resumed at any point, bit for bit.

The folder contains `config.yaml`, the log (`log.jsonl`), the last checkpoint, the models kept so far (in `series`) and, at the
end, `summary.json` and the language models (in `models`). A checkpoint stores the state together with the length of the log, so a
resumed training truncates later lines and writes them again. A model is saved before the checkpoint of its step, so none is ever
missing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import filelock
import jax
import numpy as np

from sinkjax import __version__
from sinkjax.analysis.estimates import three_digits
from sinkjax.config_files import documents
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import CONFIG_FILE, cannot_write, claim_folder, take_lock, user_place, write
from sinkjax.config_files.places import Place, is_remote
from sinkjax.errors import SinkjaxError, Unavailable
from sinkjax.model.params import check_dtype
from sinkjax.runtime import extras, interruption, processes
from sinkjax.runtime.progress import bar
from sinkjax.sweeps.header import differences
from sinkjax.train import speed
from sinkjax.train.checkpoint import CHECKPOINTS, Checkpoints
from sinkjax.train.config import DIVERGED, KIND, SAVE_EVERY, Training
from sinkjax.train.folder import MODELS, keep, remove_unfinished, save_run
from sinkjax.train.journal import Journal, check_logs
from sinkjax.train.log import COST, LOG, SUMMARY, read
from sinkjax.train.mirror import Mirror, called, local
from sinkjax.train.prefetch import HostBatches, same_config, same_data
from sinkjax.train.run_parallel import RunParallel
from sinkjax.train.runs import Run, RunArrays, arrays, table
from sinkjax.train.state import RUNNING, STATUS, TrainState
from sinkjax.train.task import DataSource, DescribedTask, HostDataTask, ModelTask, SummarisingTask, Task
from sinkjax.train.trained import Trained, going, trained

LOCK = ".lock"
COPYING = 10  # in an object store, also wait at least this many times as long as copying a checkpoint takes
Say = Callable[[str], None]
PACKAGES = ("jax", "jaxlib", "numpy", "optax")  # beside sinkjax, which need not be installed


@dataclasses.dataclass(frozen=True)
class Progress:
    """Progress, stored with a state.

    It has the step reached (-1: none), the length of the log, and the seconds, without compilation, of `run_steps` steps."""

    step: int = -1
    log_bytes: int = 0
    seconds: float = 0.0
    run_steps: int = 0


def train(
    task: Task,
    folder: str | Place,
    say: Say = lambda line: None,
    *,
    log: Sequence[str] = (),
    save_every: float = SAVE_EVERY,
    progress: bool = True,
) -> Trained:
    """Train every run of a task; arguments and errors as for `sinkjax.tasks.train`."""
    config = task.config
    check_dtype(config.dtype)
    extras.require("training", "train")  # checked before the folder is created
    check_logs(log)
    if config.kept and not isinstance(task, ModelTask):
        raise SinkjaxError(f"the runs of {task.name} are not sinkjax models, so no checkpoints of them can be kept")
    if not processes.first():
        say, progress, log = (lambda line: None), False, ()
    if processes.joined() and is_remote(user_place(folder)):
        raise SinkjaxError(f"joined processes train into a folder that all can access, not into {folder}; copy it afterwards")
    # Joined processes end together, so a signal to one waits until all agree on it.
    together = interruption.held() if processes.joined() else contextlib.nullcontext()
    with processes.needed(), together, local(folder) as (here, mirror):
        return _train(task, here, mirror, say, log, save_every, progress)


def _train(
    task: Task, folder: Path, mirror: Mirror | None, say: Say, log: Sequence[str], save_every: float, progress: bool
) -> Trained:
    """Train with checked arguments. All joined processes compute, and the first one writes.

    folder: on this machine. mirror: copies it to the requested place, if that is a URL.
    """
    config = task.config
    processes.meet()
    every = table(config, task)
    devices, runs = RunParallel(task, config, len(every)), jax.tree.map(np.asarray, arrays(every, task))
    processes.by_first(lambda: claim(folder, task))
    processes.by_first(lambda: same_config(folder, config))
    with contextlib.ExitStack() as stack:
        processes.by_first(lambda: stack.enter_context(alone(folder)))
        processes.by_first(lambda: stack.push(functools.partial(forget_start, folder, folder.stat())))
        processes.by_first(lambda: remove_unfinished(folder))
        with interruption.held():  # so that it is always closed
            checkpoints = stack.enter_context(Checkpoints(folder))
        found = checkpoints.restore(devices.layout)
        state, done = (found[0], Progress(**found[1])) if found else (devices.begin(), Progress())
        claimed = folder.stat()
        journal = stack.enter_context(contextlib.closing(Journal(folder, done.log_bytes)))
        left = going(state, config)
        source = task.open(say) if left and isinstance(task, HostDataTask) else None
        card = source.card if source else task.card if left and isinstance(task, DescribedTask) else {}
        processes.check_same("texts", documents.plain(card))
        host = HostBatches(source, [run.seed for run in every], config.eval_every, devices.rows(config.batch)) if source else None
        if done.log_bytes:
            processes.by_first(lambda: same_data(folder, card))
        journal.begin(None if done.log_bytes else header(task, every, devices, card), log)
        if left and done.log_bytes and processes.first():
            began, here = read(folder)[0], machine(devices)
            if other := differences({name: began.get(name) for name in here}, here):
                say(f"it was started elsewhere ({'; '.join(other)}), so numbers agree to rounding at best")
            if journal.unchecked:
                say(f"{folder / LOG} has no checksums (an earlier version wrote it), so only its config is checked")
        if left:
            say(f"{len(every)} runs of up to {config.steps} steps" + (f", from step {done.step}" if done.step > 0 else ""))
        total, before = len(every) * config.steps, made(state, config)
        advance = stack.enter_context(bar("train", progress and before < total, total, before, heed=False))
        saved, pause = time.monotonic(), save_every
        while left := going(state, config):
            state, new, lines = call(state, done, runs, every, left, devices, host)
            pace = speed.measured(task, new.run_steps - done.run_steps, new.seconds - done.seconds, *devices.hardware)
            journal.add(new.step, lines, pace)
            done = dataclasses.replace(new, log_bytes=journal.size)
            for line in lines:
                if line["status"] == DIVERGED:
                    say(f"{every[line['run']].label()} diverged at step {line['step']}: its loss or gradient is not finite")
            if isinstance(task, ModelTask) and done.step in config.kept:
                whole = dataclasses.replace(state, params=processes.whole(state.params))
                processes.by_first(functools.partial(keep, folder, called(folder, mirror), task, whole, every, done.step, source))
            due, asked = processes.largest(time.monotonic() - saved > pause, interruption.received() or 0)
            if due or asked or not going(state, config):
                refuse(
                    not same_folder(folder, claimed), f"{folder} was moved or replaced while this training wrote to it: it stops"
                )
                journal.sync()
                checkpoints.save(done.step, state, dataclasses.asdict(done))
                begun = time.monotonic()
                if mirror:
                    checkpoints.wait()
                    mirror.push()
                saved = time.monotonic()
                pause = max(save_every, COPYING * (saved - begun))
            if asked:
                interruption.receive(asked)
                interruption.check()
            rate = f"{three_digits(1000 * done.seconds / done.run_steps)} ms a step" if done.run_steps else ""
            advance(made(state, config), rate)
        checkpoints.wait()
        state = dataclasses.replace(state, params=processes.whole(state.params))
        result = trained(folder, task, state, dataclasses.asdict(done), mirror)
        processes.by_first(lambda: finish(result, source))
    if mirror:
        mirror.push()
    return result


def finish(result: Trained, source: DataSource | None) -> None:
    """Save each run's language model as a folder for `sinkjax.load`, then the training's summary. source: as for `save_run`."""
    task, path = result.task, result.folder / SUMMARY
    if isinstance(task, ModelTask) and not path.is_file():
        for ended in result.runs:
            if task.model(ended.run.variant).vocab_size is not None:
                save_run(result, ended.run.run, result.folder / MODELS / f"run-{ended.run.run:03d}", source=source)
    outcomes = [one.labels() for one in result.runs]  # outcome and number of steps
    facts = {KIND: task.name, COST: result.milliseconds, "runs": outcomes}
    write(path, json.dumps(facts, indent=1) + "\n")


def call(
    state: TrainState,
    done: Progress,
    runs: RunArrays,
    every: tuple[Run, ...],
    left: list[int],
    devices: RunParallel,
    host: HostBatches | None,
) -> tuple[TrainState, Progress, list[dict[str, Any]]]:
    """Advance the runs `left` to their next evaluation; the first call only evaluates the initial models.

    Returns the state, the progress and the log lines.
    """
    config = devices.config
    step = config.next_stop(done.step) if done.step >= 0 else 0
    begun, before, compiled = time.monotonic(), int(np.asarray(state.step).sum()), devices.slots(len(left)) in devices.compiled
    data = (host.at(left, max(done.step, 0)), host.held_out) if host else ()
    state, metrics = devices.advance(state, runs, left, step, *data)
    values = {name: np.asarray(array) for name, array in metrics.items()}
    status, steps = np.asarray(state.status), np.asarray(state.step)
    if compiled:
        seconds, new = done.seconds + time.monotonic() - begun, int(steps.sum()) - before
        done = dataclasses.replace(done, seconds=seconds, run_steps=done.run_steps + new)
    task = devices.task
    summarise = task.summarise if isinstance(task, SummarisingTask) else dict
    lines = [
        {**every[run].labels(), "step": int(steps[run]), "status": STATUS[status[run]]}
        | summarise({name: array[row] for name, array in values.items()})
        for row, run in enumerate(left)
    ]
    return state, dataclasses.replace(done, step=step), lines


def claim(folder: Path, task: Task) -> None:
    """Reserve `folder` for a training; errors as for `train`."""
    document = documents.write(task.name, task.config, KIND)

    def differences(text: str) -> list[str]:
        what = str(folder / CONFIG_FILE)
        values = documents.parse(text, what)
        name = values.pop(KIND, None)
        refuse(name is None, f"{what} is not the config of a training: it lacks the key {KIND!r}")
        if name != task.name:
            return [f"task was {name}, now {task.name}"]
        return documents.differences(documents.read_whole(type(task.config), values, text, what), task.config)

    claim_folder(folder, document, differences, "training")


def same_folder(folder: Path, claimed: os.stat_result) -> bool:
    """Return whether a path is still the folder with this status."""
    try:
        return os.path.samestat(folder.stat(), claimed)
    except OSError:
        return False


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock `folder` against other trainings; a kill releases it. Errors: another process is training there."""
    try:
        release = take_lock(folder / LOCK, timeout=0)
    except filelock.Timeout:
        raise Unavailable(f"another process is training in {folder}; wait for it, or choose another folder") from None
    except OSError as error:
        raise cannot_write(folder / LOCK, error) from error
    try:
        yield
    finally:
        release()


def forget_start(folder: Path, claimed: os.stat_result, error: type[BaseException] | None, *_: object) -> None:
    """After an error before the first line of the log, leave only the config, so that the folder takes a corrected one."""
    if error is None or not same_folder(folder, claimed):
        return
    with contextlib.suppress(OSError):
        if not (folder / LOG).stat().st_size:
            shutil.rmtree(folder / CHECKPOINTS)
            (folder / LOG).unlink()
            (folder / LOCK).unlink()


def header(task: Task, every: tuple[Run, ...], devices: RunParallel, card: dict[str, Any]) -> dict[str, Any]:
    """Return the first line of a log: the training, its data's card, its devices, and the sampling unit of intervals over its
    runs."""
    config = task.config
    over = "initialisations only: all runs see the same data" if config.shared_data else "initialisations and data"
    return {
        KIND: task.name,
        "config": documents.plain(documents.fields(config)),
        "runs": [run.labels() for run in every],
        "parameters": sum(math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(devices.layout.params)),
        **({"data": card} if card else {}),
        "intervals_over": over,
        "together": devices.together,
        **machine(devices),
    }


def machine(devices: RunParallel) -> dict[str, Any]:
    """Return the devices and versions, which numbers depend on."""
    return {"devices": devices.named, "versions": {name: version(name) for name in PACKAGES} | {"sinkjax": __version__}}


def made(state: TrainState, config: Training) -> int:
    """Count the steps of all runs that are done or no longer needed."""
    return int(np.where(np.asarray(state.status) == RUNNING, np.asarray(state.step), config.steps).sum())
