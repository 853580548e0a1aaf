"""Immutable objects: the results of a call with its coordinates and a checksum, named by the computation and the call."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from sinkjax.config_files.files import write_new
from sinkjax.config_files.places import Place, delete, listed, read_bytes

MISSING, CHANGED = "is missing", "is not what was written"
CALL = ".call"  # the array with the coordinates of an object's call: the block of prompts, then the edits


def checksum(content: Any) -> int:
    """The CRC-32 of a file's content."""
    return zlib.crc32(content)


def sealed(content: bytes) -> bytes:
    """Content, and a line with its checksum."""
    return content + f"\n{checksum(content):08x}\n".encode()


def unsealed(content: bytes) -> bytes:
    """Content without its checksum. Errors: ValueError, if the two do not match."""
    if content[-10:] != f"\n{checksum(memoryview(content)[:-10]):08x}\n".encode():
        raise ValueError(CHANGED)
    return content[:-10]


def digest(value: Any) -> str:
    """16 hexadecimal digits that stand for a value, which is JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Objects:
    """The objects of one computation in a folder; existing means done.

    key: the computation's, the first part of each name. durable: whether an object is on the disk, not only in the system's
    memory, before it gets its name.
    """

    folder: Place
    key: str
    durable: bool = True

    def file(self, edits: Sequence[int], block: int) -> Place:
        """Where the object of a call lies."""
        return self.folder / f"{self.key}-{digest([block, *edits])}"

    def write(self, edits: Sequence[int], block: int, values: Mapping[str, np.ndarray]) -> None:
        """Keep the results of a call, whole or not at all, unless its object exists. Errors: no permission, no room."""
        arrays = {CALL: np.array([block, *edits]), **values}
        content = safetensors.save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        write_new(self.file(edits, block), sealed(content), durable=self.durable, scratch=self.folder)

    def read(self, edits: Sequence[int], block: int) -> dict[str, np.ndarray]:
        """The results of a call. Errors: FileNotFoundError; ValueError if the object has changed or belongs to another call."""
        try:
            found: dict[str, np.ndarray] = safetensors.load(unsealed(read_bytes(self.file(edits, block))))
            if found.pop(CALL).tolist() != [block, *edits]:
                raise ValueError(CHANGED)
        except (SafetensorError, KeyError, IsADirectoryError):
            raise ValueError(CHANGED) from None
        return found

    def exists(self, edits: Sequence[int], block: int) -> bool:
        """Whether a call is done."""
        found: bool = self.file(edits, block).is_file()
        return found

    def drop(self, edits: Sequence[int], block: int) -> None:
        """Remove the damaged object of a call."""
        delete(self.file(edits, block))

    def names(self) -> set[str]:
        """The names of all objects in the folder, of this computation or others."""
        try:
            return {name for name in listed(self.folder) if name[0] != "."}
        except FileNotFoundError:  # also if another process removes it in this moment
            return set()
