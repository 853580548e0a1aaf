"""`sweep`: many edits, one model, one batch of prompts; planned, shared, stored, resumable."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import itertools
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sinkjax.edits.edit import Edit, as_edits
from sinkjax.edits.resolve import Edits, resolve
from sinkjax.errors import SinkjaxError
from sinkjax.model.batch import check_batch
from sinkjax.model.params import RULES
from sinkjax.probe import Probe
from sinkjax.record import Record
from sinkjax.sweeps.plan import Chunk, Schedule, plan_resolved, stack
from sinkjax.sweeps.shared import baseline, edited
from sinkjax.sweeps.store import Store, create, resume

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.load import Model

CELLS = ("cells_addressed", "cells_changed")


def sweep(
    model: Model,
    tokens: Any,
    edits: Sequence[Edit],
    probe: Probe = Probe(attention_received=True),
    lengths: Any = None,
    labels: Mapping[str, Sequence] | None = None,
    out: str | Path | None = None,
    *,
    memory: int | None = None,
    precision: str = "highest",
    attributes: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> xarray.Dataset:
    """Measure every edit on every prompt.

    tokens: int [B, T] right-padded, or float [B, T, d]. edits: of any kinds; each kind compiles once, and an edit whose first layer
    is l takes the blocks before it from the baseline. probe: the statistics. lengths: int [B]. labels: dimension -> labels; edits
    are labelled by `edit.label` by default. out: a zarr store, written chunk by chunk; the same call resumes it, and after a kill
    gives the values of an undisturbed run bit for bit. None keeps the result in memory. memory: bytes to plan with, by default the
    device's. attributes: provenance kept with the result (text, BOS policy, ...). progress: show a bar.
    Returns a dataset with a leading `edit` dimension; `cells_addressed` and `cells_changed` say what each edit touched.
    Errors: an edit that does not fit (`resolve`), that addressed no cell, or that left a row of attention empty; a store of
    another sweep; an output that cannot be written.
    """
    edits = as_edits(edits)
    tokens, lengths, known = check_batch(tokens, lengths, model.config)
    probe.check(model.config, tokens.shape[1])
    resolved = [resolve(edit, model.config, known, tokens.shape[1]) for edit in edits]
    job = Job(model, tokens, lengths, resolved, probe, precision)
    labels = {"edit": [edit.label for edit in edits]} | dict(labels or {})
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "sweep.zarr" if out is None else Path(out)
        if path.exists():
            store = resume(path, job.identity(labels))
        else:
            schedule = job.schedule(memory)
            variables, fixed = job.layout(labels)
            store = create(path, job.identity(labels), schedule, attributes or {}, variables, fixed)
        fill(store, job, progress)
        dataset = store.dataset()
        _refuse_untouched(dataset, resolved)
        return dataset.load() if out is None else dataset


@dataclass(frozen=True)
class Job:
    """What a sweep computes: arrays in, records out. `resolved`: one resolved edit per entry of the `edit` dimension."""

    model: Model
    tokens: jax.Array
    lengths: jax.Array
    resolved: list[Edits]
    probe: Probe
    precision: str

    @property
    def static(self) -> dict[str, Any]:
        return {"config": self.model.config, "probe": self.probe, "precision": self.precision}

    @functools.cached_property
    def mesh(self) -> Mesh | None:
        """Edits are spread over the mesh of the model, or over all devices; None on a single device."""
        placed = jax.tree.leaves(self.model.params)[0].sharding
        if isinstance(placed, NamedSharding) and placed.mesh.size > 1:
            return placed.mesh
        devices = jax.devices()
        return Mesh(np.array(devices), ("edit",)) if len(devices) > 1 else None

    @property
    def edit_axis(self) -> tuple[str, ...]:
        """The mesh axes over which edits are spread: all but that of the model's own sharding."""
        return tuple(axis for axis in self.mesh.axis_names if axis not in RULES.values()) if self.mesh else ()

    def schedule(self, memory: int | None) -> Schedule:
        """The calls, planned for this machine."""
        B, T = self.tokens.shape[:2]
        dtype = str(jax.tree.leaves(self.model.params)[0].dtype)
        devices = math.prod(self.mesh.shape[axis] for axis in self.edit_axis) if self.mesh else 1
        return plan_resolved(self.model.config, self.resolved, B, T, self.probe, memory, dtype, devices).schedule

    def identity(self, labels: Mapping[str, Sequence]) -> dict[str, Any]:
        """All that decides the numbers and their labels, as JSON."""
        from sinkjax import __version__

        versions = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib")}
        structure = [str(jax.tree.structure(edits)) for edits in self.resolved]
        return {
            "model": self.model.source,
            "config": asdict(self.model.config),
            "dtype": str(jax.tree.leaves(self.model.params)[0].dtype),
            "precision": self.precision,
            "probe": repr(self.probe),
            "prompts": {
                "count": len(self.lengths),
                "positions": self.tokens.shape[1],
                "sha256": _digest(self.tokens, self.lengths),
            },
            "edits": {"count": len(self.resolved), "sha256": _digest(*structure, *jax.tree.leaves(self.resolved))},
            "labels": {axis: {"count": len(values), "sha256": _digest(*map(str, values))} for axis, values in labels.items()},
            "devices": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
            "versions": {"sinkjax": __version__} | versions,
        }

    def layout(self, labels: Mapping[str, Sequence]) -> tuple[dict, dict]:
        """What a store of this job holds: variables to be written, and coordinates, tokens and lengths, known beforehand."""
        B, T = self.tokens.shape[:2]
        record = jax.eval_shape(lambda *args: baseline(*args, **self.static).record, self.model.params, self.tokens, self.lengths)
        variables = {
            name: (("edit", *record.dims[name]), (len(self.resolved), *array.shape), array.dtype)
            for name, array in record.items()
        }
        variables |= {name: (("edit", "prompt"), (len(self.resolved), B), np.dtype("float32")) for name in CELLS}
        sizes = {axis: size for axes, shape, _ in variables.values() for axis, size in zip(axes, shape, strict=True)}
        sizes["position"] = T
        coordinates = (
            {axis: np.arange(size) for axis, size in sizes.items()}
            | self.probe.labels()
            | {k: np.asarray(v) for k, v in labels.items()}
        )
        for axis, values in coordinates.items():
            if values.shape != (sizes.get(axis),):
                raise SinkjaxError(f"labels of {axis!r} have shape {values.shape}, but there are {sizes.get(axis, 'no')} entries")
        fixed = {axis: ((axis,), values) for axis, values in coordinates.items()}
        fixed["length"] = (("prompt",), np.asarray(self.lengths))
        if self.tokens.ndim == 2:
            fixed["tokens"] = (("prompt", "position"), np.asarray(self.tokens))
        return variables, fixed


def _digest(*parts: Any) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]


def fill(store: Store, job: Job, progress: bool) -> None:
    """Compute and write every chunk that the store does not have. One call is under way while the last one is written."""
    schedule = store.schedule
    todo = [
        (block, chunk)
        for block in range(store.done.shape[1])
        for chunk in schedule.chunks
        if not store.done[list(chunk.edits), block].all()
    ]
    with bar(progress, total=store.done.size, done=int(store.done.sum())) as advance:
        waiting = None
        for block, chunk, record in compute(job, schedule, todo):
            if waiting:
                advance(_write(store, job, *waiting))
            waiting = block, chunk, record
        if waiting:
            advance(_write(store, job, *waiting))


def compute(job: Job, schedule: Schedule, todo: list[tuple[int, Chunk]]) -> Iterator[tuple[int, Chunk, Record]]:
    """The record of each chunk of edits and block of prompts; the baseline is run once a block."""
    place = functools.partial(_place, job)
    params = (
        job.model.params
        if job.mesh is None or isinstance(jax.tree.leaves(job.model.params)[0].sharding, NamedSharding)
        else place(job.model.params)
    )
    for block, chunks in itertools.groupby(todo, key=lambda entry: entry[0]):
        prompts = np.arange(block * schedule.prompt_block, (block + 1) * schedule.prompt_block)
        prompts = np.where(
            prompts < len(job.lengths), prompts, 0
        )  # the last block is filled up with a prompt that is not written
        tokens, lengths = place((job.tokens[prompts], job.lengths[prompts]))
        base = baseline(params, tokens, lengths, **job.static)
        for _, chunk in chunks:
            if chunk.start == job.model.config.layers:  # edits without a term
                yield block, chunk, base.record
                continue
            width = schedule.widths[chunk.kind]
            numbers = (chunk.edits + chunk.edits[-1:] * width)[:width]
            stacked = stack([tuple(term.for_prompts(prompts) for term in job.resolved[number]) for number in numbers])
            stacked = _place(job, stacked, job.edit_axis)
            yield block, chunk, edited(params, tokens, lengths, stacked, jnp.int32(chunk.start), base, **job.static)


def _place(job: Job, tree: Any, axis: tuple[str, ...] = ()) -> Any:
    """Put arrays on the job's devices, their first axis spread over mesh axes or not."""
    return tree if job.mesh is None else jax.device_put(tree, NamedSharding(job.mesh, PartitionSpec(axis or None)))


def _write(store: Store, job: Job, block: int, chunk: Chunk, record: Record) -> int:
    """Check and write one chunk; returns the number of (edit, block) pairs written."""
    size = store.schedule.prompt_block
    prompts = min(size, len(job.lengths) - block * size)
    terms = CELLS[0] in record
    shape = (len(chunk.edits), prompts)
    values = {}
    for name, array in record.items():
        array = np.asarray(array)
        array = array[: shape[0], :prompts] if terms else np.broadcast_to(array[:prompts], (shape[0], *array[:prompts].shape))
        values[name] = array.sum(axis=-1) if name in CELLS else array
    empty = values.pop("empty_rows", np.zeros(shape))
    if empty.any():
        edit = chunk.edits[int(np.argwhere(empty)[0][0])]
        raise SinkjaxError(f"edit {edit} leaves {int(empty.max())} rows of attention without a key")
    store.write(chunk.edits, block, dict.fromkeys(CELLS, np.zeros(shape)) | values)
    return len(chunk.edits)


def _refuse_untouched(dataset: xarray.Dataset, resolved: list[Edits]) -> None:
    addressed = dataset.cells_addressed.sum("prompt").values
    for number, edits in enumerate(resolved):
        if edits and addressed[number] == 0:
            raise SinkjaxError(f"edit {number} ({dataset.edit.values[number]}) addressed no cell: it did nothing")


@contextlib.contextmanager
def bar(show: bool, total: int, done: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on the terminal's error stream, with rate and time left; yields the function that advances it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("sweep"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not (show and console.is_terminal)) as shown:
        task = shown.add_task("sweep", total=total, completed=done, rate="")
        begun = time.monotonic()

        def advance(count: int) -> None:
            shown.advance(task, count)
            speed = (shown.tasks[0].completed - done) / (time.monotonic() - begun)
            shown.update(task, rate=f"{speed:.2f} edits/s")

        yield advance
