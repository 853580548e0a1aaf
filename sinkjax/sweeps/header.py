"""A store's header, written by its first process: the computation, its calls, and the machine."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sinkjax.config_files.checks import refuse
from sinkjax.config_files.locations import Location, NotAFile, delete, listed, read_bytes, usable
from sinkjax.errors import SinkjaxError
from sinkjax.model.fingerprint import digest
from sinkjax.sweeps.arrays import CHANGED, LARGEST, METADATA, Array, arrays_of, metadata_of
from sinkjax.sweeps.metadata import check_metadata
from sinkjax.sweeps.schedule import Schedule

HEADER, CALLS = ".sweep", ".calls"
MACHINES = ".hardware"  # one file per machine that wrote to a store, except its creator
# Attributes: the identity that a resuming run must share, the schedule of calls, and the machine that made the store.
IDENTITY, SCHEDULE, HARDWARE = "sweep", "schedule", "hardware"
COORDINATES = "coordinates"  # lists the variables that xarray reads as coordinates, by the CF conventions
CHUNK_BYTES = 1 << 20  # maximum in a chunk of the largest variable, unless a single edit has more

Json = Mapping[str, Any]
Measured = Mapping[str, tuple[tuple[str, ...], tuple[int, ...], np.dtype]]  # name -> ((edit, prompt, ...), shape, dtype)
Fixed = Mapping[str, tuple[tuple[str, ...], np.ndarray]]  # name -> (dims, values) of arrays that are known before a sweep


@dataclass(frozen=True)
class Header:
    """The metadata of a store's arrays, by file, and, once they exist, the checksum of each chunk's file (`arrays.matches`)."""

    metadata: Json
    sums: Mapping[str, int | str] = field(default_factory=dict)

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the group."""
        return dict(self.metadata[".zattrs"])

    def variables(self) -> list[Array]:
        """The arrays [edit, prompt, ...] that calls fill; empty for a calculation."""
        swept = SCHEDULE in self.attributes
        return [array for array in arrays_of(self.metadata) if swept and array.dims[:2] == ("edit", "prompt")]

    def files(self) -> dict[str, bytes]:
        """The metadata files: two per array, the header, and the one that readers look for."""
        files = {name: json.dumps(entry).encode() for name, entry in self.metadata.items()}
        files[METADATA] = json.dumps({"zarr_consolidated_format": 1, "metadata": self.metadata, "sums": self.sums}).encode()
        return {HEADER: sealed(files[METADATA]), **files}

    @classmethod
    def of_sweep(
        cls, identity: Json, facts: Json, schedule: Schedule, attributes: Json, variables: Measured, fixed: Fixed
    ) -> Header:
        """The header of a new store.

        facts: about the machine. attributes: provenance. variables: the arrays that calls fill. Errors: attributes that are not
        JSON or whose name the store itself uses; an array whose chunks would be too large.
        """
        attributes = attributes_of_sweep(identity, facts, schedule, attributes)
        block = schedule.prompt_block
        most = max(math.prod(shape[2:]) * dtype.itemsize for _, shape, dtype in variables.values())  # bytes of one prompt
        edits = max(1, CHUNK_BYTES // (block * most))
        arrays = [
            Array(name, dims, shape, (min(edits, shape[0]), block, *shape[2:]), dtype)
            for name, (dims, shape, dtype) in variables.items()
        ]
        arrays += [Array(name, dims, values.shape, values.shape, values.dtype) for name, (dims, values) in fixed.items()]
        for array in arrays:
            wide = f"{array.name} has {array.nbytes:,} bytes in one call, but a chunk has at most {LARGEST:,}: use fewer prompts,"
            refuse(array.nbytes > LARGEST, f"{wide} or measure it in fewer layers or positions")
        header = cls(json.loads(json.dumps(metadata_of(arrays, attributes))))
        check_metadata(header.metadata, header.sums)  # whatever is written can be read
        return header

    @classmethod
    def read(cls, path: Location, key: str = "") -> Header | None:
        """Read the header of the store `path`, from its arrays if it is lost; None if there is no store yet.

        key: the computation's key; if both are lost and all objects have this key, the store starts again and keeps them. Errors:
            `path` has other content, or is a store of another version.
        """
        other = f"{path} exists and is not the store of a sweep; choose another output"
        with usable(path):
            if header := cls._parsed(path, HEADER) or cls._parsed(path, METADATA):
                return header
            refuse(path.is_file(), other)
            there = {name.partition("/")[0] for name in listed(path)}
            calls = [name for name in listed(path / CALLS) if name[0] != "."]
            if there and (header := cls._parsed(path, HEADER)):  # another process has just written it
                return header
        foreign = there - {HEADER, CALLS, MACHINES}
        if HEADER not in there and not calls:
            refuse(bool(foreign), other)
            return None
        lost = bool(foreign) or not key or not all(name.startswith(key) for name in calls)
        damaged = f"the store {path} is damaged (its metadata is missing or {CHANGED})"
        refuse(lost, f"{damaged}; delete it and rerun the command that made it")
        delete(path / HEADER)
        return None

    @classmethod
    def _parsed(cls, path: Location, file: str) -> Header | None:
        """Parse the header from its own file or the arrays' metadata. Errors: OSError; a store of another version."""
        try:
            content = read_bytes(path / file)
            entries = json.loads(unsealed(content) if file == HEADER else content)
            header = cls(entries["metadata"], entries.get("sums", {}))
            if IDENTITY not in header.attributes or not any(name.endswith("/.zarray") for name in header.metadata):
                return None
            check_metadata(header.metadata, header.sums)
        except SinkjaxError as error:
            raise SinkjaxError(f"{path}: {error}") from None
        except (FileNotFoundError, NotADirectoryError, NotAFile, KeyError, TypeError, ValueError, AttributeError, RecursionError):
            return None
        refuse("sums" not in entries, f"{path} was made by another version of sinkjax; choose another output or delete it")
        return header


def attributes_of_sweep(identity: Json, facts: Json, schedule: Schedule, attributes: Json) -> dict[str, Any]:
    """Return all attributes of a sweep's results. Errors: `attributes` are not JSON, or use a reserved name."""
    reserved = {IDENTITY: identity, HARDWARE: [facts], SCHEDULE: schedule.to_json()}
    for name in reserved.keys() & attributes.keys():
        raise SinkjaxError(f"the attribute {name!r} is reserved for the store; choose another name")
    try:
        given = json.dumps(attributes, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SinkjaxError(f"attributes must be JSON: {error}") from None
    return {**json.loads(given), **json.loads(json.dumps(reserved))}


def sealed(content: bytes) -> bytes:
    """Append a line with a checksum to content."""
    return content + f"\n{zlib.crc32(content):08x}\n".encode()


def unsealed(content: bytes) -> bytes:
    """Return content without its checksum; raise ValueError if they do not match."""
    if content[-10:] != f"\n{zlib.crc32(memoryview(content)[:-10]):08x}\n".encode():
        raise ValueError(CHANGED)
    return content[:-10]


def key_of(identity: Json) -> str:
    """Return the key of a computation, which prefixes its objects' names."""
    return digest(json.dumps(identity, sort_keys=True))
