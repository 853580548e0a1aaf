"""The header of a store, written by its first process: the computation and its division into calls."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sinkjax.config_files.places import Place, delete, listed, read_bytes
from sinkjax.errors import SinkjaxError
from sinkjax.sweeps.arrays import METADATA, Variable, refuse_large
from sinkjax.sweeps.identity import HARDWARE, HARDWARE_FOLDER, IDENTITY, SCHEDULE, as_json, of_earlier
from sinkjax.sweeps.objects import Objects, digest, sealed, unsealed
from sinkjax.sweeps.schedule import Schedule

HEADER, CALLS = ".sweep", ".calls"
CHUNK_BYTES = 1 << 23  # a chunk of the largest variable has at most so many, unless one edit has more

Fixed = Mapping[str, tuple[tuple[str, ...], np.ndarray]]  # name -> (dims, values) of arrays that are known before a sweep


@dataclass(frozen=True)
class Header:
    """A store's contents: the attributes that its arrays will have, and its variables; a calculation has none."""

    attributes: Mapping[str, Any]
    variables: tuple[Variable, ...] = ()

    @property
    def key(self) -> str:
        """The computation's key, the first part of its objects' names."""
        return digest(self.attributes[IDENTITY])

    @property
    def content(self) -> bytes:
        """The content of its file."""
        found = {"attributes": self.attributes, "variables": [variable.to_json() for variable in self.variables]}
        return sealed(json.dumps(found).encode())

    @classmethod
    def of_sweep(
        cls,
        identity: Mapping[str, Any],
        facts: Mapping[str, Any],
        schedule: Schedule,
        attributes: Mapping[str, Any],
        variables: Mapping[str, tuple[tuple[str, ...], tuple[int, ...], np.dtype]],
        fixed: Fixed,
    ) -> Header:
        """The header of a new store.

        variables: name -> (dims, shape, dtype) of the results; the first two dims are edit and prompt. facts: about the
        machine. attributes: provenance, as JSON.
        Errors: attributes that JSON lacks or whose name the store itself uses; an array whose chunks would be too large.
        """
        own = {IDENTITY: identity, HARDWARE: [facts], SCHEDULE: schedule.to_json()}
        attributes = as_json(attributes) | json.loads(json.dumps(own))
        largest = max(math.prod(shape[2:]) * dtype.itemsize for _, shape, dtype in variables.values()) * schedule.prompt_block
        edits = next(iter(variables.values()))[1][0]
        size = min(edits, max(1, CHUNK_BYTES // largest)), schedule.prompt_block
        found = tuple(Variable(name, dims, shape, (*size, *shape[2:]), dtype) for name, (dims, shape, dtype) in variables.items())
        refuse_large(found, fixed)
        return cls(attributes, found)

    @classmethod
    def read(cls, path: Place, key: str = "") -> Header | None:
        """The header of the store `path`, from its arrays where it is lost; None where nothing is there yet.

        key: the computation's: if both are lost, and all objects are its own, the store is begun anew and keeps them.
        Errors: other content; a store that this version cannot read.
        """
        try:
            if header := cls._parsed(path, HEADER) or cls._parsed(path, METADATA):
                return header
            names = {name.partition("/")[0] for name in listed(path)} if path.exists() else set()
            objects = Objects(path / CALLS, key).names()
            if (names or objects) and (header := cls._parsed(path, HEADER)):  # another process has just put it there
                return header
        except OSError as error:
            if not (isinstance(error, NotADirectoryError) and path.is_file()):
                raise SinkjaxError(f"cannot use {path}: {error.strerror or error}") from None
            names, objects = {"a file"}, set()
        if names <= {HEADER, CALLS, HARDWARE_FOLDER}:
            if HEADER not in names and not objects:
                return None
            if key and all(name.startswith(key) for name in objects):
                delete(path / HEADER)
                return None
        if names & {HEADER, CALLS}:
            raise SinkjaxError(
                f"the store {path} is damaged (its metadata are missing or not what was written); delete it and rerun the command"
                " that made it"
            )
        raise SinkjaxError(f"{path} exists and is not the store of a sweep; choose another output")

    @classmethod
    def _parsed(cls, path: Place, file: str) -> Header | None:
        """The header in a file, its own or the arrays' metadata. Errors: OSError; a store that this version cannot read."""
        try:
            content = read_bytes(path / file)
            if file == HEADER:
                found = json.loads(unsealed(content))
                return cls(found["attributes"], tuple(map(Variable.from_json, found["variables"])))
            files = json.loads(content)["metadata"]
            attributes = files[".zattrs"]
            former = attributes[IDENTITY].get("mesh") or b'"crc32c"' not in content  # other calls, or chunks without checksums
            header = cls(attributes, tuple(Variable.of_group(files)) if SCHEDULE in attributes else ())
        except (FileNotFoundError, KeyError, TypeError, ValueError, AttributeError):
            return None
        if former:
            raise of_earlier(path)
        return header
