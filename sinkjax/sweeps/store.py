"""Store of a sweep or a calculation: a folder of immutable objects that becomes a group of arrays.

The first process writes a header with the computation and its division into calls. Each call produces one object and is done once
its object exists. Any number of processes compute missing objects; if two compute the same one, the first stays. When no calls
remain, the objects become zarr arrays, and the header gets their checksums. The file that shows the arrays to readers is written
last, and then the objects are deleted. There are no locks. A file that later is missing or has changed is written again, if
necessary by repeating its calls.

An object contains the call's arrays, from which chunks of several calls are made. Where each edit has its own chunks, it is
instead a list of files that were written before it, under names that nobody else uses, and that only have to be renamed.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import secrets
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import xarray
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import move, write, write_aside, write_new
from sinkjax.config_files.places import MOST_READ, Place, delete, is_remote, listed, read_bytes, remove
from sinkjax.errors import SinkjaxError
from sinkjax.model.fingerprint import digest
from sinkjax.runtime.progress import say
from sinkjax.sweeps import header as headers
from sinkjax.sweeps.arrays import METADATA, arrays_of, matches, own_sum
from sinkjax.sweeps.dataset import Dataset
from sinkjax.sweeps.header import CALLS, CHANGED, HARDWARE, HEADER, IDENTITY, SCHEDULE, Fixed, Header, differences
from sinkjax.sweeps.schedule import Chunk, Schedule

CALL, FILES = ".call", "files"  # in an object: the call's coordinates, and files of chunks: final name -> (name, checksum)
WRITERS = 4  # threads that encode and write
OBJECT_HEADER = 1 << 20  # more bytes than names, shapes and coordinates have in an object
MACHINE = 1 << 20  # more bytes than the record of a machine has

Files = dict[str, list[str]]
T = TypeVar("T")
ASIDE = re.compile(r"\.[0-9a-f]{16}")


class Store:
    """An open store, all of its arrays checked.

    done: bool [edit, prompt_block], whether it is computed. finished: whether readers can see the arrays. faults: damaged file ->
    its fault. new: whether this process wrote the header. Errors: there is no store.
    """

    def __init__(self, path: Place, header: Header | None = None):
        if (header := header or Header.read(path)) is None:
            raise SinkjaxError(f"there is no store {path}")
        self.path, self.header, self.new = path, header, False
        self.checked: dict[str, Files] = {}  # by object: files of chunks that this process has written, or read and checked
        self.key, self.variables = headers.key_of(header.attributes[IDENTITY]), header.variables()
        self.schedule = Schedule.from_json(header.attributes.get(SCHEDULE) or Schedule(1, (), ()).to_json())
        self._read()

    def _read(self) -> None:
        """Read the state of the store from disk."""
        self.finished = bool((self.path / METADATA).is_file())
        if self.finished:  # the header has checksums by now
            self.header = Header.read(self.path) or self.header
        self.faults = dict(self._faults()) if self.finished or self.header.sums else {}
        E, B, self.group, prompts = 0, 1, 1, 1
        if self.variables:
            (E, B), (self.group, prompts) = self.variables[0].shape[:2], self.variables[0].size[:2]
        self.apart = self.group == 1 and E > 0 and not is_remote(self.path)  # each edit has its own chunks
        shape = -(-E // self.group), -(-B // prompts)
        whole = self.header.sums.keys() - self.faults.keys()
        self.sound = np.array([whole.issuperset(self._files(*index)) for index in np.ndindex(shape)], bool).reshape(shape)
        self.done = self.sound.repeat(self.group, axis=0)[:E]
        try:
            there = {*listed(self.path / CALLS)}
        except OSError as error:
            if error.filename is None:  # of an object store
                raise
            raise SinkjaxError(f"cannot use {error.filename}: {error.strerror}") from None
        for block, chunk in self.left():
            self.done[list(chunk.edits), block] = self.object(chunk, block).name in there

    def _files(self, group: int, block: int) -> list[str]:
        """List the chunks of a group of edits and a block of prompts, one per variable."""
        return [variable.file(group, block) for variable in self.variables]

    def _faults(self) -> Iterator[tuple[str, str]]:
        """Map each missing or changed file to its fault; the header itself is no longer needed."""
        wanted = self.header.files()
        del wanted[HEADER]
        arrays = {array.name: array for array in arrays_of(self.header.metadata)}
        for name in (*self.header.sums, *wanted):
            try:
                array = None if name in wanted else arrays[name.rpartition("/")[0]]
                content = read_bytes(self.path / name, array.most if array else len(wanted[name]))
                if not (array.holds(content) and matches(content, self.header.sums[name]) if array else content == wanted[name]):
                    yield name, CHANGED
            except (FileNotFoundError, NotADirectoryError):
                yield name, "is missing"
            except OSError:  # not a file, too large, or a disk failure
                yield name, CHANGED

    def object(self, chunk: Chunk, block: int) -> Place:
        """Return the path of a call's object."""
        return self.path / CALLS / f"{self.key}-{digest(self._coordinates(chunk, block))}"

    def _coordinates(self, chunk: Chunk, block: int) -> np.ndarray:
        """Return a call's coordinates: the prompts per block, the block, and the edits."""
        return np.array([self.schedule.prompt_block, block, *chunk.edits])

    def left(self) -> list[tuple[int, Chunk]]:
        """List the remaining calls: (block of prompts, chunk of edits)."""
        blocks = range(self.done.shape[1])
        return [(block, chunk) for block in blocks for chunk in self.schedule.chunks if not self._has(chunk, block)]

    def _has(self, chunk: Chunk, block: int) -> bool:
        return bool(self.done[list(chunk.edits), block].all())

    def look(self, chunk: Chunk, block: int) -> bool:
        """Check whether a call is done by now, in this process or another."""
        if not self._has(chunk, block) and (self.object(chunk, block).is_file() or self._finished_by_another()):
            self.done[list(chunk.edits), block] = True
        return self._has(chunk, block)

    def write(self, chunk: Chunk, block: int, values: Mapping[str, np.ndarray]) -> None:
        """Store the results of a call, by variable [edits of the chunk, prompts of the block, ...], unless its object exists."""
        place, call, files = self.object(chunk, block), self._coordinates(chunk, block), Files()
        new = True  # until an error or another process says otherwise: a kill may come after the object has its name
        with _keeping():
            try:
                if self.apart:
                    for row, edit in enumerate(chunk.edits):
                        self._aside(files, edit, block, {name: array[row : row + 1] for name, array in values.items()})
                    content = json.dumps({CALL: call.tolist(), FILES: files}).encode()
                else:
                    content = safetensors.save({CALL: call, **{name: np.ascontiguousarray(x) for name, x in values.items()}})
                new = write_new(place, headers.sealed(content), durable=True, scratch=self.path / CALLS)
                if new:
                    self.checked[place.name] = files
            except SinkjaxError:  # the folder is deleted once another process has made the arrays
                new = False
                if not self._finished_by_another():
                    raise
            finally:
                for name, _ in () if new else files.values():  # another process was faster, or there is no room
                    delete(self.path / CALLS / name)
        self.done[list(chunk.edits), block] = True

    def _aside(self, files: Files, edit: int, block: int, values: Mapping[str, np.ndarray]) -> None:
        """Write the chunks of one edit under names that nobody else uses, and note them in `files`."""
        for variable in self.variables:
            content, name = variable.encode(values[variable.name]), f".{secrets.token_hex(8)}"
            files[variable.file(edit, block)] = [name, own_sum(content)]
            write_aside(self.path / CALLS / name, content)

    def read(self, chunk: Chunk, block: int) -> dict[str, np.ndarray]:
        """Read the results of a call. Errors: FileNotFoundError; ValueError if its object has changed or belongs to another
        call."""
        found = self._object(chunk, block)
        if FILES not in found:
            return found
        files = {name: self._chunk(name, *entry) for name, entry in found[FILES].items()}
        return {
            variable.name: np.concatenate([variable.decode(files[variable.file(edit, block)]) for edit in chunk.edits])
            for variable in self.variables
        }

    def _object(self, chunk: Chunk, block: int) -> dict[str, Any]:
        """Read a call's object: its arrays, or FILES. Errors: as for `read`."""
        try:
            content = headers.unsealed(read_bytes(self.object(chunk, block), self._most(chunk)))
            found: dict[str, Any] = json.loads(content) if content[:1] == b"{" else safetensors.load(content)
        except FileNotFoundError:
            raise
        except (OSError, SafetensorError):  # not a file, too large, or a disk failure
            raise ValueError(CHANGED) from None
        if not np.array_equal(found.pop(CALL, np.empty(0)), self._coordinates(chunk, block)):
            raise ValueError(CHANGED)
        return found

    def _most(self, chunk: Chunk) -> int:
        """Maximum bytes of a call's object: 8 for each number, and its header; that of a calculation may have any size."""
        if not self.variables:
            return MOST_READ
        rows = len(chunk.edits) * self.schedule.prompt_block
        return sum(8 * rows * math.prod(variable.shape[2:]) for variable in self.variables) + OBJECT_HEADER

    def _chunk(self, file: str, name: str, checksum: str) -> bytes:
        """Read a chunk that was written aside, or that another process has put in place. Errors: as for `read`."""
        most = {variable.name: variable.most for variable in self.variables}.get(file.rpartition("/")[0], 0)
        for path in (self.path / CALLS / name, self.path / file) if ASIDE.fullmatch(name) else ():
            with contextlib.suppress(OSError):  # not there, not a file, too large, or a disk failure
                if matches(content := read_bytes(path, most), checksum):
                    return content
        raise ValueError(CHANGED)

    def mend(self) -> None:
        """Hide a damaged store from readers until it is repaired."""
        if self.finished and self.faults:
            with _keeping():
                delete(self.path / METADATA)
            self.finished = False

    def compact(self, fixed: Fixed) -> None:
        """Make the arrays once no calls remain. A damaged object is removed, and its call remains to be done.

        fixed: the arrays that are known before the sweep.
        """
        try:
            sums = self._chunks()
            if not self.left():
                arrays = [array for array in arrays_of(self.header.metadata) if array.name in fixed]
                self.publish(self.header, {array.file(): array.encode(fixed[array.name][1]) for array in arrays}, sums)
        except (FileNotFoundError, SinkjaxError) as error:  # another process has removed the objects or is about to
            self._read()
            if self.finished:
                self.finish()
            elif isinstance(error, SinkjaxError):
                raise

    def _chunks(self) -> dict[str, int | str]:
        """Write missing or damaged chunks from the objects; return the checksums of all, by file."""
        places = {edit: (chunk, row) for chunk in self.schedule.chunks for row, edit in enumerate(chunk.edits)}

        def make(index: tuple[int, ...]) -> Mapping[str, int | str]:
            group, block = index
            files = self._files(group, block)
            if self.sound[index]:
                return {file: self.header.sums[file] for file in files}
            rows = [places[edit] for edit in range(group * self.group, min((group + 1) * self.group, len(self.done)))]
            if self.apart and (found := self._sound(self._place, rows[0][0], block, files)) is not None:
                return found
            sums: dict[str, int | str] = {}
            gave = {chunk: self._sound(self.read, chunk, block) for chunk in dict.fromkeys(chunk for chunk, _ in rows)}
            for file, variable in zip(files, self.variables, strict=True) if all(gave.values()) else ():
                content = variable.encode(np.stack([gave[chunk][variable.name][row] for chunk, row in rows]))
                self._write(file, content)
                sums[file] = own_sum(content)
            return sums

        with ThreadPoolExecutor(WRITERS) as pool:
            return {file: checksum for found in pool.map(make, np.ndindex(self.sound.shape)) for file, checksum in found.items()}

    def _place(self, chunk: Chunk, block: int, names: list[str]) -> dict[str, str] | None:
        """Put these chunks of a call in place and return their checksums; None if its object contains arrays.

        Chunks that another process has written are checked first. Errors: as for `read`.
        """
        found, call = self._object(chunk, block), self.object(chunk, block).name
        if FILES not in found:
            return None
        if self.checked.get(call) != found[FILES]:
            for file, entry in found[FILES].items():
                self._chunk(file, *entry)
            self.checked[call] = found[FILES]
        files = {file: found[FILES][file] for file in names}
        for file, (name, checksum) in files.items():
            if not move(self.path / CALLS / name, self.path / file):  # another process may have done so
                self._chunk(file, name, checksum)
        return {file: checksum for file, (_, checksum) in files.items()}

    def _sound(self, read: Callable[..., T], chunk: Chunk, block: int, *rest: Any) -> T | dict[str, Any]:
        """Return what `read` finds; if a call's object is damaged, return nothing and mark the call as remaining."""
        try:
            return read(chunk, block, *rest)
        except SinkjaxError:  # no room, or no permission: computing it again would end here again
            raise
        except ValueError as error:
            say(f"{self.path}: a call of edits {', '.join(map(str, chunk.edits))} {error}; computing only that again")
            place = self.object(chunk, block)
            refuse(place.is_dir(), f"{place} is a folder, where a call's file belongs; remove it first")
            delete(place)
            self.done[list(chunk.edits), block] = False
            return {}

    def publish(self, header: Header, chunks: Mapping[str, bytes], sums: Mapping[str, int | str] = MappingProxyType({})) -> None:
        """Write chunks and metadata; the file that readers look for comes last. sums: checksums of chunks written earlier."""
        found = {name: zlib.crc32(content) for name, content in chunks.items()}
        self.header = Header(header.metadata, dict(sorted({**sums, **found}.items())))
        try:
            for name, content in {**chunks, **self.header.files()}.items():
                self._write(name, content)
        except SinkjaxError:  # another process that has published the same removes the folder of temporary files
            if not self._finished_by_another():
                raise
        self.finish()

    def _write(self, name: str, content: bytes) -> None:
        with _keeping():
            write(self.path / name, content, durable=True, scratch=self.path / CALLS)

    def _finished_by_another(self) -> bool:
        """Return whether another process has made the arrays in the meantime."""
        return not self.finished and bool((self.path / METADATA).is_file())

    def finish(self) -> None:
        """Remove the objects of a store whose arrays exist."""
        remove(self.path / CALLS)
        self.finished, self.faults, self.done[...] = True, {}, True

    def dataset(self) -> xarray.Dataset:
        """Open the store as a dataset; values are read lazily."""
        options = dict(getattr(self.path, "storage_options", {})) or None  # of an object store
        found = xarray.open_zarr(str(self.path), chunks=None, consolidated=True, zarr_format=2, storage_options=options)
        found = found.assign_attrs({HARDWARE: self.hardware()})
        found.__class__ = Dataset  # its constructor would order and merge the variables again
        return found

    def hardware(self) -> list[dict[str, Any]]:
        """List the machines that wrote to the store, starting with its creator."""
        found = [*self.header.attributes[HARDWARE]]
        for file in sorted((self.path / headers.MACHINES).glob("*.json")):
            try:
                found.append(dict(json.loads(read_bytes(file, MACHINE))))
            except (OSError, ValueError, TypeError):
                found.append({"devices": "devices whose record is damaged"})
        return found

    def join(self, facts: Mapping[str, Any], strict: bool) -> None:
        """Record the machine that resumes a store, with a message if it did not create it.

        strict: whether a different machine is an error. Errors: also no permission or no space.
        """
        first, *others = self.hardware()
        differs = differences(first, facts)
        if strict and (differs or others):
            found = "; ".join(differs or differences(first, others[0]))
            raise SinkjaxError(
                f"{self.path} was computed on other hardware ({found}), but strict requires the same; choose another output,"
                " or resume without strict"
            )
        if differs and facts not in others:
            what = "with other versions" if all(entry.startswith("jax") for entry in differs) else "on other hardware"
            end = "results computed here agree to rounding, not bit for bit"
            say(f"{self.path} was started {what} ({'; '.join(differs)}): {end}")
            write(self.path / headers.MACHINES / f"{digest(json.dumps(facts))}.json", json.dumps(facts))


@contextlib.contextmanager
def _keeping() -> Iterator[None]:
    """Add to an error that finished work is kept."""
    try:
        yield
    except SinkjaxError as error:
        error.args = (f"{error}; finished work is kept: rerun the same command to resume",)
        raise


def begin(path: Place, identity: Mapping[str, Any], make: Callable[[], Header]) -> Store:
    """Open the store `path` with this identity: a new one, or one started by an earlier call or another process.

    identity: everything that defines the numbers (model, prompts, edits, probe, versions, ...), as JSON. make: returns the header
    of a new store. Errors: no permission or no space; other content; the store of another sweep (each difference is named).
    """
    if store := existing(path, identity):
        return store
    header, new = make(), False
    try:
        new = write_new(path / HEADER, header.files()[HEADER], durable=True, scratch=path / CALLS)
    except SinkjaxError:  # no space, unless another process has already finished
        if Header.read(path) is None:
            for folder in (path / CALLS, path):
                with contextlib.suppress(OSError, NotImplementedError):
                    folder.rmdir()
            raise
    store = existing(path, identity) or Store(path, header)
    store.new = new
    return store


def existing(path: Place, identity: Mapping[str, Any]) -> Store | None:
    """Open the store `path`, or return None if it does not exist. Errors: as for `begin`."""
    if (header := Header.read(path, headers.key_of(identity))) is None:
        return None
    if found := differences(header.attributes[IDENTITY], json.loads(json.dumps(identity))):
        raise SinkjaxError(f"{path} contains another sweep ({'; '.join(found)}); choose another output or delete it")
    return Store(path, header)


def described(found: Mapping[str, str]) -> str:
    """Describe the faults of parts of a store as text; "" if there are none."""
    shown = [f"{part} {fault}" for part, fault in found.items()]
    return "; ".join(shown[:3]) + (f"; and {len(shown) - 3} more" if len(shown) > 3 else "")
