"""Stored tensors of checkpoint files: a name, a shape and raw bytes that are decoded on demand."""

from __future__ import annotations

import io
import math
import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import regular
from sinkjax.errors import SinkjaxError

INTEGERS = ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))  # stored types of masks
PIECE = 2**20  # elements of a large tensor, or bytes to hash, that are processed at a time


@dataclass(frozen=True, eq=False)
class Tensor:
    """One stored tensor.

    shape: outputs first, inputs last, as Hugging Face writes linear layers. raw: returns the bytes, uint8 in rows or flat; each
    call maps the bytes of an `OpenFile` anew, so they use memory only while in use. decode: raw -> the numbers,
    in any shape with the right order; cheap for plain types, de-quantising for others. stored: the name of the type in the file
    ("bfloat16", "Q4_1"). shared: the numbers themselves, if they are a JAX array in memory. part: returns the bytes of rows from
    start to stop, if they can be read separately.
    """

    shape: tuple[int, ...]
    raw: Callable[[], np.ndarray]
    decode: Callable[[np.ndarray], np.ndarray]
    stored: str = ""
    shared: jax.Array | None = None
    part: Callable[[int, int], np.ndarray] | None = None

    def array(self) -> np.ndarray:
        """Return the numbers, in `shape` and in the type that the file stores or de-quantises to."""
        return self.decode(self.raw()).reshape(self.shape)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return `array()[start:stop]` without reading more. Not for a tensor whose `decode` reorders rows."""
        if (start, stop) == (0, self.shape[0]):
            return self.array()
        raw = self.part(start, stop) if self.part else self.raw().reshape(self.shape[0], -1)[start:stop]
        return self.decode(raw).reshape(stop - start, *self.shape[1:])

    def row_pieces(self) -> Iterator[tuple[int, int]]:
        """Yield start and stop of consecutive rows, PIECE numbers at a time."""
        size = max(1, PIECE // max(1, math.prod(self.shape[1:])))
        for start in range(0, self.shape[0], size):
            yield start, min(start + size, self.shape[0])

    def byte_pieces(self) -> Iterator[np.ndarray]:
        """Yield all bytes in order, in parts: uint8."""
        if self.part:
            for rows in self.row_pieces():
                yield self.part(*rows).reshape(-1)
            return
        for start in range(0, self.raw().size, PIECE):
            yield self.raw().reshape(-1)[start : start + PIECE]


def stored_as(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the storage type of most of the floating-point numbers; None without any."""
    sizes: Counter[str] = Counter()
    for tensor in tensors.values():
        if tensor.stored not in INTEGERS:
            sizes[tensor.stored] += math.prod(tensor.shape)
    return max(sizes, key=lambda name: sizes[name]) if sizes else None


class OpenFile:
    """Open files that are the pieces of one, usually a single file. They stay the same even if their paths are replaced.

    They are closed when nothing refers to this object any more. Errors: as for `regular`; a file cannot be read.
    """

    def __init__(self, *paths: Path):
        self.path = paths[0]
        self.pieces: list[io.RawIOBase] = []
        for path in paths:
            regular(path)
            try:
                piece = path.open("rb", buffering=0)
            except OSError as error:
                raise SinkjaxError(f"cannot read {path}: {error.strerror}") from None
            weakref.finalize(self, piece.close)
            self.pieces.append(piece)

    @property
    def sizes(self) -> list[int]:
        """Current size of each piece in bytes."""
        return [os.fstat(piece.fileno()).st_size for piece in self.pieces]

    @property
    def size(self) -> int:
        """Current size in bytes."""
        return sum(self.sizes)

    def map(self, begin: int, shape: tuple[int, ...]) -> np.ndarray:
        """Return bytes from `begin`, read-only uint8 of `shape`: mapped, or copied if they cross from a piece to the next.

        Errors: a file cannot be read, or has become shorter since its header was read.
        """
        end, start, parts = begin + math.prod(shape), 0, []
        for piece, size in zip(self.pieces, self.sizes, strict=True):
            first, last = max(begin, start), min(end, start + size)
            if first < last:
                try:
                    mapped = np.memmap(piece, np.uint8, "r", first - start, (last - first,))
                except OSError as error:
                    raise SinkjaxError(f"cannot read {self.path}: {error.strerror}") from None
                parts.append(np.asarray(mapped))  # a plain array, because np.memmap's views are slow to make
            start += size
        refuse(end > start, f"{self.path} is shorter than when its header was read")
        return (parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.uint8), *parts])).reshape(shape)
