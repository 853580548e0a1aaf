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

from sinkjax.config_files.files import plain_name
from sinkjax.errors import SinkjaxError

DIMS = "_ARRAY_DIMENSIONS"  # xarray reads axis names from this attribute
METADATA = ".zmetadata"  # consolidated metadata; it is written last, so a store that has it is finished
LARGEST = 2**31 - 17  # maximum bytes of a chunk in Blosc
CODECS = {"blosc", "crc32c"}  # names of `codecs` in metadata


def codecs() -> list[Any]:
    """Return the codecs of a chunk: compression, then a checksum, so that every reader notices a change."""
    return [Blosc(cname="lz4", clevel=5, shuffle=Blosc.SHUFFLE), CRC32C()]


def check_metadata(metadata: Mapping[str, Any]) -> None:
    """Raise unless all arrays are of the kind that this module writes, so that metadata choose no other code or file.

    A reader of zarr takes the decoder that an array's metadata names, and those of objects unpickle.

    Errors: SinkjaxError; KeyError, TypeError, ValueError or AttributeError for what is no metadata.
    """
    for file, entry in metadata.items():
        name, _, kind = file.rpartition("/")
        if kind not in (".zgroup", ".zattrs", ".zarray"):
            raise SinkjaxError(f"{file!r} is no metadata of an array")
        if name:
            plain_name(name)
        if kind == ".zarray":
            named = {codec["id"] for codec in (*(entry["filters"] or ()), *([entry["compressor"]] * bool(entry["compressor"])))}
            if odd := sorted(named - CODECS):
                raise SinkjaxError(
                    f"the array {name!r} names the codec {odd[0]!r}, and sinkjax writes {', '.join(sorted(CODECS))}"
                )
            if (dtype := np.dtype(entry["dtype"])).kind not in "biufcSU":
                raise SinkjaxError(f"the array {name!r} has the dtype {dtype}, which sinkjax does not write")


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
    def most(self) -> int:
        """Maximum bytes of a chunk's file; numbers that do not compress have 20 more."""
        return math.prod(self.size) * self.dtype.itemsize + 64

    def encode(self, values: np.ndarray) -> bytes:
        """Encode a chunk's file. If there are fewer values than a chunk has, they come at its start."""
        content: Any = np.ascontiguousarray(values, self.dtype)
        if values.shape != self.size:
            content = np.zeros(self.size, self.dtype)
            content[tuple(slice(length) for length in values.shape)] = values
        for codec in codecs():
            content = codec.encode(content)
        return bytes(content)

    def decode(self, content: bytes) -> np.ndarray:
        """Decode a whole chunk's file."""
        found: Any = content
        for codec in reversed(codecs()):
            found = codec.decode(found)
        return np.frombuffer(found, self.dtype).reshape(self.size)


def own_sum(content: bytes) -> str:
    """Return the checksum that the codecs have put at the end of an encoded chunk."""
    return content[-4:].hex()


def matches(content: bytes, checksum: int | str) -> bool:
    """Return whether a file's content has this checksum: that of an encoded chunk, or else zlib's."""
    if isinstance(checksum, int):
        return zlib.crc32(content) == checksum
    found = CRC32C.checksum(np.frombuffer(content, np.uint8)[:-4]) & 0xFFFFFFFF
    return len(content) > 4 and own_sum(content) == checksum == found.to_bytes(4, "little").hex()


def metadata_of(arrays: Iterable[Array], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of each metadata file of a group."""
    found: dict[str, Any] = {".zgroup": {"zarr_format": 2}, ".zattrs": dict(attributes)}
    for array in arrays:
        found[f"{array.name}/.zattrs"] = {DIMS: array.dims}
        found[f"{array.name}/.zarray"] = {
            "zarr_format": 2,
            "shape": array.shape,
            "chunks": array.size,
            "dtype": array.dtype.str,
            "order": "C",
            "fill_value": "NaN" if array.dtype.kind == "f" else None,
            "filters": [codec.get_config() for codec in codecs()],
            "compressor": None,
        }
    return found


def arrays_of(metadata: Mapping[str, Any]) -> Iterator[Array]:
    """Return the arrays of a group with this metadata."""
    for file, entry in metadata.items():
        name = file.removesuffix("/.zarray")
        if name != file:
            dims, shape, size = metadata[f"{name}/.zattrs"][DIMS], entry["shape"], entry["chunks"]
            yield Array(name, tuple(dims), tuple(shape), tuple(size), np.dtype(entry["dtype"]))
