"""Safetensors files as memory-mapped raw bytes, so that types which NumPy lacks are read exactly."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from sinkjax.checkpoints.signatures import READ, refuse_other
from sinkjax.checkpoints.tensors import INTEGERS, OpenFile, Tensor
from sinkjax.checkpoints.tokenizer import without_repeats
from sinkjax.config_files.checks import refuse
from sinkjax.errors import SinkjaxError, one_of

DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
}

# Types of buffers; a BOOL is read as its byte, which may be neither 0 nor 1.
OTHERS = {f"{name[0].upper()}{name.lstrip('uint')}": np.dtype(name) for name in INTEGERS if name != "bool"}
OTHERS |= {"BOOL": np.dtype(np.uint8)}
NAMES = {kind: dtype.name for kind, dtype in (DTYPES | OTHERS).items()}  # NumPy computes a name anew for each access

MOST_ENTRIES = 1_200_000  # in a header, where a matrix has five: 20 times as many as in the largest published models
HEADER_LIMIT = 100_000_000


def read_safetensors(path: Path, buffers: bool = False) -> dict[str, Tensor]:
    """Map tensor names to the tensors of one file, reading only its header.

    buffers: whether tensors of integers and booleans are read too, which no weight is.

    Errors: a file that is missing, truncated or corrupt; a name that stands twice; a tensor whose bytes do not fit its shape;
    tensors that overlap, leave gaps or do not end where the file does; another stored type. (The
    safetensors package takes the last of several tensors of one name.)
    """
    file = OpenFile(path)
    size = file.size
    mapped = file.map(0, (size,))
    start = 8 + int.from_bytes(mapped[:8].tobytes(), "little")
    if size < 8 or start > min(size, HEADER_LIMIT):
        refuse_other(mapped[:READ].tobytes(), path, "a safetensors file")
        raise SinkjaxError(f"{path} is truncated or corrupt: its header does not fit into its {size} bytes")
    content = mapped[8:start].tobytes()
    count = content.count(b",")  # counted first, because parsing takes seconds
    refuse(count > MOST_ENTRIES, f"{path} has a header of {count:,} entries, and a file of a model has at most {MOST_ENTRIES:,}")
    try:
        header = json.loads(content, object_pairs_hook=without_repeats)
        entries = {name: _entry(entry) for name, entry in header.items() if name != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise SinkjaxError(f"{path} is corrupt: it has no safetensors header with each name once") from None
    types = DTYPES | OTHERS if buffers else DTYPES
    tensors: dict[str, Tensor] = {}
    at = 0
    for name, (kind, shape, begin, end) in sorted(entries.items(), key=lambda entry: entry[1][2:]):
        one_of(f"stored type of {name} in {path}:", kind, types)
        refuse(end > size - start, f"{path} is truncated: {name} ends at byte {end} of {size - start}")
        fits = end - begin == math.prod(shape) * types[kind].itemsize
        refuse(not fits, f"{path} is corrupt: {end - begin} bytes cannot hold {name} of shape {shape} as {kind}")
        wrong = f"{name} begins at byte {begin} of its data, and the tensor before it ends at {at}"
        refuse(begin != at, f"{path} is corrupt: {wrong}")
        raw, decode = partial(file.map, start + begin, (end - begin,)), partial(np.ndarray.view, dtype=types[kind])
        tensors[name], at = Tensor(shape, raw, decode, NAMES[kind]), end
    refuse(at != size - start, f"{path} is corrupt: its tensors end at byte {at} of {size - start}")
    return {name: tensors[name] for name in entries}


def read_metadata(path: Path) -> dict[str, str]:
    """Return the texts in the header of a file that `read_safetensors` accepts."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    about = header.get("__metadata__")
    return {name: text for name, text in about.items() if isinstance(text, str)} if isinstance(about, dict) else {}


def write_safetensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays of the types in DTYPES. File system errors are raised unchanged."""
    with path.open("wb") as file:
        for piece in packed(arrays):
            file.write(piece)


def packed(arrays: Mapping[str, np.ndarray], about: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Yield the bytes of a file with these arrays, in pieces. about: texts for its header."""
    kinds = {dtype: kind for kind, dtype in DTYPES.items()}
    header: dict[str, Any] = {"__metadata__": {"format": "pt", **(about or {})}}  # transformers needs the format
    end = 0
    for name, array in arrays.items():
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": kinds[array.dtype], "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for array in arrays.values():
        yield np.ascontiguousarray(array).view(np.uint8).data


def _entry(entry: dict[str, Any]) -> tuple[str, tuple[int, ...], int, int]:
    begin, end = entry["data_offsets"]
    shape, numbers = tuple(entry["shape"]), (*entry["shape"], begin, end)
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError
    return entry["dtype"], shape, begin, end
