"""The store of a sweep or a calculation: a folder of immutable objects that becomes a group of arrays.

The first process writes a header with the computation and its division into calls. Each call gives one object, and the call is
done once its object exists. Any number of processes compute missing objects; if two compute the same one, the first to arrive
stays. When no call is left, the objects become zarr arrays with a manifest of checksums. The file that shows the arrays to
readers comes last, and then the objects go. Nothing is locked. A file that is missing or changed later is written again, from its
calls if need be.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkjax.config_files.files import write, write_new
from sinkjax.config_files.places import Place, delete, read_bytes, remove
from sinkjax.errors import SinkjaxError
from sinkjax.runtime.progress import say
from sinkjax.sweeps.arrays import (
    MANIFEST,
    METADATA,
    faults,
    files_of_group,
    manifest,
    opened,
)
from sinkjax.sweeps.header import CALLS, HEADER, Fixed, Header
from sinkjax.sweeps.identity import (
    HARDWARE,
    HARDWARE_FOLDER,
    IDENTITY,
    RECORDED,
    SCHEDULE,
    as_json,
    differences,
    hardware,
    of_earlier,
    refuse_other,
)
from sinkjax.sweeps.objects import CHANGED, MISSING, Objects, checksum, digest, sealed
from sinkjax.sweeps.schedule import Chunk, Schedule

if TYPE_CHECKING:
    import xarray


class Store:
    """An open store, all of its arrays checked.

    done: bool [edit, prompt_block], whether it is computed. finished: whether a reader sees its arrays. faults: file -> "is
    missing" or "is not what was written". new: whether this process wrote its header. Errors: no store; a schedule that this
    version cannot read.
    """

    def __init__(self, path: Place, header: Header | None = None, durable: bool = True):
        header = header or Header.read(path)
        if header is None:
            raise SinkjaxError(f"there is no store {path}")
        self.path, self.header, self.durable, self.new = path, header, durable, False
        self.objects = Objects(path / CALLS, header.key, durable)
        try:
            self.schedule = Schedule.from_json(header.attributes.get(SCHEDULE) or Schedule(1, (), ()).to_json())
        except (KeyError, TypeError, ValueError):
            raise of_earlier(path) from None
        E, B, self.group = (*header.variables[0].shape[:2], header.variables[0].size[0]) if header.variables else (0, 0, 1)
        self.done = np.zeros((E, -(-B // self.schedule.prompt_block)), bool)
        self._read()

    def _read(self) -> None:
        """Find out from the disk what there is."""
        self.finished, self.sums = (self.path / METADATA).is_file(), manifest(self.path)
        known = self.finished or bool(self.sums)  # the latter: of a store that is being mended
        self.faults = dict(faults(self.path, self.header.variables, self.sums)) if known else {}
        if self.finished and not self.sums:
            self.faults[MANIFEST] = CHANGED if (self.path / MANIFEST).exists() else MISSING
        self.sound = {index for index in self._indices() if known and not self.faults.keys() & set(self._files(*index))}
        self.done[...] = False
        for group, block in self.sound:
            self.done[self._edits_of(group), block] = True
        there = self.objects.names()
        for block, chunk in self.left():
            self.done[list(chunk.edits), block] = self.objects.file(chunk.edits, block).name in there

    def left(self) -> list[tuple[int, Chunk]]:
        """The calls that are not done: (block of prompts, chunk of edits)."""
        blocks = range(self.done.shape[1])
        return [(block, chunk) for block in blocks for chunk in self.schedule.chunks if not self._has(chunk, block)]

    def look(self, chunk: Chunk, block: int) -> bool:
        """Whether a call is done by now, by this process or another."""
        if not self._has(chunk, block) and (self.objects.exists(chunk.edits, block) or self.finished_by_another()):
            self.done[list(chunk.edits), block] = True
        return self._has(chunk, block)

    def write(self, chunk: Chunk, block: int, values: Mapping[str, np.ndarray]) -> None:
        """Keep the results of a call: every variable's values [edits of the chunk, prompts of the block, ...]."""
        with _keeping():
            arrays = {variable.name: np.asarray(values[variable.name], variable.dtype) for variable in self.header.variables}
            try:
                self.objects.write(chunk.edits, block, arrays)
            except SinkjaxError:  # its folder goes when another process has put the arrays together
                if not self.finished_by_another():
                    raise
        self.done[list(chunk.edits), block] = True

    def mend(self) -> None:
        """Hide a damaged store from readers until it is repaired."""
        if self.finished and self.faults:
            with _keeping():
                delete(self.path / METADATA)
            self.finished = False

    def compact(self, fixed: Fixed) -> None:
        """Make the arrays, once no call is left. A damaged object is removed, and its call is left again.

        fixed: the arrays that are known beforehand.
        """
        try:
            chunks = dict(self._chunks())
            if self.left():
                return
            self.publish(files_of_group(self.header.variables, fixed, self.header.attributes), chunks)
        except (FileNotFoundError, SinkjaxError) as error:  # another process has removed the objects, or is about to
            if not self.finished_by_another():
                if isinstance(error, SinkjaxError):
                    raise
                self._read()
                return
        self.finish()

    def publish(self, files: Mapping[str, bytes], chunks: Mapping[str, int] = MappingProxyType({})) -> None:
        """Write the files of arrays, the one that readers look for last. chunks: file -> checksum, for files written before."""
        sums = {name: checksum(content) for name, content in files.items()} | dict(chunks)
        last = {MANIFEST: sealed(json.dumps(sums, indent=0, sort_keys=True).encode()), METADATA: files[METADATA]}
        for name, content in files.items():
            if name != METADATA:
                self._write(name, content, durable=False)
        for name, content in last.items():
            self._write(name, content, self.durable)

    def finished_by_another(self) -> bool:
        """Whether another process has put the arrays together since this one looked."""
        return not self.finished and bool((self.path / METADATA).is_file())

    def finish(self) -> None:
        """Remove the objects of a store whose arrays are there."""
        remove(self.path / CALLS)
        self.finished, self.faults, self.done[...] = True, {}, True

    def dataset(self) -> xarray.Dataset:
        """The store as a dataset; values are read when they are used."""
        return opened(self.path).assign_attrs({HARDWARE: hardware(self.path, self.header.attributes)})

    def has(self, attributes: Mapping[str, Any]) -> bool:
        """Whether the store was made with these attributes."""
        return all(self.header.attributes.get(name) == value for name, value in as_json(attributes).items())

    def join(self, facts: Mapping[str, Any], strict: bool) -> None:
        """Record the machine that goes on with a store, and say so if it is not the one that made it.

        strict: whether it is refused instead. Errors: that; no permission or no room.
        """
        first, *others = hardware(self.path, self.header.attributes)
        facts = json.loads(json.dumps(facts))
        differs = differences(first, {name: facts.get(name) for name in first})  # earlier versions kept less
        if strict and (differs or others):
            found = "; ".join(differs or differences(first, others[0]))
            raise SinkjaxError(
                f"{self.path} was computed on other hardware ({found}), but strict requires the same; choose another output,"
                " or resume without strict"
            )
        if differs and facts not in others:
            versions = all(entry.startswith(RECORDED) for entry in differs)
            say(
                f"{self.path} was begun {'with other versions' if versions else 'on other hardware'} ({'; '.join(differs)}):"
                " what is computed here is equal to rounding, not bit for bit"
            )
            write(self.path / HARDWARE_FOLDER / f"{digest(facts)}.json", json.dumps(facts))

    def _has(self, chunk: Chunk, block: int) -> bool:
        return bool(self.done[list(chunk.edits), block].all())

    def _edits_of(self, group: int) -> list[int]:
        return list(range(group * self.group, min((group + 1) * self.group, len(self.done))))

    def _indices(self) -> list[tuple[int, int]]:
        """(group of edits, block of prompts) of the chunks of each variable."""
        groups = -(-len(self.done) // self.group)
        return [(group, block) for group in range(groups) for block in range(self.done.shape[1])]

    def _files(self, group: int, block: int) -> list[str]:
        return [variable.file(group, block) for variable in self.header.variables]

    def _chunks(self) -> Iterator[tuple[str, int]]:
        """Write those chunks of arrays that are not there, or not sound, from the objects; (file, checksum) of all."""
        of_edit = {edit: chunk for chunk in self.schedule.chunks for edit in chunk.edits}
        for group, block in self._indices():
            edits, files = self._edits_of(group), self._files(group, block)
            if (group, block) in self.sound:
                yield from ((name, self.sums.get(name) or checksum(read_bytes(self.path / name))) for name in files)
                continue
            gave = {chunk: self._object(chunk, block) for chunk in dict.fromkeys(of_edit[edit] for edit in edits)}
            rows = [(gave[of_edit[edit]], of_edit[edit].edits.index(edit)) for edit in edits]
            for variable, name in zip(self.header.variables, files, strict=True):
                values = [values[variable.name][row] for values, row in rows if values]
                if len(values) == len(edits):
                    content = variable.encode(np.stack(values))
                    self._write(name, content, self.durable)
                    yield name, checksum(content)

    def _object(self, chunk: Chunk, block: int) -> dict[str, np.ndarray] | None:
        """The results of a call; None if its object is damaged, and the call is left again."""
        try:
            return self.objects.read(chunk.edits, block)
        except ValueError as error:
            say(f"{self.path}: a call of edits {', '.join(map(str, chunk.edits))} {error}; computing only that again")
            self.objects.drop(chunk.edits, block)
            self.done[list(chunk.edits), block] = False
            return None

    def _write(self, name: str, content: bytes, durable: bool) -> None:
        with _keeping():
            write(self.path / name, content, durable=durable, scratch=self.path / CALLS)


@contextlib.contextmanager
def _keeping() -> Iterator[None]:
    """Say of an error that finished work is kept."""
    try:
        yield
    except SinkjaxError as error:
        error.args = (f"{error}; finished work is kept: rerun the same command to resume",)
        raise


def _remove_empty(path: Place) -> None:
    for folder in (path / CALLS, path):
        with contextlib.suppress(OSError, NotImplementedError):
            folder.rmdir()


def begin(path: Place, identity: Mapping[str, Any], make: Callable[[], Header], durable: bool = True) -> Store:
    """The store `path` with this identity: a new one, or one that an earlier call or another process has begun.

    identity: everything that defines the numbers (model, prompts, edits, probe, versions, ...), as JSON. make: gives the header
    of a new store. Errors: no permission or no room; other content; the store of another sweep (each difference is named).
    """
    identity = json.loads(json.dumps(identity))
    header, new = Header.read(path, digest(identity)), False
    if header is None:
        header = make()
        try:
            new = write_new(path / HEADER, header.content, durable=durable, scratch=path / CALLS)
        except SinkjaxError:  # no room, unless another process was so fast that it has finished
            if Header.read(path) is None:
                _remove_empty(path)
                raise
        header = Header.read(path) or header
    refuse_other(path, header.attributes[IDENTITY], identity)
    store = Store(path, header, durable)
    store.new = new
    return store


def existing(path: Place, identity: Mapping[str, Any], but: tuple[str, str] | None = None) -> Store | None:
    """The store `path`, None where nothing is there. but: an entry of the identity that may differ. Errors: as for `begin`."""
    header = Header.read(path)
    if header is None:
        return None
    refuse_other(path, header.attributes[IDENTITY], identity, but)
    return Store(path, header)
