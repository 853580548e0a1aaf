"""The store of a sweep: a zarr group that is filled chunk by chunk and survives a kill at any moment.

It is made whole (shapes, labels, provenance, the chunk plan) in a scratch folder and renamed into place. A chunk's values are
written first, its mark in `done` after them, so a mark vouches for its values; whatever has no mark is computed again. One zarr
chunk holds one edit and one block of prompts, so no two writes ever touch the same file. Zarr format 2: its fixed-width text is
part of the specification, and every reader has it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkjax.errors import SinkjaxError
from sinkjax.sweeps.schedule import Schedule

if TYPE_CHECKING:
    import xarray

IDENTITY, SCHEDULE = "sweep", "schedule"  # attributes: what two runs must share for one to resume the other, and their calls
DIMS = "_ARRAY_DIMENSIONS"  # where xarray looks for the names of axes


class Store:
    """An open store: `mark`ed chunks are complete, `write` adds one."""

    def __init__(self, path: Path):
        import zarr

        group = zarr.open_group(path, mode="r+", zarr_format=2)
        attributes: dict[str, Any] = group.attrs.asdict()
        self.path, self.arrays, self.attributes = path, dict(group.arrays()), attributes
        try:
            self.schedule = Schedule.from_json(attributes[SCHEDULE])
        except (KeyError, TypeError, ValueError):
            raise SinkjaxError(f"{path} was planned by another version of sinkjax; choose another output or delete it") from None
        self.done = np.asarray(self.arrays["done"])

    def write(self, edits: Sequence[int], block: int, values: Mapping[str, np.ndarray]) -> None:
        """Write the values [len(edits), prompts of the block, ...] of some edits for one block of prompts, then mark them."""
        size = self.schedule.prompt_block
        prompts = slice(block * size, (block + 1) * size)
        try:
            for name, array in values.items():
                for row, edit in enumerate(edits):
                    self.arrays[name][edit, prompts] = array[row]
            for edit in edits:
                self.arrays["done"][edit, block] = True
        except OSError as error:
            raise SinkjaxError(
                f"cannot write to {self.path}: {error.strerror or error}; what is done is kept, the same command resumes"
            ) from error
        self.done[list(edits), block] = True

    def has(self, attributes: Mapping[str, Any]) -> bool:
        """Whether the store was made with these attributes."""
        return all(self.attributes.get(name) == value for name, value in _as_json(attributes).items())

    def dataset(self) -> xarray.Dataset:
        """The store as a dataset; values are read when they are used."""
        import xarray

        return xarray.open_zarr(self.path, chunks=None).drop_vars("done")


def exists(path: Path) -> bool:
    """Whether something lies at `path`. Errors: a path that cannot be looked up."""
    try:
        return path.exists()
    except OSError as error:
        raise SinkjaxError(f"cannot use {str(path)[:200]}: {error.strerror}") from None


def resume(path: Path, identity: Mapping[str, Any], but: tuple[str, str] | None = None) -> Store:
    """The store that an earlier call with this identity made.

    identity: what defines the numbers (model, prompts, edits, probe, versions, ...), as JSON. but: an entry that may differ.
    Errors: a path that is no store of a sweep, or the store of another one (each difference is named).
    """
    refuse_other(path, identity, but)
    return Store(path)


def refuse_other(path: Path, identity: Mapping[str, Any], but: tuple[str, str] | None = None) -> None:
    """Raise, naming each difference, unless `path` is a store of this identity. but: as for `resume`."""
    have, want = _identity_of(path), json.loads(json.dumps(identity))
    if but:
        for entry in (have, want):
            entry.get(but[0], {}).pop(but[1], None)
    differences = _differences(have, want)
    if differences:
        raise SinkjaxError(f"{path} holds another sweep ({'; '.join(differences)}); choose another output or delete it")


def create(
    path: Path,
    identity: Mapping[str, Any],
    schedule: Schedule,
    attributes: Mapping[str, Any],
    variables: Mapping[str, tuple[tuple[str, ...], tuple[int, ...], np.dtype]],
    fixed: Mapping[str, tuple[tuple[str, ...], np.ndarray]],
) -> Store:
    """A new, empty store, whole or not at all.

    variables: name -> (dims, shape, dtype) of what will be written; the first two dims are edit and prompt. fixed: name -> (dims,
    values), coordinates and whatever else is known beforehand. attributes: provenance, as JSON.
    Errors: no permission or no room; attributes that JSON does not have, or of a name that the store itself uses.
    """
    import zarr

    attributes = _as_json(attributes)
    scratch = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)
        group = zarr.open_group(scratch, mode="w", zarr_format=2)
        for name, (dims, shape, dtype) in variables.items():
            fill = np.nan if np.issubdtype(dtype, np.floating) else None  # readers take a fill value for "missing"
            chunks = (1, schedule.prompt_block, *shape[2:])
            group.create_array(name, shape=shape, chunks=chunks, dtype=dtype, fill_value=fill).attrs[DIMS] = list(dims)
        edits, prompts = next(iter(variables.values()))[1][:2]
        blocks = -(-prompts // schedule.prompt_block)
        done = group.create_array("done", shape=(edits, blocks), chunks=(1, 1), dtype=bool, fill_value=False)
        done.attrs[DIMS] = ["edit", "prompt_block"]
        for name, (dims, values) in fixed.items():
            array = group.create_array(name, shape=values.shape, chunks=values.shape, dtype=values.dtype, fill_value=None)
            array.attrs[DIMS] = list(dims)
            array[...] = values
        group.attrs.update({**attributes, IDENTITY: json.loads(json.dumps(identity)), SCHEDULE: schedule.to_json()})
        zarr.consolidate_metadata(scratch, zarr_format=2)
        scratch.rename(path)
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)
        reason = ": ".join(str(part) for part in (error.strerror or error, error.filename) if part)
        raise SinkjaxError(f"cannot make the store {path}: {reason}") from error
    return Store(path)


def _as_json(attributes: Mapping[str, Any]) -> dict[str, Any]:
    for name in (IDENTITY, SCHEDULE):
        if name in attributes:
            raise SinkjaxError(f"the attribute {name!r} is the store's own; choose another name")
    try:
        return json.loads(json.dumps(attributes, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise SinkjaxError(f"attributes must be JSON: {error}") from None


def _identity_of(path: Path) -> dict:
    try:
        return json.loads((path / ".zattrs").read_text())[IDENTITY]
    except (OSError, ValueError, KeyError, TypeError):
        raise SinkjaxError(f"{path} exists and is not the store of a sweep; choose another output") from None


def _differences(have: Any, want: Any, name: str = "") -> list[str]:
    """Where two identities differ, by dotted name."""
    if isinstance(have, dict) and isinstance(want, dict):
        return [
            entry
            for key in sorted(have.keys() | want.keys())
            for entry in _differences(have.get(key), want.get(key), f"{name}.{key}" if name else key)
        ]
    return [] if have == want else [f"{name} was {_short(have)}, now {_short(want)}"]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
