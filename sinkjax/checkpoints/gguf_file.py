"""The GGUF container: metadata and memory-mapped tensors. The `gguf` package provides the types and de-quantises.

We do not use that package's reader: it allocates one array per vocabulary entry, which is slow and takes much memory, and it
reports a damaged file as a raw numpy error.
"""

from __future__ import annotations

import math
import struct
from contextlib import suppress
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

from sinkjax.checkpoints.signatures import READ, refuse_other
from sinkjax.checkpoints.tensors import OpenFile, Tensor
from sinkjax.config_files.checks import refuse
from sinkjax.errors import LONGEST, SinkjaxError, one_of, unknown

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
TYPES = {kind.value: kind for kind in GGMLQuantizationType}
ROWS = 512  # de-quantised at once
MOST_DIMS = 4  # GGML_MAX_DIMS
DEEPEST = 4  # arrays of arrays
MOST_VALUES = 10_000_000  # in arrays of the header; a vocabulary of 262,144 tokens and its merges have a million
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}


class _Cursor:
    """A position in the mapped header; reading past the end raises the error for a truncated file."""

    def __init__(self, data: memoryview, path: Path):
        self.data, self.path, self.at, self.values = data, path, 0, 0

    def take(self, size: int) -> memoryview:
        held = len(self.data)
        refuse(size > held - self.at, f"{self.path} is truncated or corrupt: its header needs more than its {held} bytes")
        self.at += size
        return self.data[self.at - size : self.at]

    def scalar(self, code: str) -> Any:
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def string(self) -> str:
        return str(self.take(self.scalar("<Q")), "utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            inner, count = self.scalar("<I"), self.scalar("<Q")
            self.values += count
            many = self.values > MOST_VALUES
            refuse(many, f"{self.path} is corrupt: the arrays in its header have more than {MOST_VALUES:,} entries")
            if inner in SCALARS:
                return np.frombuffer(self.take(count * struct.calcsize(SCALARS[inner])), SCALARS[inner]).tolist()
            refuse(depth == DEEPEST, f"{self.path} is corrupt: its header has arrays in more than {DEEPEST} arrays")
            return [self.value(inner, depth + 1) for _ in range(count)]
        refuse(kind not in SCALARS, f"{self.path} is corrupt: its header has a value of the unknown type {kind}")
        return self.scalar(SCALARS[kind])


def read_gguf(path: Path, *pieces: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read the metadata and the tensors (shape outermost first), by name, of a little-endian GGUF of version 2 or 3.

    pieces: the files that continue `path`, if it was split; the header must be in the first.
    Errors: a file that is missing, truncated, corrupt or of another version; a type that cannot be de-quantised.
    """
    file = OpenFile(path, *pieces)
    cursor = _Cursor(file.map(0, (file.sizes[0],)).data, path)
    start = bytes(cursor.data[:READ])
    if cursor.take(4) != MAGIC:
        refuse_other(start, path, "a GGUF file")
        raise SinkjaxError(f"{path} is not a GGUF file: it does not begin with GGUF")
    one_of(f"GGUF version of {path}:", cursor.scalar("<I"), VERSIONS)
    tensor_count, field_count = cursor.scalar("<Q"), cursor.scalar("<Q")
    metadata = {}
    for _ in range(field_count):
        key = cursor.string()
        refuse(key in metadata, f"{path} is corrupt: it states {key[:LONGEST]!r} twice")
        metadata[key] = cursor.value(cursor.scalar("<I"))
    infos: dict[str, tuple[tuple[int, ...], int, int]] = {}
    for _ in range(tensor_count):
        name, rank = cursor.string(), cursor.scalar("<I")
        wrong = f"{path} is corrupt: of the tensor {name[:LONGEST]!r}"
        refuse(name in infos, f"{wrong}, it holds two")
        refuse(not 1 <= rank <= MOST_DIMS, f"{wrong}, it has {rank} dimensions, not 1 to {MOST_DIMS}")
        dims = [cursor.scalar("<Q") for _ in range(rank)]
        infos[name] = tuple(reversed(dims)), cursor.scalar("<I"), cursor.scalar("<Q")
    alignment = metadata.get("general.alignment", 32)
    refuse(type(alignment) is not int or alignment < 1, f"{path} is corrupt: its alignment is {str(alignment)[:LONGEST]}")
    first = -(-cursor.at // alignment) * alignment
    tensors = {name: _tensor(name, *info, first, file) for name, info in infos.items()}
    extents = sorted((infos[name][2], size, name) for name, (_, size) in tensors.items())
    for (before, size, _), (offset, _, name) in pairwise([(0, 0, ""), *extents]):
        inside = offset % alignment > 0 or offset < before + size
        refuse(inside, f"{path} is corrupt: {name[:LONGEST]} begins at byte {offset}, inside another tensor or its padding")
    return metadata, {name: tensor for name, (tensor, _) in tensors.items()}


def _tensor(name: str, shape: tuple[int, ...], kind: int, offset: int, first: int, file: OpenFile) -> tuple[Tensor, int]:
    """Return a tensor of a file whose data start at byte `first`, and its size in bytes."""
    path, stored = file.path, TYPES.get(kind)
    if stored is None or not _readable(stored):
        readable = [member.name for member in TYPES.values() if _readable(member)]
        hint = "; llama-quantize of the program that wrote the file makes another type of it"
        raise unknown(f"stored type of {name} in {path}:", stored.name if stored else f"number {kind}", readable, hint)
    block, block_bytes = GGML_QUANT_SIZES[stored]
    partial_block = 0 in shape or shape[-1] % block > 0
    refuse(partial_block, f"{path} is corrupt: {name} of shape {shape} does not fill blocks of {block} values")
    rows, row_bytes, begin = math.prod(shape[:-1]), shape[-1] // block * block_bytes, first + offset
    end, size = begin + rows * row_bytes, file.size
    refuse(end > size, f"{path} is truncated: {name} ends at byte {end - first} of {max(0, size - first)}")

    def part(start: int, stop: int) -> np.ndarray:
        inner = rows // shape[0]
        return file.map(begin + start * inner * row_bytes, ((stop - start) * inner, row_bytes))

    raw, decode = partial(file.map, begin, (rows, row_bytes)), partial(_dequantize, kind=stored)
    return Tensor(shape, raw, decode, stored.name, part=part), end - begin


@cache
def _readable(kind: GGMLQuantizationType) -> bool:
    """Return whether the `gguf` package can de-quantise a type, by trying."""
    with suppress(NotImplementedError):
        return dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind) is not None
    return False


def _dequantize(raw: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray:
    """De-quantise rows of bytes to float32, in blocks of rows so that temporaries stay small."""
    block, block_bytes = GGML_QUANT_SIZES[kind]
    rows = np.empty((len(raw), raw.shape[1] // block_bytes * block), np.float32)
    for start in range(0, len(raw), ROWS):
        rows[start : start + ROWS] = dequantize(raw[start : start + ROWS], kind)
    return rows
