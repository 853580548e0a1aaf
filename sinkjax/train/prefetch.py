"""Host batches for one call at a time, prepared by a grain thread while the device computes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sinkjax.config_files import documents
from sinkjax.errors import SinkjaxError, differences
from sinkjax.train.config import Training
from sinkjax.train.log import read
from sinkjax.train.task import DataSource

AHEAD = 1  # calls prepared in advance


class HostBatches:
    """Data of the runs: `seeds` by run index, `count` batches per call, `rows` of each batch (None: all)."""

    def __init__(self, source: DataSource, seeds: Sequence[int], count: int, rows: np.ndarray | None = None):
        self._source, self._seeds, self._count, self._rows = source, seeds, count, rows
        self._next: tuple[tuple[int, ...], int] | None = None  # the iterator's next item
        self._calls: Iterator[Any] = iter(())
        self._made: tuple[tuple[tuple[int, ...], int], Any] | None = None
        self.held_out = source.held_out()

    def at(self, runs: Sequence[int], first: int) -> Any:
        """Return batches `first` to `first + count - 1` of some runs: leaves [runs, count, ...]."""
        import grain

        wanted = (tuple(runs), first)
        if self._made and self._made[0] == wanted:  # requested once more after the very first call, which makes no step
            return self._made[1]
        if self._next != wanted:
            calls = CallBatches(self._source, tuple(self._seeds[run] for run in runs), first, self._count, self._rows)
            ahead = grain.ReadOptions(num_threads=1, prefetch_buffer_size=AHEAD)
            self._calls = iter(grain.MapDataset.source(calls).to_iter_dataset(ahead))
        self._made, self._next = (wanted, next(self._calls)), (wanted[0], first + self._count)
        return self._made[1]


@dataclass(frozen=True)
class CallBatches:
    """Random access to batches: item n has `count` batches per run (one per seed), starting at `first + n count`."""

    source: DataSource
    seeds: tuple[int, ...]
    first: int
    count: int
    rows: np.ndarray | None = None

    def __len__(self) -> int:
        return sys.maxsize

    def __getitem__(self, n: int) -> Any:
        steps = range(self.first + n * self.count, self.first + (n + 1) * self.count)
        of_seed = {seed: _stack([self.source.batch(seed, k, self.rows) for k in steps]) for seed in {*self.seeds}}
        return _stack([of_seed[seed] for seed in self.seeds])


def same_data(folder: Path, card: Mapping[str, Any]) -> None:
    """Raise unless the data's card matches the first line of the training's log, if that has one."""
    began = read(folder)[0].get("data", card)
    other = [name for name in card if documents.plain(card[name]) != began.get(name)]
    if other:
        raise SinkjaxError(
            f"the data of the training in {folder} changed since it started ({', '.join(other)}); choose another folder"
        )


def same_config(folder: Path, config: Training) -> None:
    """Raise unless a config matches the one in the first line of the training's log, in the fields that both have."""
    try:
        was = read(folder)[0]["config"]
    except SinkjaxError:  # nothing was trained yet, or the log is damaged, which its opening says
        return
    now = json.loads(json.dumps(documents.plain(documents.fields(config))))
    if other := differences(was, {name: now.get(name, value) for name, value in was.items()}):
        raise SinkjaxError(
            f"the config of the training in {folder} changed since it started ({'; '.join(other)}); restore its config.yaml, or"
            " choose another folder"
        )


def _stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)
