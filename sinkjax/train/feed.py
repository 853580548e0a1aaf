"""Batches from the host, a call's worth at a time, made by a thread while the device computes the call before."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sinkjax.errors import SinkjaxError
from sinkjax.experiments import documents
from sinkjax.train.log import read
from sinkjax.train.task import Source


class Feed:
    """The data of runs: `seeds` by the number of a run, `count` batches a call."""

    def __init__(self, source: Source, seeds: Sequence[int], count: int):
        self._source, self._seeds, self._count = source, seeds, count
        self._pool = ThreadPoolExecutor(1, "batches")
        self._ahead: dict[tuple[tuple[int, ...], int], Future] = {}
        self.held_out = source.held_out()

    def at(self, runs: Sequence[int], first: int) -> Any:
        """The batches `first` to `first + count - 1` of some runs: leaves [runs, count, ...]."""
        wanted = (tuple(runs), first)
        made = self._ahead.get(wanted) or self._begin(wanted)
        self._ahead = {wanted: made}  # asked for once more after the very first call, which makes no step
        self._begin((wanted[0], first + self._count))
        return made.result()

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown(cancel_futures=True)

    def _begin(self, wanted: tuple[tuple[int, ...], int]) -> Future:
        self._ahead[wanted] = made = self._pool.submit(self._make, *wanted)
        return made

    def _make(self, runs: tuple[int, ...], first: int) -> Any:
        steps = range(first, first + self._count)
        seeds = [self._seeds[run] for run in runs]
        of_seed = {seed: _stack([self._source.batch(seed, k) for k in steps]) for seed in {*seeds}}
        return _stack([of_seed[seed] for seed in seeds])


def same_data(folder: Path, source: Source) -> None:
    """Raise unless the data are those that a training began with, by the first line of its log."""
    began = read(folder)[0]["data"]
    other = [name for name in source.card if documents.plain(source.card[name]) != began.get(name)]
    if other:
        raise SinkjaxError(
            f"the data of the training in {folder} changed since it began ({', '.join(other)}); choose another folder"
        )


def _stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)
