"""Stored tensors of checkpoint files: a name, a shape and raw bytes that are decoded on demand."""

from __future__ import annotations

import itertools
import math
import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

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
    """An open file that stays the same even if its path is replaced. It is closed when nothing refers to it any more.

    Errors: as for `regular`; the file cannot be read.
    """

    def __init__(self, path: Path):
        self.path = path
        regular(path)
        try:
            self.file = path.open("rb", buffering=0)
        except OSError as error:
            raise SinkjaxError(f"cannot read {path}: {error.strerror}") from None
        weakref.finalize(self, self.file.close)

    @property
    def size(self) -> int:
        """Current size in bytes."""
        return os.fstat(self.file.fileno()).st_size

    def map(self, begin: int = 0, shape: tuple[int, ...] | None = None) -> np.ndarray:
        """Bytes as uint8, mapped and read-only: `shape` from byte `begin` on, by default all.

        Errors: the file cannot be read, or has become shorter since its header was read.
        """
        try:
            if 0 in (self.size, *(shape or ())):
                return np.zeros(shape or 0, np.uint8)
            mapped = np.memmap(self.file, np.uint8, "r", begin, shape)
            return np.asarray(mapped)  # a plain array: np.memmap's views are slow to make
        except OSError as error:
            raise SinkjaxError(f"cannot read {self.path}: {error.strerror}") from None
        except ValueError:
            raise SinkjaxError(f"{self.path} is shorter than when its header was read") from None


class JoinedFile:
    """Files that are the pieces of one, read in order without a copy on disk. Errors: as for `OpenFile`.

    A range of bytes within a piece is mapped; one that crosses from a piece to the next is copied.
    """

    def __init__(self, paths: Sequence[Path]):
        self.path = paths[0]
        self.pieces = [OpenFile(path) for path in paths]
        self.starts = [0, *itertools.accumulate(piece.size for piece in self.pieces)]
        self.size = self.starts[-1]

    def head(self) -> np.ndarray:
        """The first piece, uint8."""
        return self.pieces[0].map()

    def map(self, begin: int, shape: tuple[int, ...]) -> np.ndarray:
        """Bytes as uint8, read-only: `shape` from byte `begin` on. Errors: as for `OpenFile.map`."""
        end, found = begin + math.prod(shape), []
        for piece, start, stop in zip(self.pieces, self.starts[:-1], self.starts[1:], strict=True):
            first, last = max(begin, start), min(end, stop)
            if first < last:
                found.append(piece.map(first - start, (last - first,)))
        return (found[0] if len(found) == 1 else np.concatenate([np.zeros(0, np.uint8), *found])).reshape(shape)
