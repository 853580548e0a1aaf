"""The log of a training, as JSON lines: a header, then one line for each evaluation of a run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sinkjax.config_files.files import cannot_write
from sinkjax.errors import SinkjaxError

LOG, SUMMARY = "log.jsonl", "summary.json"  # in the folder of a training


class Log:
    """An open log, truncated to its first `size` bytes, which belong to the last checkpoint."""

    def __init__(self, folder: Path, size: int):
        try:
            self._file = (folder / LOG).open("ab", buffering=0)
            if self._file.tell() < size:
                raise SinkjaxError(f"{folder / LOG} is shorter than its checkpoint says: something else has changed it")
            self._file.truncate(size)
        except OSError as error:
            raise cannot_write(folder / LOG, error) from error
        self.path, self.size = folder / LOG, size

    def close(self) -> None:
        self._file.close()

    def write(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append lines. Errors: no room."""
        text = "".join(json.dumps(plain(line)) + "\n" for line in lines).encode()
        try:
            rest = memoryview(text)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise cannot_write(self.path, error, len(text)) from error
        self.size += len(text)

    def sync(self) -> None:
        """Wait until all lines are on the disk. Errors: no room, which some file systems notice only here."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise cannot_write(self.path, error) from error


def read(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The first line of a log, and its evaluations in their order. Errors: no log.

    An incomplete last line, left by a kill or by a training that is writing it, is ignored.
    """
    try:
        text = (folder / LOG).read_text(encoding="utf-8")
        first, *lines = text[: text.rfind("\n") + 1].splitlines()
        return json.loads(first), [json.loads(line) for line in lines]
    except (OSError, ValueError):
        raise SinkjaxError(f"{folder} holds no log of a training; start the training first") from None


def plain(value: Any) -> Any:
    """A value as JSON: arrays as lists, a float32 by its shortest decimal representation, non-finite numbers as null."""
    if isinstance(value, Mapping):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray) and value.ndim:
        return [plain(entry) for entry in value]
    if isinstance(value, np.ndarray | np.floating) and np.issubdtype(value.dtype, np.floating):
        return float(str(value)) if np.isfinite(value) else None
    if isinstance(value, np.ndarray | np.generic):
        return value.item()
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return [plain(entry) for entry in value] if isinstance(value, list | tuple) else value
