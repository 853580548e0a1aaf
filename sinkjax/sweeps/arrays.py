"""The arrays of a finished store: a zarr group of format 2, whose fixed-width text every reader has, and its checksums."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkjax.config_files.places import Place, is_remote, read_bytes
from sinkjax.errors import SinkjaxError
from sinkjax.sweeps.objects import CHANGED, MISSING, checksum, unsealed

if TYPE_CHECKING:
    import xarray

DIMS = "_ARRAY_DIMENSIONS"  # where xarray looks for the names of axes
METADATA = ".zmetadata"  # consolidated metadata; written last, so a store with it is finished
MANIFEST = ".manifest"  # file -> checksum, for all files of the arrays
FORMER = "done"  # an array of marks in the stores of earlier versions
LARGEST = 2**31 - 17  # bytes of a chunk that Blosc takes


def codecs() -> dict[str, Any]:
    """How zarr is to encode the chunks of an array: compressed, then with a checksum, so that every reader notices a change."""
    from numcodecs import Blosc
    from numcodecs.checksum32 import CRC32C

    return {"filters": [Blosc(cname="lz4", clevel=5, shuffle=Blosc.SHUFFLE), CRC32C()], "compressors": None}


def storable(dtype: np.dtype) -> np.dtype:
    """The dtype of stored values: zarr has no bfloat16, and float32 holds its values exactly."""
    return np.dtype("float32") if dtype == "bfloat16" else dtype


@dataclass(frozen=True)
class Variable:
    """An array [edit, prompt, ...] that a sweep fills. size: the shape of a chunk, [edits, prompts, ...]."""

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    size: tuple[int, ...]
    dtype: np.dtype

    def file(self, group: int, block: int) -> str:
        """The file of the chunk with a group of edits and a block of prompts."""
        return f"{self.name}/{'.'.join(map(str, (group, block, *(0 for _ in self.size[2:]))))}"

    def files(self) -> list[str]:
        """The files of all its chunks."""
        groups, blocks = (range(-(-length // size)) for length, size in zip(self.shape[:2], self.size[:2], strict=True))
        return [self.file(group, block) for group in groups for block in blocks]

    def encode(self, values: np.ndarray) -> bytes:
        """The content of a chunk's file. Values that are fewer than a chunk's come at its start."""
        content: Any = np.zeros(self.size, self.dtype)
        content[tuple(slice(length) for length in values.shape)] = values
        for codec in codecs()["filters"]:
            content = codec.encode(content)
        return bytes(content)

    def decodes(self, content: Any) -> bool:
        """Whether this is the content of a chunk's file, by the checksum that its codec has written."""
        try:
            for codec in reversed(codecs()["filters"]):
                content = codec.decode(content)
        except (RuntimeError, ValueError):
            return False
        return len(content) == math.prod(self.size) * self.dtype.itemsize

    def to_json(self) -> list:
        """As plain lists and numbers."""
        return [self.name, self.dims, self.shape, self.size, self.dtype.str]

    @classmethod
    def from_json(cls, data: list) -> Variable:
        """The variable that `to_json` wrote."""
        name, dims, shape, size, dtype = data
        return cls(name, tuple(dims), tuple(shape), tuple(size), np.dtype(dtype))

    @classmethod
    def of_group(cls, files: Mapping[str, Any]) -> list[Variable]:
        """The variables of a group with this consolidated metadata. Errors (KeyError, TypeError, ...): other content."""
        found = []
        for name in (file.removesuffix("/.zarray") for file in files if file.endswith("/.zarray")):
            dims, array = files[f"{name}/.zattrs"][DIMS], files[f"{name}/.zarray"]
            if dims[:2] == ["edit", "prompt"]:
                found.append(cls.from_json([name, dims, array["shape"], array["chunks"], array["dtype"]]))
        return found


def files_of_group(
    variables: Sequence[Variable], fixed: Mapping[str, tuple[tuple[str, ...], np.ndarray]], attributes: Mapping[str, Any]
) -> dict[str, bytes]:
    """The files of a group, but for the chunks of its variables. fixed: name -> (dims, values)."""
    import zarr

    files: dict[str, Any] = {}
    root = zarr.open_group(store := zarr.storage.MemoryStore(files), mode="w", zarr_format=2)

    def add(name: str, dims: Sequence[str], shape: tuple[int, ...], size: tuple[int, ...], dtype: np.dtype, fill: Any) -> Any:
        array = root.create_array(name, shape=shape, chunks=size, dtype=dtype, fill_value=fill, **codecs())
        array.attrs[DIMS] = list(dims)
        return array

    for one in variables:
        missing = np.nan if np.issubdtype(one.dtype, np.floating) else None  # which readers take a fill value for
        add(one.name, one.dims, one.shape, one.size, one.dtype, missing)
    for name, (dims, values) in fixed.items():
        add(name, dims, values.shape, values.shape, values.dtype, None)[...] = values
    root.attrs.update(attributes)
    zarr.consolidate_metadata(store, zarr_format=2)
    return {name: content.to_bytes() for name, content in files.items()}


def files_of_dataset(dataset: xarray.Dataset) -> dict[str, bytes]:
    """The files of a dataset as a group."""
    import zarr

    files: dict[str, Any] = {}
    dataset = dataset.map(lambda array: array.astype(storable(array.dtype)), keep_attrs=True).drop_encoding()
    encoding = {name: codecs() for name in dataset.variables}
    dataset.to_zarr(zarr.storage.MemoryStore(files), mode="w", zarr_format=2, consolidated=True, encoding=encoding)
    return {name: content.to_bytes() for name, content in files.items()}


def opened(path: Place) -> xarray.Dataset:
    """A group of arrays as a dataset; values are read when they are used."""
    import xarray

    where, options = path, None
    if is_remote(path):
        where, options = str(path), dict(path.storage_options)
    return xarray.open_zarr(where, chunks=None, consolidated=True, storage_options=options).drop_vars(FORMER, errors="ignore")


def manifest(path: Place) -> dict[str, int]:
    """The checksums of a store's files; {} if the manifest is damaged or does not exist yet."""
    try:
        content = read_bytes(path / MANIFEST)
        with contextlib.suppress(ValueError):  # earlier versions wrote it without a checksum of its own
            content = unsealed(content)
        return {str(name): int(value) for name, value in json.loads(content).items()}
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, TypeError, AttributeError):
        return {}


def faults(path: Place, variables: Sequence[Variable], sums: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """The files of a store that are missing or changed, and how; a chunk without a checksum in `sums` need only decode."""
    chunks = {name: variable for variable in variables for name in variable.files()}
    for name in dict.fromkeys((*sums, *chunks)):
        try:
            content = read_bytes(path / name)
            sound = checksum(content) == sums[name] if name in sums else chunks[name].decodes(content)
        except (FileNotFoundError, NotADirectoryError):
            yield name, MISSING
            continue
        except OSError:  # a folder, or a disk that fails
            sound = False
        if not sound:
            yield name, CHANGED


def refuse_large(variables: Sequence[Variable], fixed: Mapping[str, tuple[tuple[str, ...], np.ndarray]]) -> None:
    """Raise if a chunk of one edit and a block of prompts, or an array known beforehand, has more bytes than a codec takes."""
    for variable in variables:
        size, prompts = math.prod(variable.shape[2:]) * variable.dtype.itemsize, variable.size[1]
        if size * prompts > LARGEST:
            fewer = f"take at most {LARGEST // size} at a time, or " if size <= LARGEST else ""
            raise SinkjaxError(
                f"{variable.name} has {size * prompts:,} bytes for one edit and {prompts} prompt{'s' * (prompts > 1)}, and a"
                f" chunk of a store takes {LARGEST:,}: {fewer}measure it in fewer layers or positions"
            )
    for name, (_, values) in fixed.items():
        if values.nbytes > LARGEST:
            raise SinkjaxError(
                f"{name} has {values.nbytes:,} bytes, and a chunk of a store takes {LARGEST:,}: take fewer prompts"
            )
