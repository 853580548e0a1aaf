"""The calls of a sweep: started on the devices one after the other, while threads fetch, check and keep finished results."""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import jax
import numpy as np

from sinkjax.edits.term import Edits
from sinkjax.errors import SinkjaxError
from sinkjax.probes.record import Record
from sinkjax.runtime import processes
from sinkjax.sweeps.arrays import storable
from sinkjax.sweeps.computation import CELLS, Computation
from sinkjax.sweeps.dataset import Memory
from sinkjax.sweeps.schedule import Chunk, Round, Schedule, stack
from sinkjax.sweeps.shared import Base, baseline, edited
from sinkjax.sweeps.store import Store

Fetch = Callable[[], Record]
T = TypeVar("T")


def compute(
    computation: Computation, schedule: Schedule, todo: Iterable[Round], run: Callable[..., Any] | None = None
) -> Iterator[tuple[int, Chunk, Fetch]]:
    """Start calls and yield each: (block of prompts, chunk of edits, a function that waits for its record on the host).

    Records have a leading edit axis. The next call is started when it is asked for. Only one record is fetched at a time.
    run: as for `in_rounds`, by default `computation.each`.
    """
    joined = computation.joined
    for entry, record in in_rounds(computation, schedule, todo, run or computation.each):
        if not joined:
            jax.tree.map(lambda leaf: leaf.copy_to_host_async(), record)
        whole = functools.cache(functools.partial(processes.whole if joined else jax.device_get, record))
        for device, block, chunk in entry.calls():
            of_base = chunk.start >= computation.spec.depth  # one copy serves all edits
            yield block, chunk, functools.partial(_part, whole, slice(device, device + 1) if of_base else device)


def _part(whole: Fetch, index: int | slice) -> Record:
    """Return the part of a device in the record of a round."""
    part: Record = jax.tree.map(lambda array: array[index], whole())
    return part


def in_rounds(
    computation: Computation, schedule: Schedule, todo: Iterable[Round], run: Callable[..., Any]
) -> Iterator[tuple[Round, Record]]:
    """Yield the records of each round, with leading axes over devices and (except for a base) edits; a base is run once.

    run: runs `baseline` or `edited` on inputs on the devices, with changes of the spec, as `computation.each` does.
    """
    L, inputs = computation.spec.depth, (np.asarray(computation.tokens), np.asarray(computation.lengths))

    def resolved(number: Any, prompts: np.ndarray) -> Edits:
        return tuple(term.for_prompts(prompts) for term in computation.resolved[number])

    for runs, rounds in itertools.groupby(todo, key=lambda entry: entry.runs):
        first = np.array([block for block, _ in runs]) * schedule.prompt_block
        prompts = first[:, None] + np.arange(schedule.prompt_block)
        prompts = np.where(prompts < len(computation.lengths), prompts, 0)  # padding prompts in the last block are not kept
        tokens, lengths = computation.place(tuple(array[prompts] for array in inputs))  # on the host, where nothing compiles
        bases = [number for _, number in runs if number is not None]
        of_base = computation.place(stack(list(map(resolved, bases, prompts)))) if bases else ()
        base, record = run(baseline, tokens, lengths, of_base, cuts=schedule.cuts)
        bases_of: dict[tuple[str, ...], Base] = {}  # by the sites of a kind, whose cells the base counts
        for entry in rounds:
            idle = next(chunk for _, _, chunk in entry.calls())  # devices without a call get its edits as placeholders
            if idle.start == L:
                yield entry, record
                continue
            width, stacked = schedule.widths[idle.kind], []
            for rows, chunk in zip(prompts, entry.chunks, strict=True):
                edits = (chunk or idle).edits
                stacked.append(stack([resolved(number, rows) for number in (edits + edits[-1:] * width)[:width]]))
            starts = np.array([L if chunk is None else chunk.start for chunk in entry.chunks], np.int32)
            edits, start = computation.place((stack(stacked), starts))
            sites = tuple(term.site for term in edits)
            if sites not in bases_of:
                bases_of[sites] = base.counting(edits)
            yield entry, run(edited, tokens, lengths, edits, start, bases_of[sites], first=idle.row)


def started(calls: Iterator[T], ahead: int) -> Iterator[T]:
    """Yield calls in order, with `ahead` further ones already started."""
    waiting = deque(itertools.islice(calls, ahead))
    for call in calls:
        waiting.append(call)
        yield waiting.popleft()
    yield from waiting


def keep(results: Memory | Store, computation: Computation, schedule: Schedule, block: int, chunk: Chunk, record: Record) -> None:
    """Check and keep the results of a call. Errors: a row of attention without a visible key."""
    size = schedule.prompt_block
    prompts = min(size, len(computation.lengths) - block * size)
    shape = (len(chunk.edits), prompts)
    values = {}
    for name, array in record.items():
        array = array[: shape[0], :prompts]
        array = np.broadcast_to(array, (*shape, *array.shape[2:]))  # the base's result serves all edits of a chunk
        values[name] = array.sum(axis=-1) if name in CELLS else array.astype(storable(array.dtype), copy=False)
    empty = values.pop("empty_rows", np.zeros(shape))
    if empty.any():
        edit = chunk.edits[int(np.argwhere(empty)[0][0])]
        raise SinkjaxError(f"edit {edit} masks every visible key in {int(empty.max())} rows of attention")
    results.write(chunk, block, dict.fromkeys(CELLS, np.zeros(shape, np.float32)) | values)
