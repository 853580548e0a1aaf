"""The files written during a training: its log, its speed and, if requested, event files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from sinkjax.runtime import processes
from sinkjax.train import speed
from sinkjax.train.log import Log, read
from sinkjax.train.tensorboard import Events


class Journal:
    """The first of joined processes writes; its errors are raised in all of them."""

    def __init__(self, folder: Path, size: int):
        """size: bytes of the log that belong to the last checkpoint."""
        self.folder, self.size = folder, size
        self._log: Log | None = processes.by_first(lambda: Log(folder, size))
        self._events: Events | None = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._events:
            self._events.close()
        if self._log:
            self._log.__exit__(kind, error, trace)

    def begin(self, header: Mapping[str, Any] | None, tensorboard: bool) -> None:
        """Write the first line of the log, None: it is there; and event files of the lines that are there."""

        def write() -> None:
            if header and self._log:
                self._log.write([header])
            if tensorboard:
                self._events = Events(self.folder, read(self.folder)[1])

        processes.by_first(write)

    def add(self, step: int, lines: Sequence[Mapping[str, Any]], pace: dict[str, float]) -> None:
        """Add the evaluations of a call that reached `step`, and its speed."""

        def write() -> None:
            assert self._log is not None
            self._log.write(lines)
            speed.note(self.folder, step, pace)
            if self._events:
                self._events.write([{**line, **pace} for line in lines])
            self.size = self._log.size

        processes.by_first(write)

    def sync(self) -> None:
        """Wait until all lines are on the disk."""
        if self._log:
            self._log.sync()
