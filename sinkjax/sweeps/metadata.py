"""Checks of a store's metadata, which may be a stranger's: before anything is allocated, every number must fit the others.

The checksums list the files that exist, so they bound the number of chunks and calls. A reader of zarr takes the decoder that
metadata name, and those of objects unpickle, so no other codec or dtype passes.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from sinkjax.config_files.checks import MANY, refuse
from sinkjax.config_files.documents import convert
from sinkjax.config_files.files import plain_name
from sinkjax.errors import short
from sinkjax.sweeps.arrays import DIMS, LARGEST, Array, codecs, expected

CODECS = [codec.codec_id for codec in codecs()]
MOST_ABSENT = 100_000_000  # bytes of chunks without a file, which readers fill with NaN; xarray omits these in calculations
LEAST_ABSENT = 100  # bytes that each of them counts, so that their number is bounded, too
JSON: TypeAlias = Mapping[str, Any]
LIST: TypeAlias = tuple[Any, ...]
INTEGERS: TypeAlias = tuple[int, ...]
CALL: TypeAlias = tuple[int, int, INTEGERS, int | None, int]  # kind, start, edits, base and row
# Types of the attributes that pages read, if they are present.
TYPES: Mapping[str, Any] = {
    **dict.fromkeys(("sweep", "schedule", "study", "study.config"), JSON),
    **{f"sweep.{name}": JSON for name in ("model", "config", "prompts", "versions")},
    **{f"study.{name}": LIST for name in ("documents", "genres", "token_texts", "first_tokens")},
    "hardware": tuple[JSON, ...],
}


def check_metadata(metadata: Any, sums: Any) -> None:
    """Raise unless a group's metadata are of the kind that this package writes.

    Args:
        metadata: Content of each metadata file.
        sums: Checksum of each chunk's file; empty before a store is finished.

    Raises:
        SinkjaxError: An unknown file, codec or dtype, a value of the wrong type, or numbers that do not fit each other, the
            files, or the memory of any machine.
    """
    convert(metadata, JSON, "its metadata")
    convert(sums, JSON, "its checksums")
    for file, entry in metadata.items():
        name, _, kind = file.rpartition("/")
        refuse(kind not in (".zgroup", ".zattrs", ".zarray"), f"{file!r} is no metadata of an array")
        if name:
            plain_name(name)
        convert(entry, JSON, file)
    attributes = metadata.get(".zattrs", {})
    for path, kind in TYPES.items():
        *outer, last = path.split(".")
        values = functools.reduce(lambda level, name: level.get(name, {}), outer, attributes)
        if last in values:
            convert(values[last], kind, path)
    names = [file.removesuffix("/.zarray") for file in metadata if file.endswith("/.zarray")]
    arrays = [_checked(name, metadata[f"{name}/.zarray"], metadata.get(f"{name}/.zattrs", {}).get(DIMS)) for name in names]
    sizes: dict[str, int] = {}
    for array in arrays:
        for dim, size in zip(array.dims, array.shape, strict=True):
            what = f"the dimension {dim!r} has {size} entries in the array {array.name!r}, but {sizes.get(dim)} in another"
            refuse(sizes.setdefault(dim, size) != size, what)
    swept = "schedule" in attributes
    if sums:
        _check_files(arrays, sums, 0 if swept else MOST_ABSENT)
    if swept:
        _check_schedule(attributes["schedule"], [array for array in arrays if array.dims[:2] == ("edit", "prompt")])


def _checked(name: str, entry: Mapping[str, Any], dims: Any) -> Array:
    """Return an array after checks of its own entries."""
    what = f"of the array {name!r}"
    shape, size = (convert(entry.get(key), INTEGERS, f"{key} {what}") for key in ("shape", "chunks"))
    dims = convert(dims, tuple[str, ...], f"the dimensions {what}")
    refuse(len({*dims}) < len(dims), f"the dimensions {what} must be different names, not {short(dims)}")
    refuse(not len(shape) == len(size) == len(dims), f"shape, chunks and dimensions {what} have different lengths")
    small = any(length < 0 or chunk < min(1, length) for length, chunk in zip(shape, size, strict=True))
    refuse(small, f"shape and chunks {what} must be at least 0 and 1, not {short((shape, size))}")
    ids = [codec.get("id") for codec in convert(entry.get("filters") or (), tuple[JSON, ...], f"filters {what}")]
    refuse(ids != CODECS, f"the array {name!r} has the codecs {short(ids)}, but sinkjax writes {', '.join(CODECS)}")
    try:
        dtype = np.dtype(str(entry.get("dtype")))  # np.dtype(None) is float64
    except (TypeError, ValueError, OverflowError):
        dtype = np.dtype("V1")
    written = dtype.kind in "biufcSU"
    refuse(not written, f"the array {name!r} has the dtype {short(entry.get('dtype'))}, which sinkjax does not write")
    for key in ("zarr_format", "order", "fill_value", "compressor"):
        wanted = expected(dtype)[key]
        refuse(entry.get(key) != wanted, f"{key} {what} is {short(entry.get(key))}, but sinkjax writes {wanted}")
    array = Array(name, dims, shape, size, dtype)
    refuse(array.nbytes > LARGEST, f"a chunk {what} has {array.nbytes:,} bytes, and at most {LARGEST:,} are possible")
    return array


def _check_files(arrays: Sequence[Array], sums: Mapping[str, Any], most: int) -> None:
    """Raise unless checksums belong to chunks, and at most `most` bytes of chunks have none."""
    counts = Counter(file.rpartition("/")[0] for file in sums)
    absent = {array: math.prod(array.grid) - counts[array.name] for array in arrays}
    lacking = sum(number * max(array.nbytes, LEAST_ABSENT) for array, number in absent.items() if number > 0)
    refuse(lacking > most, f"its arrays need {sum(absent.values()):,} chunks that have no file")
    files = {array.file(*index) for array in arrays for index in np.ndindex(array.grid)}
    for file, checksum in sums.items():
        refuse(file not in files, f"its checksums have the file {short(file)}, which is no chunk of an array")
        refuse(not isinstance(checksum, int | str), f"the checksum of {file} must be an integer or a text, not {short(checksum)}")


def _check_schedule(schedule: Mapping[str, Any], variables: Sequence[Array]) -> None:
    """Raise unless calls compute each edit once, in the chunks of the variables."""
    (E, B), (_, block) = (variables[0].shape[:2], variables[0].size[:2]) if variables else ((0, 0), (0, 1))
    for variable in variables:
        same = variable.shape[:2] == (E, B) and variable.size[:2] == variables[0].size[:2]
        refuse(not same, f"the arrays {variables[0].name!r} and {variable.name!r} have other edits or prompts")
    chunks = convert(schedule.get("chunks"), tuple[LIST, ...], "schedule.chunks")
    widths = convert(schedule.get("widths"), INTEGERS, "schedule.widths")
    refuse(min(widths, default=1) < 1, "schedule.widths must be at least 1")
    refuse(bool(variables) and schedule.get("prompt_block") != block, f"schedule.prompt_block must be {block}")
    computed: list[int] = []
    for chunk in chunks:  # without a row in earlier versions
        kind, start, edits, base, row = convert([*chunk, *[0] * (len(chunk) == 4)], CALL, "an entry of schedule.chunks")
        exist = 0 <= kind < len(widths) and min(start, row) >= 0 and 0 <= (base or 0) < E
        refuse(not exist, "schedule.chunks name a kind, a block or an edit that does not exist")
        refuse(not edits, "an entry of schedule.chunks must have edits")
        computed += edits
    refuse(sorted(computed) != [*range(len(computed))] or len(computed) != E, f"schedule.chunks must have {E:,} edits once")
    calls = len(chunks) * -(-B // block)
    refuse(calls > MANY, f"its schedule has {calls:,} calls, and a sweep has at most {MANY:,}; use larger calls")
