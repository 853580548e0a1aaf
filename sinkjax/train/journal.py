"""The log and the speed of a training and, if requested, its curves in TensorBoard's files or at W&B, one run each."""

from __future__ import annotations

import hashlib
import importlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from sinkjax.errors import SinkjaxError, one_of
from sinkjax.runtime import extras, processes
from sinkjax.train import speed
from sinkjax.train.log import Log, read

EVENTS = "events"
LABELS = ("run", "seed", "learning_rate", "variant", "step", "status")


def event_writer() -> Any:
    """Return the class that writes event files; raise if its package is not installed."""
    extras.require("writing TensorBoard files", "tensorboard")
    from tensorboardX import SummaryWriter

    return SummaryWriter


def wandb() -> Any:
    """Return the package of W&B; raise if it is not installed."""
    try:
        return importlib.import_module("wandb")
    except ImportError:
        raise SinkjaxError("logging to W&B needs wandb, which is not installed: pip install wandb") from None


class CurveWriter(Protocol):
    """Where the curves of one run go."""

    def add(self, values: Mapping[str, float], step: int) -> None: ...

    def close(self) -> None: ...


class EventFiles:
    """TensorBoard's files of one run."""

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any]):
        self._writer = event_writer()(str(folder / EVENTS / name))

    def add(self, values: Mapping[str, float], step: int) -> None:
        for tag, value in values.items():
            self._writer.add_scalar(tag, value, step)

    def close(self) -> None:
        self._writer.close()


class WandbRun:
    """A run at W&B, which a resumed training continues."""

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any]):
        own = hashlib.sha256(f"{folder.resolve()}/{name}".encode()).hexdigest()[:16]
        where = {"project": "sinkjax", "group": folder.name, "name": name, "dir": str(folder), "id": own}
        try:
            self._run = wandb().init(**where, config=dict(config), resume="allow", reinit="create_new")
        except Exception as error:
            raise SinkjaxError(f"W&B takes no run: {error}; log in by `wandb login`, or set WANDB_MODE=offline") from error

    def add(self, values: Mapping[str, float], step: int) -> None:
        if step >= self._run.step:  # W&B keeps earlier steps from before
            self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


LOGS: dict[str, type[CurveWriter]] = {"tensorboard": EventFiles, "wandb": WandbRun}


def check_logs(log: Sequence[str]) -> None:
    """Raise for an unknown place, and for one whose package is not installed."""
    for name in log:
        one_of("log", name, tuple(LOGS))
        {"tensorboard": event_writer, "wandb": wandb}[name]()


class Curves:
    """The curves of a training in one place, first written from the existing log and then extended with it."""

    def __init__(self, make: type[Any], folder: Path, config: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]):
        self._make, self._folder, self._config = make, folder, config
        self._places: dict[int, CurveWriter] = {}
        self.write(lines)

    def write(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Add evaluations; an array becomes one curve per entry, named by its index."""
        for line in lines:
            run = line["run"]
            if run not in self._places:
                name = f"run-{run:03d}-seed-{line['seed']}-rate-{line['learning_rate']:g}-{line['variant']}"
                self._places[run] = self._make(self._folder, name, self._config)
            arrays = {name: np.asarray(value, np.float64) for name, value in line.items() if name not in LABELS}
            values = {
                "/".join([name, *map(str, place)]): float(array[place])
                for name, array in arrays.items()
                for place in np.ndindex(array.shape)
            }
            self._places[run].add(values, line["step"])

    def close(self) -> None:
        for place in self._places.values():
            place.close()


class Journal:
    """The log and the curves of a training. In joined processes, the first one writes, and its errors are raised in all."""

    def __init__(self, folder: Path, size: int):
        """Open the journal. size: bytes of the log that belong to the last checkpoint."""
        self.folder, self.size = folder, size
        self._log: Log | None = processes.by_first(lambda: Log(folder, size))
        self._curves: list[Curves] = []

    @property
    def unchecked(self) -> bool:
        """Whether the log of an earlier version is continued, whose lines have no checksums."""
        return self._log is not None and self._log.unchecked

    def close(self) -> None:
        for file in (*self._curves, self._log):
            if file:
                file.close()

    def begin(self, header: Mapping[str, Any] | None, log: Sequence[str]) -> None:
        """Write the first line of the log (None if it exists), and the curves of existing lines."""

        def write() -> None:
            if header and self._log:
                self._log.write([header])
            if not log:
                return
            pace, (first, lines) = speed.noted(self.folder), read(self.folder)
            if "tensorboard" in log:  # its files are made anew
                shutil.rmtree(self.folder / EVENTS, ignore_errors=True)
            for name in log:
                known = ({**line, **pace.get(line["step"], {})} for line in lines)
                self._curves.append(Curves(LOGS[name], self.folder, first["config"], known))

        processes.by_first(write)

    def add(self, step: int, lines: Sequence[Mapping[str, Any]], pace: dict[str, float]) -> None:
        """Add the evaluations and speed of a call that reached `step`."""

        def write() -> None:
            assert self._log is not None
            self._log.write(lines)
            speed.note(self.folder, step, pace)
            for curves in self._curves:
                curves.write([{**line, **pace} for line in lines])
            self.size = self._log.size

        processes.by_first(write)

    def sync(self) -> None:
        """Wait until all lines are on disk."""
        if self._log:
            self._log.sync()
