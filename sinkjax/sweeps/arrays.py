"""Arrays of a finished store: a zarr format 2 group, which every reader supports, with a checksum in each chunk."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numcodecs import Blosc
from numcodecs.checksum32 import CRC32C

from sinkjax.config_files.locations import Location, read_bytes

DIMS = "_ARRAY_DIMENSIONS"  # xarray reads axis names from this attribute
METADATA = ".zmetadata"  # consolidated metadata; it is written last, so a store that has it is finished
LARGEST = 2**31 - 17  # maximum bytes of a chunk in Blosc
BLOSC_HEADER = 16  # bytes, of which 4 to 8 are the size of the decoded content
LARGER = 64  # bytes that a chunk's file may have more than the chunk; numbers that do not compress take 20
CHANGED = "has changed since it was written"


def codecs() -> list[Any]:
    """Return the codecs of a chunk: compression, then a checksum, so that every reader notices a change."""
    return [Blosc(cname="lz4", clevel=5, shuffle=Blosc.SHUFFLE), CRC32C()]


def storable(dtype: np.dtype) -> np.dtype:
    """Return the dtype of stored values: zarr has no bfloat16, and float32 represents its values exactly."""
    return np.dtype("float32") if dtype == "bfloat16" else dtype


@dataclass(frozen=True)
class Array:
    """An array of a group. size: the shape of a chunk."""

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    size: tuple[int, ...]
    dtype: np.dtype

    def file(self, *index: int) -> str:
        """Return the file name of a chunk from its leading indices; the rest are 0."""
        return f"{self.name}/{'.'.join(map(str, (*index, *[0] * (len(self.size) - len(index)))))}"

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along each axis; an empty array of a sweep has one."""
        return tuple(max(1, -(-length // max(1, size))) for length, size in zip(self.shape, self.size, strict=True))

    @property
    def nbytes(self) -> int:
        """Bytes of a chunk in memory."""
        return math.prod(self.size) * self.dtype.itemsize

    def read(self, file: Location, checksum: int | str) -> bytes:
        """Read a chunk's file.

        checksum: the one that the codecs put at its end, or zlib's of the file. Errors: OSError; ValueError if it is not a chunk
        of this array with this checksum.
        """
        content = read_bytes(file, self.nbytes + LARGER)
        size = int.from_bytes(content[4:8], "little")  # a reader allocates as many bytes as the file states
        if len(content) < BLOSC_HEADER or size != self.nbytes or not _matches(content, checksum):
            raise ValueError(CHANGED)
        return content

    def encode(self, values: np.ndarray) -> bytes:
        """Encode a chunk's file. If there are fewer values than a chunk has, they come at its start."""
        content: Any = np.ascontiguousarray(values, self.dtype)
        if values.shape != self.size:
            content = np.zeros(self.size, self.dtype)
            content[tuple(slice(length) for length in values.shape)] = values
        for codec in codecs():
            content = codec.encode(content)
        return bytes(content)


def own_sum(content: bytes) -> str:
    """Return the checksum that the codecs have put at the end of an encoded chunk."""
    return content[-4:].hex()


def _matches(content: bytes, checksum: int | str) -> bool:
    if isinstance(checksum, int):
        return zlib.crc32(content) == checksum
    computed = CRC32C.checksum(np.frombuffer(content, np.uint8)[:-4]) & 0xFFFFFFFF
    return own_sum(content) == checksum == computed.to_bytes(4, "little").hex()


def metadata_of(arrays: Iterable[Array], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of each metadata file of a group."""
    metadata: dict[str, Any] = {".zgroup": {"zarr_format": 2}, ".zattrs": dict(attributes)}
    for array in arrays:
        metadata[f"{array.name}/.zattrs"] = {DIMS: array.dims}
        own = {"shape": array.shape, "chunks": array.size, "dtype": array.dtype.str}
        metadata[f"{array.name}/.zarray"] = own | expected(array.dtype)
    return metadata


def expected(dtype: np.dtype) -> dict[str, Any]:
    """Return the entries of an array's metadata that only depend on its dtype."""
    return {
        "zarr_format": 2,
        "order": "C",
        "fill_value": "NaN" if dtype.kind == "f" else None,
        "filters": [codec.get_config() for codec in codecs()],
        "compressor": None,
    }


def arrays_of(metadata: Mapping[str, Any]) -> Iterator[Array]:
    """Return the arrays of a group with this metadata."""
    for file, entry in metadata.items():
        name = file.removesuffix("/.zarray")
        if name != file:
            dims, shape, size = metadata[f"{name}/.zattrs"][DIMS], entry["shape"], entry["chunks"]
            yield Array(name, tuple(dims), tuple(shape), tuple(size), np.dtype(entry["dtype"]))
