"""A training's log as JSON lines: a header, then one line per evaluation of a run; and comparisons with its header.

Each line ends with a checksum of all bytes of the log before it, so every changed digit is noticed, also in earlier lines. Lines
that sinkjax 0.4 or earlier wrote have none; the next line covers them.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sinkjax.config_files import documents
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import MOST_TEXT, attempt, read_text, regular
from sinkjax.config_files.locations import read_bytes
from sinkjax.errors import SinkjaxError, differences
from sinkjax.train.config import Training

LOG, SUMMARY = "log.jsonl", "summary.json"  # in the folder of a training
HEADER, EVALUATION = ("runs", "config"), ("run", "step", "status")  # fields that every log's first line and other lines have
COST = "milliseconds_per_step_of_a_run"  # field of the summary
SUM = ', "crc32": "'  # before the checksum at the end of a line


class Log:
    """An open log, truncated to its first `size` bytes, which belong to the last checkpoint.

    unchecked: whether these have no checksum. Errors: they have changed since they were written; no permission.
    """

    def __init__(self, folder: Path, size: int):
        self.path, self.size, self._sum, self.unchecked = folder / LOG, size, 0, False
        with attempt("write", self.path):
            if self.path.exists():
                regular(self.path)
            self._file = self.path.open("ab", buffering=0)
            shorter = self._file.tell() < size
            refuse(shorter, f"{self.path} is shorter than recorded in its checkpoint: something else has changed it")
            if size:
                kept = read_bytes(self.path)[:size]
                self._sum = zlib.crc32(kept)
                self.unchecked = not refuse_changed(kept.decode(errors="replace").removesuffix("\n").split("\n"), self.path)
            self._file.truncate(size)

    def close(self) -> None:
        self._file.close()

    def write(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append lines. Errors: no space."""
        text, total = b"", self._sum
        for line in lines:
            content = json.dumps(plain(line)).encode()
            text += (whole := content[:-1] + f'{SUM}{zlib.crc32(content, total):08x}"}}\n'.encode())
            total = zlib.crc32(whole, total)
        with attempt("write", self.path, len(text)):
            rest = memoryview(text)
            while rest:
                rest = rest[self._file.write(rest) :]
        self.size, self._sum = self.size + len(text), total

    def sync(self) -> None:
        """Wait until all lines are on disk. Errors: no space, which some file systems report only here."""
        with attempt("write", self.path):
            os.fsync(self._file.fileno())


def read(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read a log: its first line, and its evaluations in order. Errors: no log, or one that has changed since it was written.

    An incomplete last line, left by a kill or by a training that is writing it, is ignored.
    """
    path = folder / LOG
    refuse(not path.exists(), f"{folder} contains no training log; start the training first")
    *lines, rest = read_text(path, MOST_TEXT).split("\n")
    whole = SUM in rest and len(rest.rpartition(SUM)[2]) >= len('00000000"}')  # only its line break is missing, or has changed
    refuse_changed([*lines, rest] if whole else lines, path)
    refuse(not lines, f"{folder} contains no training log; start the training first")
    entries = []
    for number, line in enumerate(lines, 1):
        names = HEADER if number == 1 else EVALUATION
        try:
            parsed = json.loads(line)
            missing = next((name for name in names if name not in {**parsed}), None)
        except (ValueError, TypeError, RecursionError):
            raise SinkjaxError(f"line {number} of {path} is not a JSON mapping: something else has changed the log") from None
        refuse(missing is not None, f"line {number} of {path} lacks {missing!r}: something else has changed the log")
        parsed.pop("crc32", None)
        entries.append(parsed)
    return entries[0], entries[1:]


def refuse_changed(lines: Sequence[str], path: Path) -> bool:
    """Raise unless each line, beginning with the first that has a checksum, agrees with it. Returns whether any line has one."""
    total, summed = 0, False
    for number, line in enumerate(lines, 1):
        content, mark, stated = line.rpartition(SUM)
        summed = summed or bool(mark)
        if summed and stated != f'{zlib.crc32(f"{content}}}".encode(), total):08x}"}}':
            raise SinkjaxError(f"{path} has changed since it was written, in line {number} or before; restore it from a copy")
        total = zlib.crc32(f"{line}\n".encode(), total)
    return summed


def same_data(folder: Path, card: Mapping[str, Any]) -> None:
    """Raise unless the data's card matches the first line of the training's log, if that has one."""
    began = read(folder)[0].get("data", card)
    if changed := [name for name in card if documents.plain(card[name]) != began.get(name)]:
        what = f"the data of the training in {folder} changed since it started ({', '.join(changed)})"
        raise SinkjaxError(f"{what}; choose another folder")


def same_config(folder: Path, config: Training) -> None:
    """Raise unless a config matches the one in the first line of the training's log, in the fields that both have."""
    try:
        was = read(folder)[0]["config"]
    except SinkjaxError:  # nothing was trained yet, or the log is damaged, which its opening says
        return
    now = json.loads(json.dumps(documents.plain(documents.fields(config))))
    if changed := differences(was, {name: now.get(name, value) for name, value in was.items()}):
        what = f"the config of the training in {folder} changed since it started ({'; '.join(changed)})"
        raise SinkjaxError(f"{what}; restore its config.yaml, or choose another folder")


def step_cost(folder: Path) -> float | None:
    """Return the wall time of one step of one run of a finished training, in milliseconds, from its summary.

    None: the training has not finished, or no step was timed. Errors: a damaged summary.
    """
    if not (folder / SUMMARY).exists():
        return None
    try:
        cost = json.loads(read_text(folder / SUMMARY))[COST]
        return None if cost is None else float(cost)
    except (ValueError, LookupError, TypeError, RecursionError):
        why = f"it states no number {COST}; delete it, and the training will write it again"
        raise SinkjaxError(f"{folder / SUMMARY} is damaged: {why}") from None


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
