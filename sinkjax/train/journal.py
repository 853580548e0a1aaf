"""Files written during training: the log, the speed and, if requested, TensorBoard event files, one folder per run."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

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


class Events:
    """Event files, first written from the existing log and then extended with it."""

    def __init__(self, folder: Path, lines: Iterable[Mapping[str, Any]]):
        self._make, self._folder = event_writer(), folder / EVENTS
        self._writers: dict[int, Any] = {}
        shutil.rmtree(self._folder, ignore_errors=True)
        self.write(lines)

    def write(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Add evaluations; an array becomes one curve per entry, named by its index."""
        for line in lines:
            run = line["run"]
            if run not in self._writers:
                name = f"run-{run:03d}-seed-{line['seed']}-rate-{line['learning_rate']:g}-{line['variant']}"
                self._writers[run] = self._make(str(self._folder / name))
            for name, value in line.items():
                if name in LABELS:
                    continue
                array = np.asarray(value, np.float64)
                for place in np.ndindex(array.shape):
                    tag = "/".join([name, *map(str, place)])
                    self._writers[run].add_scalar(tag, float(array[place]), line["step"])

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


class Journal:
    """The log and event files of a training. In joined processes, the first one writes, and its errors are raised in all."""

    def __init__(self, folder: Path, size: int):
        """Open the journal. size: bytes of the log that belong to the last checkpoint."""
        self.folder, self.size = folder, size
        self._log: Log | None = processes.by_first(lambda: Log(folder, size))
        self._events: Events | None = None

    def close(self) -> None:
        for file in (self._events, self._log):
            if file:
                file.close()

    def begin(self, header: Mapping[str, Any] | None, tensorboard: bool) -> None:
        """Write the first line of the log (None if it exists), and event files of existing lines."""

        def write() -> None:
            if header and self._log:
                self._log.write([header])
            if tensorboard:
                pace = speed.noted(self.folder)
                self._events = Events(self.folder, ({**line, **pace.get(line["step"], {})} for line in read(self.folder)[1]))

        processes.by_first(write)

    def add(self, step: int, lines: Sequence[Mapping[str, Any]], pace: dict[str, float]) -> None:
        """Add the evaluations and speed of a call that reached `step`."""

        def write() -> None:
            assert self._log is not None
            self._log.write(lines)
            speed.note(self.folder, step, pace)
            if self._events:
                self._events.write([{**line, **pace} for line in lines])
            self.size = self._log.size

        processes.by_first(write)

    def sync(self) -> None:
        """Wait until all lines are on disk."""
        if self._log:
            self._log.sync()
