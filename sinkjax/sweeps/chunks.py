"""The files of a store: of calls, of chunks of arrays, each with a checksum, and the manifest of those with which it was made."""

from __future__ import annotations

import itertools
import json
import math
import secrets
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from sinkjax.config_files.places import Place, delete, is_remote, read_bytes, remove
from sinkjax.errors import SinkjaxError

SCRATCH_BYTES = 8
SCRATCH = "." + 2 * SCRATCH_BYTES * "[0-9a-f]"  # files that `put` has begun
MANIFEST = ".manifest"  # file -> checksum, of all files that are there before a sweep writes
METADATA = ".zmetadata"  # of the group and all its arrays
LARGEST = 2**31 - 17  # bytes of a chunk that Blosc takes
MISSING, CHANGED = "is missing", "is not what was written"


def checksum(content: Any) -> int:
    """Of the content of a file; never 0, which stands for "not written".

    Not the CRC that the codec appends: over a content and its own CRC that one is the same for all.
    """
    return zlib.crc32(content) or 1


def codecs() -> dict[str, Any]:
    """How zarr is to encode the chunks of an array: compressed, then with a checksum, so that every reader notices a change."""
    from numcodecs import Blosc
    from numcodecs.checksum32 import CRC32C

    return {"filters": [Blosc(cname="lz4", clevel=5, shuffle=Blosc.SHUFFLE), CRC32C()], "compressors": None}


@dataclass(frozen=True)
class Chunks:
    """The chunks of an array as files: what zarr would read and write, without what it costs a file.

    size: the shape of a chunk. codecs: in the order in which they encode.
    """

    folder: Place
    shape: tuple[int, ...]
    size: tuple[int, ...]
    dtype: np.dtype
    codecs: tuple[Any, ...]

    @classmethod
    def of(cls, folder: Place, metadata: Mapping[str, Any]) -> Chunks:
        """The chunks of an array of zarr format 2. Errors (KeyError, TypeError, ValueError): metadata that are not of one."""
        from numcodecs import get_codec

        encode = [*(metadata["filters"] or ()), *filter(None, [metadata["compressor"]])]
        shape, size = (tuple(int(length) for length in metadata[key]) for key in ("shape", "chunks"))
        return cls(folder, shape, size, np.dtype(metadata["dtype"]), tuple(get_codec(dict(codec)) for codec in encode))

    def file(self, index: Iterable[int]) -> Place:
        """Where the chunk of an index lies; axes at the end that are left out are at 0."""
        index = tuple(index)
        return self.folder / (".".join(map(str, index + (0,) * (len(self.size) - len(index)))) or "0")

    def write(self, index: Iterable[int], values: np.ndarray) -> int:
        """Write a chunk whole or not at all; returns its checksum. Values that are fewer than a chunk's come at its start."""
        content: Any = np.zeros(self.size, self.dtype)
        content[tuple(slice(length) for length in values.shape)] = values
        for codec in self.codecs:
            content = codec.encode(content)
        put(self.file(index), content)
        return checksum(content)

    def read(self, index: Iterable[int]) -> np.ndarray:
        """The values of a chunk. Errors: FileNotFoundError for none; ValueError for one that does not decode."""
        return self._decode(read_bytes(self.file(index)))

    def clear(self) -> None:
        """Remove what killed processes left unfinished, once nobody writes any more."""
        if not is_remote(self.folder):
            for left in self.folder.glob(SCRATCH):
                left.unlink(missing_ok=True)

    def fault(self, index: Iterable[int], expected: int | None) -> str:
        """What is wrong with a chunk, "" for nothing.

        expected: its checksum. Stores made before there were any have None: a chunk need only decode, and may be missing, since
        zarr did not write those that hold nothing but the fill value.
        """
        try:
            content = read_bytes(self.file(index))
            if expected is None:
                self._decode(content)
        except FileNotFoundError:
            return MISSING if expected is not None else ""
        except (OSError, ValueError):
            return CHANGED
        return "" if expected is None or checksum(content) == expected else CHANGED

    def _decode(self, content: Any) -> np.ndarray:
        try:
            for codec in reversed(self.codecs):
                content = codec.decode(content)
            return np.frombuffer(content, self.dtype).reshape(self.size)
        except RuntimeError as error:  # of blosc, and of a checksum
            raise ValueError(str(error)) from None


@dataclass(frozen=True)
class CallFiles:
    """What calls gave, one file each, until all of it lies in chunks of arrays.

    A file has the values of each variable, [edits, prompts, ...], one after the other, and a checksum of its name and of them.
    """

    folder: Place
    variables: Mapping[str, Chunks]

    def write(self, name: str, values: Mapping[str, np.ndarray]) -> None:
        """Write what a call gave, whole or not at all."""
        content = b"".join(np.ascontiguousarray(values[key], array.dtype).tobytes() for key, array in self.variables.items())
        self.folder.mkdir(exist_ok=True)
        put(self.folder / name, content + self._checksum(name, content))

    def read(self, name: str, edits: int, prompts: int) -> dict[str, np.ndarray]:
        """What a call of so many edits and prompts gave. Errors: FileNotFoundError; ValueError for what was not written so."""
        content = memoryview(read_bytes(self.folder / name))
        shapes = {key: (edits, prompts, *array.shape[2:]) for key, array in self.variables.items()}
        sizes = [math.prod(shape) * self.variables[key].dtype.itemsize for key, shape in shapes.items()]
        if len(content) != sum(sizes) + 4 or content[-4:] != self._checksum(name, content[:-4]):
            raise ValueError(CHANGED)
        ends = itertools.accumulate(sizes, initial=0)
        return {
            key: np.frombuffer(content[begin : begin + size], self.variables[key].dtype).reshape(shape)
            for (key, shape), begin, size in zip(shapes.items(), ends, sizes, strict=False)
        }

    def drop(self, name: str) -> None:
        """Remove what a call gave."""
        delete(self.folder / name)

    def clear(self) -> None:
        """Remove the folder and what killed processes left in it."""
        remove(self.folder)

    @staticmethod
    def _checksum(name: str, content: Any) -> bytes:
        return zlib.crc32(content, zlib.crc32(name.encode())).to_bytes(4, "little")


def storable(dtype: np.dtype) -> np.dtype:
    """The dtype in which values are stored: zarr has no bfloat16, and float32 holds its values exactly."""
    return np.dtype("float32") if dtype == "bfloat16" else dtype


def put(file: Place, content: Any) -> None:
    """Write a file whole or not at all."""
    if is_remote(file):
        file.write_bytes(bytes(content))
        return
    scratch = file.with_name(f".{secrets.token_hex(SCRATCH_BYTES)}")
    try:
        with scratch.open("wb") as stream:
            stream.write(content)
        scratch.replace(file)
    except BaseException:
        with suppress(OSError):
            scratch.unlink()
        raise


def refuse_large(
    variables: Mapping[str, tuple[tuple[str, ...], tuple[int, ...], np.dtype]],
    fixed: Mapping[str, tuple[tuple[str, ...], np.ndarray]],
    prompts: int,
) -> None:
    """Raise if a chunk of one edit and a block of prompts, or an array known beforehand, has more bytes than a codec takes.

    variables, fixed: as for `store.create`.
    """
    for name, (_, shape, dtype) in variables.items():
        size = math.prod(shape[2:]) * dtype.itemsize
        if size * prompts > LARGEST:
            fewer = f"take at most {LARGEST // size} at a time, or " if size <= LARGEST else ""
            raise SinkjaxError(
                f"{name} has {size * prompts:,} bytes for one edit and {prompts} prompt{'s' * (prompts > 1)}, and a chunk of a"
                f" store takes {LARGEST:,}: {fewer}measure it in fewer layers or positions"
            )
    for name, (_, values) in fixed.items():
        if values.nbytes > LARGEST:
            raise SinkjaxError(
                f"{name} has {values.nbytes:,} bytes, and a chunk of a store takes {LARGEST:,}: take fewer prompts"
            )


def seal(folder: Path) -> None:
    """Write the manifest of all files in a store that is being made."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sums = {path.relative_to(folder).as_posix(): checksum(path.read_bytes()) for path in files}
    put(folder / MANIFEST, json.dumps(sums, indent=0).encode())


def faults(folder: Place) -> dict[str, str]:
    """File -> what is wrong with it, of those with which a store was made; nothing is known of stores without checksums.

    Errors: OSError.
    """
    try:
        sums = json.loads(read_bytes(folder / MANIFEST))
        expected = {str(name): int(value) for name, value in sums.items()}
    except (FileNotFoundError, NotADirectoryError):  # none was made when chunks had no checksums
        return {MANIFEST: MISSING} if _has_checksums(folder) else {}
    except (ValueError, TypeError, AttributeError):
        return {MANIFEST: CHANGED}
    found = {}
    for name, value in expected.items():
        try:
            fault = "" if checksum(read_bytes(folder / name)) == value else CHANGED
        except (FileNotFoundError, NotADirectoryError):
            fault = MISSING
        if fault:
            found[name] = fault
    return found


def _has_checksums(folder: Place) -> bool:
    try:
        return b'"crc32c"' in read_bytes(folder / METADATA)
    except (FileNotFoundError, NotADirectoryError):
        return False


def is_metadata(file: str) -> bool:
    """Whether a file of a store says what the others are."""
    return PurePath(file).name.startswith(".")
