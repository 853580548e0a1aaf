"""Immutable objects: the results of a call with its coordinates and a checksum, named by the computation and the call."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from sinkjax.config_files.places import Place, listed

CHANGED = "is not what was written"
CALL = ".call"  # the array with the coordinates of an object's call: the block of prompts, then the edits


def sealed(content: bytes) -> bytes:
    """Content, and a line with its checksum."""
    return content + f"\n{zlib.crc32(content):08x}\n".encode()


def unsealed(content: bytes) -> bytes:
    """Content without its checksum. Errors: ValueError, if the two do not match."""
    if content[-10:] != f"\n{zlib.crc32(memoryview(content)[:-10]):08x}\n".encode():
        raise ValueError(CHANGED)
    return content[:-10]


def packed(call: Sequence[int], values: Mapping[str, np.ndarray]) -> bytes:
    """The content of an object."""
    arrays = {CALL: np.array(call), **values}
    return sealed(safetensors.save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


def unpacked(call: Sequence[int], content: bytes) -> dict[str, np.ndarray]:
    """The results of a call. Errors: ValueError, if its object has changed or belongs to another call."""
    try:
        found: dict[str, np.ndarray] = safetensors.load(unsealed(content))
    except SafetensorError:
        raise ValueError(CHANGED) from None
    if found.pop(CALL, np.empty(0)).tolist() != [*call]:
        raise ValueError(CHANGED)
    return found


def names(folder: Place) -> set[str]:
    """The names of all objects in a folder."""
    try:
        return {name for name in listed(folder) if name[0] != "."}
    except FileNotFoundError:  # also if another process removes it in this moment
        return set()
