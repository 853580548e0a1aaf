"""The log as TensorBoard event files, one folder for each run (optional)."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sinkjax.runtime import extras

EVENTS = "events"
LABELS = ("run", "seed", "learning_rate", "variant", "step", "status")


def event_writer() -> Any:
    """The class that writes event files. Errors: its package is not installed."""
    extras.require("writing TensorBoard files", "tensorboard")
    from tensorboardX import SummaryWriter

    return SummaryWriter


class Events:
    """Event files, written from the lines of the log and then extended with it."""

    def __init__(self, folder: Path, lines: Iterable[Mapping[str, Any]]):
        self._make, self._folder = event_writer(), folder / EVENTS
        self._writers: dict[int, Any] = {}
        shutil.rmtree(self._folder, ignore_errors=True)
        self.write(lines)

    def write(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Add evaluations; an array becomes one curve for each entry, named by its index."""
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
