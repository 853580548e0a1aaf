"""A training's log as JSON lines: a header, then one line per evaluation of a run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sinkjax.config_files.checks import is_number
from sinkjax.config_files.files import MOST_TEXT, cannot_write, read_text, regular
from sinkjax.errors import SinkjaxError

LOG, SUMMARY = "log.jsonl", "summary.json"  # in the folder of a training
HEADER, EVALUATION = ("runs", "config"), ("run", "step", "status")  # fields that every log's first line and other lines have
COST = "milliseconds_per_step_of_a_run"  # field of the summary


class Log:
    """An open log, truncated to its first `size` bytes, which belong to the last checkpoint."""

    def __init__(self, folder: Path, size: int):
        try:
            if (folder / LOG).exists():
                regular(folder / LOG)
            self._file = (folder / LOG).open("ab", buffering=0)
            if self._file.tell() < size:
                raise SinkjaxError(f"{folder / LOG} is shorter than recorded in its checkpoint: something else has changed it")
            self._file.truncate(size)
        except OSError as error:
            raise cannot_write(folder / LOG, error) from error
        self.path, self.size = folder / LOG, size

    def close(self) -> None:
        self._file.close()

    def write(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append lines. Errors: no space."""
        text = "".join(json.dumps(plain(line)) + "\n" for line in lines).encode()
        try:
            rest = memoryview(text)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise cannot_write(self.path, error, len(text)) from error
        self.size += len(text)

    def sync(self) -> None:
        """Wait until all lines are on disk. Errors: no space, which some file systems report only here."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise cannot_write(self.path, error) from error


def read(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read a log: its first line, and its evaluations in order. Errors: no log, or a damaged one.

    An incomplete last line, left by a kill or by a training that is writing it, is ignored.
    """
    try:
        text = read_text(folder / LOG, MOST_TEXT)
        first, *lines = text[: text.rfind("\n") + 1].splitlines()
        header, found = json.loads(first), [json.loads(line) for line in lines]
    except (OSError, ValueError):
        raise SinkjaxError(f"{folder} contains no training log; start the training first") from None
    for number, (line, names) in enumerate([(header, HEADER), *((line, EVALUATION) for line in found)], 1):
        if missing := [name for name in names if not isinstance(line, dict) or name not in line]:
            raise SinkjaxError(f"line {number} of {folder / LOG} lacks {missing[0]!r}: something else has changed the log")
    return header, found


def step_cost(folder: Path) -> float | None:
    """Return the wall time of one step of one run of a finished training, in milliseconds, from its summary.

    None: the training has not finished, or no step was timed. Errors: a damaged summary.
    """
    if not (folder / SUMMARY).exists():
        return None
    try:
        cost = json.loads(read_text(folder / SUMMARY))[COST]
        if cost is None or is_number(cost):
            return None if cost is None else float(cost)
    except (json.JSONDecodeError, LookupError, TypeError, RecursionError):
        pass
    raise SinkjaxError(
        f"{folder / SUMMARY} is damaged: it states no number {COST}; delete it, and the training will write it again"
    )


def plain(value: Any) -> Any:
    """Convert a value to JSON: arrays as lists, a float32 by its shortest decimal representation, non-finite numbers as null."""
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
