"""The store of a sweep: a zarr group that is filled chunk by chunk and survives a kill at any moment.

It is made whole (shapes, labels, provenance, the chunk plan, a manifest of all that) in a scratch folder and renamed into place,
by one process; any number may fill it, each call being claimed by one of them. A call gives one file, and the rename that puts
it in its place makes the call done. Edits of a call need not be neighbours in the list, so a chunk of the arrays holds others;
once all of these are done, one process packs them into it, writes its mark in `done`, and removes the files of calls that
nothing needs any more, at the latest when the sweep ends. A mark holds the checksums of its chunks. Whatever has neither a mark
nor the file of a call, or is not what its checksum says, is computed again. Zarr format 2: its fixed-width text is part of the
specification, and every reader has it.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkjax.config_files.places import Place, is_remote, read_bytes
from sinkjax.errors import SinkjaxError
from sinkjax.progress import say
from sinkjax.sweeps.chunks import CHANGED, METADATA, MISSING, CallFiles, Chunks, checksum, codecs, put, refuse_large, seal
from sinkjax.sweeps.claims import BEING_MADE, Claims, Leases, making
from sinkjax.sweeps.identity import (
    HARDWARE,
    HARDWARE_FOLDER,
    IDENTITY,
    SCHEDULE,
    as_json,
    check_metadata,
    damaged,
    described,
    differences,
    hardware,
    of_earlier,
    refuse_other,
)
from sinkjax.sweeps.schedule import Chunk, Schedule

if TYPE_CHECKING:
    import xarray

DIMS = "_ARRAY_DIMENSIONS"  # where xarray looks for the names of axes
DONE = "done"  # [edit, prompt_block, variable]: the checksum of the chunk with this edit, 0 where it is not written
CHUNK_BYTES = 1 << 23  # of a chunk of the largest variable, unless one edit has more


class Store:
    """An open store, all of it checked: `done` [edit, prompt_block] says what is computed, `packed` what of it the arrays have.

    damaged: (edits, prompt_block) -> the variable and what was found wrong with it, of what had been complete; it counts until
    these edits are done. lost: file -> what is wrong with it, of arrays that are known before the sweep.
    Errors: no store of a sweep, or metadata that are missing or changed.
    """

    def __init__(self, path: Place):
        self.path, self.lost = path, check_metadata(path)
        try:
            files = json.loads(read_bytes(path / METADATA))["metadata"]
            self.attributes: dict[str, Any] = files[".zattrs"]
            names = sorted(name.removesuffix("/.zarray") for name in files if name.endswith("/.zarray"))
            self.arrays = {name: Chunks.of(path / name, files[f"{name}/.zarray"]) for name in names}
            swept = [name for name in names if files[f"{name}/.zattrs"][DIMS][:2] == ["edit", "prompt"]]
            self.swept, self.marks = {name: self.arrays[name] for name in swept}, self.arrays[DONE]
            E, blocks, *columns = self.marks.shape
            absent = next((name for name in names if not (path / name / ".zarray").is_file()), None)
            if absent or columns not in ([], [len(swept)]):
                raise ValueError(f"{absent}/.zarray {MISSING}" if absent else f"{DONE} has marks of {columns} variables")
        except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise damaged(path, f"its metadata are incomplete: {_words(error)}") from None
        try:
            self.schedule = Schedule.from_json(self.attributes[SCHEDULE])
        except (KeyError, TypeError, ValueError):
            raise of_earlier(path) from None
        self.group = self.marks.size[0]  # edits in a chunk
        self.of_edit = {edit: chunk for chunk in self.schedule.chunks for edit in chunk.edits}
        self.calls = CallFiles(path / ".calls", self.swept)
        self.done, self.packed = np.zeros((E, blocks), bool), np.zeros((E, blocks), bool)
        self.damaged: dict[tuple[tuple[int, ...], int], tuple[str, str]] = {}
        for block in range(blocks):
            self.look(range(E), block)

    def look(self, edits: Sequence[int], block: int) -> None:
        """Read from the disk which of these edits are done.

        Files of calls first: one that is gone then was packed, and what it was packed into has its mark.
        """
        for chunk in dict.fromkeys(self.of_edit[edit] for edit in edits if not self.done[edit, block]):
            self._read_call(chunk, block)
        for group in dict.fromkeys(edit // self.group for edit in edits if not self.packed[edit, block]):
            self._look_at_chunk(group, block)

    def write(self, edits: Sequence[int], block: int, values: Mapping[str, np.ndarray]) -> None:
        """Keep what a call gave: the values [len(edits), prompts of the block, ...] of every variable."""
        with self._writing():
            try:
                self.calls.write(_name(edits, block), values)
            except FileNotFoundError:  # without locks, another process may have finished the store and removed the folder
                self.look(edits, block)
                if not self.done[list(edits), block].all():
                    raise
        self.done[list(edits), block] = True

    def pack(self, claims: Claims) -> None:
        """Move what calls gave into those chunks of which all edits are done, unless another process is at it."""
        first = range(0, len(self.done), self.group)
        ready = np.logical_and.reduceat(self.done, first) & ~self.packed[first]
        for group, block in np.argwhere(ready).tolist():
            with self._writing():
                if not claims.take(name := f"pack.{block}.{group}"):
                    continue
                self._look_at_chunk(group, block)
                if not self.packed[group * self.group, block]:
                    self._pack(group, block)
                claims.drop(name)

    def clear(self) -> None:
        """Remove the files of calls, and what killed processes left, once all calls are packed."""
        self.calls.clear()
        for array in (*self.swept.values(), self.marks):
            array.clear()

    def left(self) -> list[tuple[int, Chunk]]:
        """The calls that are not done: (block of prompts, chunk of edits)."""
        return [
            (block, chunk)
            for block in range(self.done.shape[1])
            for chunk in self.schedule.chunks
            if not self.done[list(chunk.edits), block].all()
        ]

    def claims(self) -> Claims:
        """Who computes which of its calls."""
        return (Leases if is_remote(self.path) else Claims)(self.path / ".claims")

    def restore(self, fixed: Mapping[str, tuple[tuple[str, ...], np.ndarray]]) -> None:
        """Write again those of the arrays known beforehand that were lost. fixed: as for `create`. Errors: no room."""
        try:
            for name in {file.partition("/")[0] for file in self.lost} & fixed.keys():
                self.arrays[name].write((), fixed[name][1])
        except OSError as error:
            raise SinkjaxError(f"cannot write to {self.path}: {error.strerror or error}") from error
        self.lost = check_metadata(self.path)

    def has(self, attributes: Mapping[str, Any]) -> bool:
        """Whether the store was made with these attributes."""
        return all(self.attributes.get(name) == value for name, value in as_json(attributes).items())

    def damage(self) -> str:
        """What is wrong with the store, in words; "" for nothing."""
        found = dict(self.lost)
        for (edits, block), (name, fault) in sorted(self.damaged.items()):
            if self.done[list(edits), block].all():
                continue
            prompts = f", prompt block {block}," if self.done.shape[1] > 1 else ""
            found[f"{name} of {self._words(edits)}{prompts}"] = fault
        return described(found)

    def dataset(self) -> xarray.Dataset:
        """The store as a dataset; values are read when they are used."""
        data = opened(self.path).drop_vars(DONE)
        return data.assign_attrs({HARDWARE: hardware(self.path, self.attributes)})

    def join(self, facts: Mapping[str, Any], strict: bool) -> None:
        """Record the machine that goes on with a store, and say so if it is not the one that made it.

        strict: whether it is refused instead. Errors: that; no permission or no room.
        """
        first, *others = hardware(self.path, self.attributes)
        facts = json.loads(json.dumps(facts))
        differs = differences(first, {name: facts.get(name) for name in first})  # earlier versions kept less
        if strict and (differs or others):
            found = "; ".join(differs or differences(first, others[0]))
            raise SinkjaxError(
                f"{self.path} was computed on other hardware ({found}), but strict requires the same; choose another output,"
                " or resume without strict"
            )
        if differs and facts not in others:
            say(
                f"{self.path} was begun on other hardware ({'; '.join(differs)}): what is computed here is equal to rounding,"
                " not bit for bit"
            )
            content = json.dumps(facts).encode()
            try:
                (self.path / HARDWARE_FOLDER).mkdir(exist_ok=True)
                put(self.path / HARDWARE_FOLDER / f"{checksum(content):08x}.json", content)
            except OSError as error:
                raise SinkjaxError(f"cannot write to {self.path}: {error.strerror or error}") from error

    def _edits_of(self, group: int) -> tuple[int, ...]:
        return tuple(range(group * self.group, min((group + 1) * self.group, len(self.done))))

    def _read_call(self, chunk: Chunk, block: int) -> dict[str, np.ndarray] | None:
        """What a call gave, if its file is there and sound: then it is done."""
        prompts, size = next(iter(self.swept.values())).shape[1], self.schedule.prompt_block
        where = list(chunk.edits), block
        try:
            found = self.calls.read(_name(chunk.edits, block), len(chunk.edits), min(size, prompts - block * size))
        except (OSError, ValueError) as error:
            self.done[where] = self.packed[where]
            if not isinstance(error, FileNotFoundError):
                self.damaged[chunk.edits, block] = "a call", CHANGED
            return None
        self.done[where] = True
        return found

    def _look_at_chunk(self, group: int, block: int) -> None:
        """Whether a chunk of every variable is there and sound: then its edits are packed, and done."""
        edits = self._edits_of(group)
        try:
            marks = self.marks.read((group, block)).reshape(self.group, -1)[: len(edits)]
            expected = marks[0].tolist() if self.marks.dtype != bool else [None] * len(self.swept)
            if not marks.all():
                return
        except FileNotFoundError:
            return
        except (OSError, ValueError):
            self.damaged[edits, block] = DONE, CHANGED
            return
        every = zip(self.swept.items(), expected, strict=True)
        found = ((name, array.fault((group, block), value)) for (name, array), value in every)
        if fault := next(filter(lambda entry: entry[1], found), None):
            self.damaged[edits, block] = fault
            return
        self.packed[list(edits), block] = self.done[list(edits), block] = True

    def _pack(self, group: int, block: int) -> None:
        """Write a chunk of every variable, its mark, and only then remove what nothing needs any more."""
        edits = self._edits_of(group)
        chunks = dict.fromkeys(self.of_edit[edit] for edit in edits)
        found = {}
        for chunk in chunks:
            values = self._read_call(chunk, block)
            if values is None:  # changed since it was written
                self.damaged.setdefault((chunk.edits, block), ("a call", MISSING))
                say(f"{self.path}: {self.damage()}; computing only that again")
                return
            found[chunk] = values
        rows = [(found[chunk], chunk.edits.index(edit)) for edit in edits for chunk in [self.of_edit[edit]]]
        sums = [array.write((group, block), np.stack([of[name][row] for of, row in rows])) for name, array in self.swept.items()]
        marks = np.array(sums if self.marks.dtype != bool else True, self.marks.dtype)
        self.marks.write((group, block), np.broadcast_to(marks, (len(edits), *self.marks.size[1:])))
        self.packed[list(edits), block] = True
        for chunk in chunks:
            if self.packed[list(chunk.edits), block].all():
                self.calls.drop(_name(chunk.edits, block))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SinkjaxError(
                f"cannot write to {self.path}: {error.strerror or error}; finished work is kept: rerun the same command to resume"
            ) from error

    def _words(self, edits: Sequence[int]) -> str:
        if len(edits) > 1:
            near = tuple(edits) == tuple(range(edits[0], edits[-1] + 1))
            return f"edits {edits[0]} to {edits[-1]}" if near else f"edits {', '.join(map(str, edits))}"
        try:
            return f"edit {edits[0]} ({self.arrays['edit'].read(())[edits[0]]})"
        except (OSError, ValueError, KeyError):
            return f"edit {edits[0]}"


def _name(edits: Sequence[int], block: int) -> str:
    return f"{block}.{edits[0]}"  # calls share no edit of a block


def exists(path: Place) -> bool:
    """Whether something lies at `path`, other than what a process is just making. Errors: a path that cannot be looked up."""
    try:
        return path.exists() and not (is_remote(path) and (path / BEING_MADE).exists())
    except OSError as error:
        raise SinkjaxError(f"cannot use {str(path)[:200]}: {error.strerror or error}") from None


def opened(path: Place) -> xarray.Dataset:
    """A group of arrays as a dataset; values are read when they are used."""
    import xarray

    where, options = path, None
    if is_remote(path):
        where, options = str(path), dict(path.storage_options)
    return xarray.open_zarr(where, chunks=None, consolidated=True, storage_options=options)


def resume(path: Place, identity: Mapping[str, Any], but: tuple[str, str] | None = None) -> Store:
    """The store that an earlier call with this identity made.

    identity: what defines the numbers (model, prompts, edits, probe, versions, ...), as JSON. but: an entry that may differ.
    Errors: a path that is no store of a sweep, or the store of another one (each difference is named); metadata that are damaged.
    """
    refuse_other(path, identity, but)
    return Store(path)


def create(
    path: Place,
    identity: Mapping[str, Any],
    facts: Mapping[str, Any],
    schedule: Schedule,
    attributes: Mapping[str, Any],
    variables: Mapping[str, tuple[tuple[str, ...], tuple[int, ...], np.dtype]],
    fixed: Mapping[str, tuple[tuple[str, ...], np.ndarray]],
) -> Store:
    """A new, empty store, whole or not at all; or that which another process was faster to make, if it is of this sweep.

    variables: name -> (dims, shape, dtype) of what will be written; the first two dims are edit and prompt. fixed: name -> (dims,
    values), coordinates and whatever else is known beforehand. facts: of the machine. attributes: provenance, as JSON.
    Errors: no permission or no room; attributes that JSON does not have, or of a name that the store itself uses; an array of
    which a chunk would be too large; the store of another sweep, made meanwhile.
    """
    import zarr

    attributes = as_json(attributes)
    refuse_large(variables, fixed, schedule.prompt_block)
    edits, prompts = next(iter(variables.values()))[1][:2]
    largest = max(math.prod(shape[2:]) * dtype.itemsize for _, shape, dtype in variables.values()) * schedule.prompt_block
    group = min(edits, max(1, CHUNK_BYTES // largest))
    with making(path) as scratch:
        if scratch is not None:
            root = zarr.open_group(scratch, mode="w", zarr_format=2)
            for name, (dims, shape, dtype) in variables.items():
                fill = np.nan if np.issubdtype(dtype, np.floating) else None  # readers take a fill value for "missing"
                size = (group, schedule.prompt_block, *shape[2:])
                array = root.create_array(name, shape=shape, chunks=size, dtype=dtype, fill_value=fill, **codecs())
                array.attrs[DIMS] = list(dims)
            blocks, count = -(-prompts // schedule.prompt_block), len(variables)
            done = root.create_array(
                DONE, shape=(edits, blocks, count), chunks=(group, 1, count), dtype="uint32", fill_value=None, **codecs()
            )
            done.attrs[DIMS] = ["edit", "prompt_block", "variable"]
            for name, (dims, values) in fixed.items():
                array = root.create_array(
                    name, shape=values.shape, chunks=values.shape, dtype=values.dtype, fill_value=None, **codecs()
                )
                array.attrs[DIMS] = list(dims)
                array[...] = values
            own = {IDENTITY: identity, HARDWARE: [facts], SCHEDULE: schedule.to_json()}
            root.attrs.update(attributes | json.loads(json.dumps(own)))
            zarr.consolidate_metadata(scratch, zarr_format=2)
            seal(scratch)
    return resume(path, identity)


def _words(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())[:120]
