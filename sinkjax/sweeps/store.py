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
import itertools
import json
import math
import re
import secrets
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

import numpy as np
import xarray
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import attempt, write, write_new
from sinkjax.config_files.locations import MOST_READ, Location, delete, is_remote, listed, read_bytes, remove, usable
from sinkjax.errors import SinkjaxError, differences
from sinkjax.model.fingerprint import digest
from sinkjax.runtime.progress import say
from sinkjax.sweeps import header as headers
from sinkjax.sweeps.arrays import CHANGED, METADATA, Array, arrays_of, own_sum
from sinkjax.sweeps.dataset import Dataset
from sinkjax.sweeps.header import CALLS, HARDWARE, HEADER, IDENTITY, SCHEDULE, Fixed, Header
from sinkjax.sweeps.schedule import Chunk, Schedule

CALL, FILES = ".call", "files"  # in an object: the call's coordinates, and files of chunks: final name -> (name, checksum)
WRITERS = 4  # threads that encode and write
MACHINE = 1 << 20  # more bytes than the record of a machine has

ASIDE = re.compile(r"\.[0-9a-f]{16}")


class Store:
    """An open store, whose arrays have all been checked.

    Attributes:
        path: Its folder, or its location in an object store.
        header: Its metadata.
        done: bool [edit, prompt_block], whether the results exist, in an object or in the arrays.
        finished: Whether readers can see the arrays.
        faults: Damaged file -> its fault.
        new: Whether this process wrote the header.
        rows: Edit -> its chunk, and its row in the chunk's results.

    Raises:
        SinkjaxError: There is no store.
    """

    def __init__(self, path: Location, header: Header | None = None):
        if (header := header or Header.read(path)) is None:
            raise SinkjaxError(f"there is no store {path}")
        self.path, self.header, self.new = path, header, False
        self.key, self.variables = headers.key_of(header.attributes[IDENTITY]), header.variables()
        self.schedule = Schedule.from_json(header.attributes.get(SCHEDULE) or Schedule(1, (), ()).to_json())
        first = self.variables[0] if self.variables else Array("", ("edit", "prompt"), (0, 1), (1, 1), np.dtype("b"))
        self.group = first.size[0]  # edits per chunk of an array
        self.apart = self.group == 1 and bool(self.variables) and not is_remote(path)  # calls write chunks of the arrays
        self.done = np.zeros((first.shape[0], first.grid[1]), bool)
        self.rows = {edit: (chunk, row) for chunk in self.schedule.chunks for row, edit in enumerate(chunk.edits)}
        self.refresh()

    def refresh(self) -> None:
        """Look up which results exist."""
        self.finished = bool((self.path / METADATA).is_file())
        if self.finished:  # the header has checksums by now
            self.header = Header.read(self.path) or self.header
        self.faults = dict(self._faults()) if self.finished or self.header.sums else {}
        with usable(self.path):
            objects = {*listed(self.path / CALLS)}
        for block, chunk in self._calls():
            intact = [self._intact(edit // self.group, block) for edit in chunk.edits]
            self.done[list(chunk.edits), block] = self.object(chunk, block).name in objects or intact

    def _calls(self) -> Iterator[tuple[int, Chunk]]:
        return itertools.product(range(self.done.shape[1]), self.schedule.chunks)

    def _files(self, group: int, block: int) -> dict[str, Array]:
        """Map the chunks of a group of edits and a block of prompts to their arrays."""
        return {variable.file(group, block): variable for variable in self.variables}

    def _intact(self, group: int, block: int) -> bool:
        """Return whether these chunks are in place."""
        return (self.header.sums.keys() - self.faults.keys()).issuperset(self._files(group, block))

    def _faults(self) -> Iterator[tuple[str, str]]:
        """Map each missing or changed file to its fault; the header itself is no longer needed."""
        known = {name: content for name, content in self.header.files().items() if name != HEADER}
        arrays = {array.name: array for array in arrays_of(self.header.metadata)}
        for name in (*self.header.sums, *known):
            try:
                if name not in known:
                    arrays[name.rpartition("/")[0]].read(self.path / name, self.header.sums[name])
                elif read_bytes(self.path / name, len(known[name])) != known[name]:
                    yield name, CHANGED
            except (FileNotFoundError, NotADirectoryError):
                yield name, "is missing"
            except (OSError, ValueError):  # not a file, too large, a disk failure, or another content
                yield name, CHANGED

    def object(self, chunk: Chunk, block: int) -> Location:
        """Return the path of a call's object."""
        return self.path / CALLS / f"{self.key}-{digest(self._coordinates(chunk, block))}"

    def _coordinates(self, chunk: Chunk, block: int) -> np.ndarray:
        """Return a call's coordinates: the prompts per block, the block, and the edits."""
        return np.array([self.schedule.prompt_block, block, *chunk.edits])

    def left(self) -> list[tuple[int, Chunk]]:
        """List the remaining calls: (block of prompts, chunk of edits)."""
        return [(block, chunk) for block, chunk in self._calls() if not self.done[list(chunk.edits), block].all()]

    def look(self, chunk: Chunk, block: int) -> bool:
        """Check whether a call is done by now, in this process or another."""
        edits = list(chunk.edits)
        if not self.done[edits, block].all() and (self.object(chunk, block).is_file() or self._finished_by_another()):
            self.done[edits, block] = True
        return bool(self.done[edits, block].all())

    def write(self, chunk: Chunk, block: int, values: Mapping[str, np.ndarray]) -> None:
        """Store the results of a call, by variable [edits of the chunk, prompts of the block, ...], unless its object exists."""
        call, files = self._coordinates(chunk, block), dict[str, list[str]]()
        new = True  # until an error or another process says otherwise: a kill may come after the object has its name
        with _keeping():
            try:
                if self.apart:
                    for (row, edit), variable in itertools.product(enumerate(chunk.edits), self.variables):
                        content, name = variable.encode(values[variable.name][row : row + 1]), f".{secrets.token_hex(8)}"
                        files[variable.file(edit, block)] = [name, own_sum(content)]
                        write(self.path / CALLS / name, content, durable=True, scratch=self.path / CALLS)
                    content = json.dumps({CALL: call.tolist(), FILES: files}).encode()
                else:
                    content = safetensors.save({CALL: call, **{name: np.ascontiguousarray(x) for name, x in values.items()}})
                new = write_new(self.object(chunk, block), headers.sealed(content), durable=True, scratch=self.path / CALLS)
            except SinkjaxError:  # the folder is deleted once another process has made the arrays
                new = False
                if not self._finished_by_another():
                    raise
            finally:
                for name, _ in () if new else files.values():  # another process was faster, or there is no room
                    delete(self.path / CALLS / name)
        self.done[list(chunk.edits), block] = True

    def read(self, chunk: Chunk, block: int) -> dict[str, Any]:
        """Read a call's object: its arrays by variable, or FILES.

        Errors: FileNotFoundError; ValueError if it has changed or belongs to another call.
        """
        most = MOST_READ + sum(8 * len(chunk.edits) * math.prod(variable.size[1:]) for variable in self.variables)
        try:
            content = headers.unsealed(read_bytes(self.object(chunk, block), most))
            entries: dict[str, Any] = json.loads(content) if content[:1] == b"{" else safetensors.load(content)
        except FileNotFoundError:
            raise
        except (OSError, SafetensorError):  # not a file, too large, or a disk failure
            raise ValueError(CHANGED) from None
        if not np.array_equal(entries.pop(CALL, np.empty(0)), self._coordinates(chunk, block)):
            raise ValueError(CHANGED)
        return entries

    def compact(self, fixed: Fixed) -> None:
        """Make the arrays once no calls remain. A damaged object is removed, and its call remains to be done.

        fixed: the arrays that are known before the sweep.
        """
        parts = [*itertools.product(range(-(-len(self.done) // self.group)), range(self.done.shape[1]))]
        try:
            with ThreadPoolExecutor(WRITERS) as pool:
                sums = dict(itertools.chain(*pool.map(self._make, *zip(*parts, strict=True))))
            if not self.left():
                arrays = [array for array in arrays_of(self.header.metadata) if array.name in fixed]
                self.publish(self.header, {array.file(): array.encode(fixed[array.name][1]) for array in arrays}, sums)
        except (FileNotFoundError, SinkjaxError) as error:  # another process has removed the objects or is about to
            self.refresh()
            if self.finished:
                self.finish()
            elif isinstance(error, SinkjaxError):
                raise

    def _make(self, group: int, block: int) -> list[tuple[str, int | str]]:
        """Put the chunks of a group of edits and a block of prompts in place; return their checksums, none if an object is
        damaged."""
        files = self._files(group, block)
        if self._intact(group, block):
            return [(file, self.header.sums[file]) for file in files]
        rows = [self.rows[edit] for edit in range(group * self.group, min((group + 1) * self.group, len(self.done)))]
        results = {chunk: self._checked(chunk, block, files) for chunk in dict.fromkeys(chunk for chunk, _ in rows)}
        if not all(results.values()):
            return []
        if placed := results[rows[0][0]].get(FILES):
            return [(file, placed[file][1]) for file in files]
        sums: list[tuple[str, int | str]] = []
        for file, variable in files.items():
            content = variable.encode(np.stack([results[chunk][variable.name][row] for chunk, row in rows]))
            self._write(file, content)
            sums.append((file, own_sum(content)))
        return sums

    def _checked(self, chunk: Chunk, block: int, files: Mapping[str, Array]) -> dict[str, Any]:
        """Read a call's object, and put those of its chunks in place that are among `files`; {} if it is damaged."""
        try:
            entries = self.read(chunk, block)
            for file, (name, checksum) in entries.get(FILES, {}).items():
                if file in files:
                    self._place(files[file], file, name, checksum)
            return entries
        except SinkjaxError:  # no room, or no permission: computing it again would end here again
            raise
        except ValueError as error:
            path, edits = self.object(chunk, block), list(chunk.edits)
            if self.done[edits, block].all():  # no other thread has said so
                say(f"{self.path}: a call of edits {', '.join(map(str, edits))} {error}; computing only that again")
            refuse(path.is_dir(), f"{path} is a folder, where a call's file belongs; remove it first")
            delete(path)
            self.done[edits, block] = False
            return {}

    def _place(self, array: Array, file: str, name: str, checksum: str) -> None:
        """Give a chunk that a call has written its place, unless another process has done so. Errors: ValueError if it has
        changed."""
        aside, target = self.path / CALLS / name, self.path / file
        for path in (aside, target) if ASIDE.fullmatch(name) else ():
            with contextlib.suppress(OSError):  # not there, not a file, too large, or a disk failure
                array.read(path, checksum)
                with attempt("write", target), contextlib.suppress(FileNotFoundError):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    aside.replace(target)
                return
        raise ValueError(CHANGED)

    def publish(self, header: Header, chunks: Mapping[str, bytes], sums: Mapping[str, int | str] = MappingProxyType({})) -> None:
        """Write chunks and metadata; the file that readers look for comes last. sums: checksums of chunks written earlier."""
        added = {name: zlib.crc32(content) for name, content in chunks.items()}
        self.header = Header(header.metadata, dict(sorted({**sums, **added}.items())))
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
        dataset = xarray.open_zarr(str(self.path), chunks=None, consolidated=True, zarr_format=2, storage_options=options)
        dataset = dataset.assign_attrs({HARDWARE: self.hardware()})
        dataset.__class__ = Dataset  # its constructor would order and merge the variables again
        return dataset

    def hardware(self) -> list[dict[str, Any]]:
        """List the machines that wrote to the store, starting with its creator."""
        machines = [*self.header.attributes[HARDWARE]]
        for file in sorted((self.path / headers.MACHINES).glob("*.json")):
            try:
                machines.append(dict(json.loads(read_bytes(file, MACHINE))))
            except (OSError, ValueError, TypeError):
                machines.append({"devices": "devices whose record is damaged"})
        return machines

    def join(self, facts: Mapping[str, Any], strict: bool) -> None:
        """Record the machine that resumes a store, with a message if it did not create it.

        strict: whether a different machine is an error. Errors: also no permission or no space.
        """
        first, *others = self.hardware()
        differs = differences(first, facts)
        if strict and (differs or others):
            why = "; ".join(differs or differences(first, others[0]))
            raise SinkjaxError(
                f"{self.path} was computed on other hardware ({why}), but strict requires the same; choose another output,"
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


def begin(path: Location, identity: Mapping[str, Any], make: Callable[[], Header]) -> Store:
    """Open the store `path` to be filled: a new one, or one started by an earlier call or another process.

    A damaged one is hidden from readers until it is repaired.

    Args:
        path: Its location.
        identity: Everything that defines the numbers (model, prompts, edits, probe, versions, ...), as JSON.
        make: Returns the header of a new store.

    Raises:
        SinkjaxError: No permission or no space; other content; the store of another sweep (each difference is named).
    """
    if (store := existing(path, identity)) is None:
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
    if store.finished and store.faults:
        say(f"{path}: {described(store.faults)}; computing only that again")
        with _keeping():
            delete(path / METADATA)
        store.finished = False
    return store


def existing(path: Location, identity: Mapping[str, Any]) -> Store | None:
    """Open the store `path`, or return None if it does not exist. Errors: as for `begin`."""
    if (header := Header.read(path, headers.key_of(identity))) is None:
        return None
    differs = differences(header.attributes[IDENTITY], json.loads(json.dumps(identity)))
    refuse(bool(differs), f"{path} contains another sweep ({'; '.join(differs)}); choose another output or delete it")
    return Store(path, header)


def described(faults: Mapping[str, str]) -> str:
    """Describe the faults of files of a store as text; "" if there are none."""
    shown = [f"{file} {fault}" for file, fault in faults.items()]
    return "; ".join(shown[:3]) + (f"; and {len(shown) - 3} more" if len(shown) > 3 else "")
