"""Checks of a store's metadata, which may be a stranger's: before anything is allocated, every number must fit the others.

The checksums list the files that exist, so they bound the number of chunks and calls. A reader of zarr takes the decoder that
metadata name, and those of objects unpickle, so no other codec or dtype passes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sinkjax.config_files.checks import MANY, refuse
from sinkjax.config_files.files import plain_name
from sinkjax.errors import SinkjaxError, short
from sinkjax.sweeps.arrays import DIMS, LARGEST, Array, arrays_of, codecs, expected

CODECS = tuple(codec.codec_id for codec in codecs())
MOST_ABSENT = 100_000_000  # bytes of chunks without a file, which readers fill with NaN; xarray omits these in calculations
# Attributes that pages read, if they are present.
TYPES: Mapping[str, type] = {
    **dict.fromkeys(("sweep", "schedule", "study", "study.config"), dict),
    **{f"sweep.{name}": dict for name in ("model", "config", "prompts", "versions")},
    **{f"study.{name}": list for name in ("documents", "genres", "token_texts", "first_tokens")},
    "hardware": list,
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
    _is("its metadata", metadata, dict)
    _is("its checksums", sums, dict)
    for file, entry in metadata.items():
        name, _, kind = file.rpartition("/")
        refuse(kind not in (".zgroup", ".zattrs", ".zarray"), f"{file!r} is no metadata of an array")
        if name:
            plain_name(name)
        _is(file, entry, dict)
    attributes = metadata.get(".zattrs", {})
    for path, kind in TYPES.items():
        _check_type(attributes, path, kind)
    for machine in attributes.get("hardware", ()):
        _is("an entry of hardware", machine, dict)
    for file, entry in metadata.items():
        if file.endswith("/.zarray"):
            _check_entry(file.removesuffix("/.zarray"), entry, metadata.get(file.replace(".zarray", ".zattrs"), {}).get(DIMS))
    arrays = [*arrays_of(metadata)]
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


def _is(what: str, value: Any, kind: type) -> None:
    refuse(not isinstance(value, kind), f"{what} must be a {'list' if kind is list else 'mapping'}, not {short(value)}")


def _check_type(attributes: Any, path: str, kind: type) -> None:
    *outer, last = path.split(".")
    for name in outer:
        attributes = attributes.get(name, {})
    if last in attributes:
        _is(path, attributes[last], kind)


def _integers(what: str, values: Any, least: Iterable[int]) -> None:
    refuse(not isinstance(values, list), f"{what} must be a list, not {short(values)}")
    for value, low in zip(values, least, strict=False):
        refuse(type(value) is not int or value < low, f"{what} must be integers of at least {low}, not {short(value)}")


def _check_entry(name: str, entry: Mapping[str, Any], dims: Any) -> None:
    """Check one array's own numbers."""
    what = f"of the array {name!r}"
    shape, size = entry.get("shape"), entry.get("chunks")
    _integers(f"shape {what}", shape, [0] * len(shape) if isinstance(shape, list) else ())
    assert isinstance(shape, list)
    _integers(f"chunks {what}", size, [min(1, length) for length in shape])
    if not isinstance(dims, list) or not all(isinstance(dim, str) for dim in dims) or len({*dims}) < len(dims):
        raise SinkjaxError(f"the dimensions {what} must be different names, not {short(dims)}")
    assert isinstance(size, list)
    refuse(not len(shape) == len(size) == len(dims), f"shape, chunks and dimensions {what} have different lengths")
    named = [*(entry.get("filters") or ()), *[entry["compressor"]] * bool(entry.get("compressor"))]
    for codec in named:
        _is(f"a codec {what}", codec, dict)
        odd = codec.get("id")
        refuse(odd not in CODECS, f"the array {name!r} names the codec {short(odd)}, and sinkjax writes {', '.join(CODECS)}")
    refuse(len(named) < len(CODECS), f"the array {name!r} must have the codecs {', '.join(CODECS)}")
    try:
        dtype = np.dtype(str(entry.get("dtype")))  # np.dtype(None) is float64
    except (TypeError, ValueError, OverflowError):
        dtype = np.dtype("V1")
    refuse(
        dtype.kind not in "biufcSU", f"the array {name!r} has the dtype {short(entry.get('dtype'))}, which sinkjax does not write"
    )
    for key in ("zarr_format", "order", "fill_value", "compressor"):
        found, want = entry.get(key), expected(dtype)[key]
        refuse(found != want, f"{key} {what} is {short(found)}, but sinkjax writes {want}")
    if (count := math.prod(size) * dtype.itemsize) > LARGEST:
        raise SinkjaxError(f"a chunk {what} has {count:,} bytes, and at most {LARGEST:,} are possible")


def _check_files(arrays: Sequence[Array], sums: Mapping[str, Any], most: int) -> None:
    """Raise unless checksums belong to chunks, and at most `most` bytes of chunks have none."""
    left = {array.name: math.prod(array.grid) for array in arrays}
    grids = {array.name: array.grid for array in arrays}
    for file, checksum in sums.items():
        name, _, index = file.rpartition("/")
        parts, grid = index.split("."), grids.get(name, ())
        numbers = [int(part) if part.isascii() and part.isdigit() and len(part) < 20 else -1 for part in parts]
        fits = name in grids and len(parts) == max(len(grid), 1) and [*map(str, numbers)] == parts
        inside = fits and all(0 <= number < count for number, count in zip(numbers, grid or (1,), strict=True))
        refuse(not inside, f"its checksums have the file {short(file)}, which is no chunk of an array")
        refuse(not isinstance(checksum, int | str), f"the checksum of {file} must be an integer or a text, not {short(checksum)}")
        left[name] -= 1
    absent = sum(left[array.name] * array.nbytes for array in arrays if 0 not in array.shape)
    refuse(absent > most, f"its arrays need {sum(left.values()):,} chunks that have no file")


def _check_schedule(schedule: Mapping[str, Any], variables: Sequence[Array]) -> None:
    """Raise unless calls compute each edit once, in the chunks of the variables."""
    (E, B), (_, block) = (variables[0].shape[:2], variables[0].size[:2]) if variables else ((0, 0), (0, 1))
    for one in variables:
        same = one.shape[:2] == (E, B) and one.size[:2] == variables[0].size[:2]
        refuse(not same, f"the arrays {variables[0].name!r} and {one.name!r} have other edits or prompts")
    chunks, widths = schedule.get("chunks"), schedule.get("widths")
    _is("schedule.chunks", chunks, list)
    _is("schedule.widths", widths, list)
    assert isinstance(chunks, list)
    assert isinstance(widths, list)
    _integers("schedule.widths", widths, [1] * len(widths))
    refuse(bool(variables) and schedule.get("prompt_block") != block, f"schedule.prompt_block must be {block}")
    computed: list[int] = []
    for chunk in chunks:
        whole = isinstance(chunk, list) and len(chunk) == 4 and isinstance(chunk[2], list) and bool(chunk[2])
        refuse(not whole, f"an entry of schedule.chunks must be [kind, start, edits, base], not {short(chunk)}")
        kind, start, edits, base = chunk
        _integers("schedule.chunks", [kind, start, *edits, *[base] * (base is not None)], [0] * (len(edits) + 3))
        refuse(kind >= len(widths) or (base or 0) >= E, "schedule.chunks name a kind or an edit that does not exist")
        computed += edits
    refuse(
        sorted(computed) != [*range(len(computed))] or len(computed) != E, f"schedule.chunks must have each of {E:,} edits once"
    )
    calls = len(chunks) * -(-B // block)
    refuse(calls > MANY, f"its schedule has {calls:,} calls, and a sweep has at most {MANY:,}; use larger calls")
