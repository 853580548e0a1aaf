"""The store of a sweep: a zarr group that is filled chunk by chunk and survives a kill at any moment.

It is made whole (shapes, labels, provenance, the chunk plan, a manifest of all that) in a scratch folder and renamed into place,
by one process; any number may fill it, each call being claimed by one of them. A chunk's values are written first, its mark in
`done` after them, so a mark vouches for its values: it holds their checksums, and whatever has no mark, or lacks what its mark
says, is computed again. One zarr chunk holds one edit and one block of prompts, so no two calls ever write the same file. Zarr
format 2: its fixed-width text is part of the specification, and every reader has it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkjax.errors import SinkjaxError
from sinkjax.progress import say
from sinkjax.sweeps.chunks import CHANGED, METADATA, MISSING, Chunks, checksum, codecs, faults, is_metadata, put, seal
from sinkjax.sweeps.claims import Claims, making
from sinkjax.sweeps.schedule import Chunk, Schedule

if TYPE_CHECKING:
    import xarray

IDENTITY, SCHEDULE = "sweep", "schedule"  # attributes: what two runs must share for one to resume the other, and their calls
HARDWARE = "hardware"  # attribute: the machine that made a store; others that wrote to it have a file each in HARDWARE_FOLDER
DIMS = "_ARRAY_DIMENSIONS"  # where xarray looks for the names of axes
HARDWARE_FOLDER = ".hardware"
OF_EARLIER = ("devices", "mesh")  # kept in the identity by earlier versions; with a mesh, calls were those of all its devices
DONE = "done"  # [edit, prompt_block, variable]: the checksum of each chunk, 0 where it is not written


class Store:
    """An open store, all of it checked: `done` [edit, prompt_block] says which chunks are complete, `write` adds some.

    damaged: (edit, prompt_block) -> the variable and what is wrong with it, for chunks that were complete. lost: file -> what is
    wrong with it, of arrays that are known before the sweep.
    Errors: no store of a sweep, or metadata that are missing or changed.
    """

    def __init__(self, path: Path):
        self.path, self.lost = path, check_metadata(path)
        try:
            files = json.loads((path / METADATA).read_bytes())["metadata"]
            self.attributes: dict[str, Any] = files[".zattrs"]
            names = sorted(name.removesuffix("/.zarray") for name in files if name.endswith("/.zarray"))
            self.arrays = {name: Chunks.of(path / name, files[f"{name}/.zarray"]) for name in names}
            swept = [name for name in names if files[f"{name}/.zattrs"][DIMS][:2] == ["edit", "prompt"]]
            self.swept, self.marks = {name: self.arrays[name] for name in swept}, self.arrays[DONE]
            E, blocks, *columns = self.marks.shape
            absent = next((name for name in names if not (path / name / ".zarray").is_file()), None)
            if absent or columns not in ([], [len(swept)]):
                raise ValueError(f"{absent}/.zarray {MISSING}" if absent else f"{DONE} has marks of {columns} variables")
        except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise _damaged(path, f"its metadata are incomplete: {_words(error)}") from None
        try:
            self.schedule = Schedule.from_json(self.attributes[SCHEDULE])
        except (KeyError, TypeError, ValueError):
            raise _of_earlier(path) from None
        self.done = np.zeros((E, blocks), bool)
        self.damaged: dict[tuple[int, int], tuple[str, str]] = {}
        for block in range(blocks):
            self.look(range(E), block)

    def look(self, edits: Sequence[int], block: int) -> None:
        """Read from the disk which of these chunks are complete."""
        for edit in edits:
            if self.done[edit, block]:
                continue
            try:
                marks = np.ravel(self.marks.read((edit, block)))
            except FileNotFoundError:
                continue
            except (OSError, ValueError):
                self.damaged[edit, block] = DONE, CHANGED
                continue
            if not marks.all():
                continue
            expected = marks.tolist() if self.marks.dtype != bool else [None] * len(self.swept)
            every = zip(self.swept.items(), expected, strict=True)
            found = ((name, array.fault((edit, block), value)) for (name, array), value in every)
            if fault := next(filter(lambda entry: entry[1], found), None):
                self.damaged[edit, block] = fault
            else:
                self.damaged.pop((edit, block), None)
                self.done[edit, block] = True

    def write(self, edits: Sequence[int], block: int, values: Mapping[str, np.ndarray]) -> None:
        """Write the values [len(edits), prompts of the block, ...] of those edits that lack them, and then their marks."""
        try:
            for row, edit in enumerate(edits):
                if not self.done[edit, block]:
                    sums = [array.write((edit, block), values[name][row : row + 1]) for name, array in self.swept.items()]
                    marks = np.array(sums if self.marks.dtype != bool else True, self.marks.dtype)
                    self.marks.write((edit, block), marks.reshape(self.marks.size))
                    self.done[edit, block] = True
                    self.damaged.pop((edit, block), None)
        except OSError as error:
            raise SinkjaxError(
                f"cannot write to {self.path}: {error.strerror or error}; what is done is kept, the same command resumes"
            ) from error

    def left(self) -> list[tuple[int, Chunk]]:
        """The calls that are not done: (block of prompts, chunk of edits)."""
        return [
            (block, chunk)
            for block in range(self.done.shape[1])
            for chunk in self.schedule.chunks
            if not self.done[list(chunk.edits), block].all()
        ]

    def claims(self) -> Claims:
        """Who computes which of its calls."""
        return Claims(self.path / ".claims")

    def restore(self, fixed: Mapping[str, tuple[tuple[str, ...], np.ndarray]]) -> None:
        """Write again those of the arrays known beforehand that were lost. fixed: as for `create`. Errors: no room."""
        try:
            for name in {file.partition("/")[0] for file in self.lost} & fixed.keys():
                self.arrays[name].write((), fixed[name][1])
        except OSError as error:
            raise SinkjaxError(f"cannot write to {self.path}: {error.strerror or error}") from error
        self.lost = check_metadata(self.path)

    def has(self, attributes: Mapping[str, Any]) -> bool:
        """Whether the store was made with these attributes."""
        return all(self.attributes.get(name) == value for name, value in _as_json(attributes).items())

    def damage(self) -> str:
        """What is wrong with the store, in words; "" for nothing."""
        found = dict(self.lost)
        for (edit, block), (name, fault) in sorted(self.damaged.items()):
            prompts = f", prompt block {block}," if self.done.shape[1] > 1 else ""
            found[f"{name} of edit {self._label(edit)}{prompts}"] = fault
        return described(found)

    def dataset(self) -> xarray.Dataset:
        """The store as a dataset; values are read when they are used."""
        import xarray

        data = xarray.open_zarr(self.path, chunks=None, consolidated=True).drop_vars(DONE)
        return data.assign_attrs({HARDWARE: hardware(self.path, self.attributes)})

    def join(self, facts: Mapping[str, Any], strict: bool) -> None:
        """Record the machine that goes on with a store, and say so if it is not the one that made it.

        strict: whether it is refused instead. Errors: that; no permission or no room.
        """
        first, *others = hardware(self.path, self.attributes)
        facts = json.loads(json.dumps(facts))
        differences = _differences(first, {name: facts.get(name) for name in first})  # earlier versions kept less
        if strict and (differences or others):
            found = "; ".join(differences or _differences(first, others[0]))
            raise SinkjaxError(
                f"{self.path} was computed on other hardware ({found}), and strict asks for the same; choose another output, or"
                " resume without it"
            )
        if differences and facts not in others:
            say(
                f"{self.path} was begun on other hardware ({'; '.join(differences)}): what is computed here is equal to rounding,"
                " not bit for bit"
            )
            content = json.dumps(facts).encode()
            try:
                (self.path / HARDWARE_FOLDER).mkdir(exist_ok=True)
                put(self.path / HARDWARE_FOLDER / f"{checksum(content):08x}.json", content)
            except OSError as error:
                raise SinkjaxError(f"cannot write to {self.path}: {error.strerror or error}") from error

    def _label(self, edit: int) -> str:
        try:
            return f"{edit} ({self.arrays['edit'].read(())[edit]})"
        except (OSError, ValueError, KeyError):
            return str(edit)


def hardware(path: Path, attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The machines that wrote to a store of these attributes: the one that made it, then others."""
    made = attributes.get(IDENTITY, {})  # in which earlier versions kept them
    first = attributes.get(HARDWARE) or [{"devices": made.get("devices")}]
    return [*first, *(json.loads(file.read_bytes()) for file in sorted((path / HARDWARE_FOLDER).glob("*.json")))]


def devices_in_words(attributes: Mapping[str, Any]) -> str:
    """What the numbers of a dataset with these attributes were computed on."""
    machines = attributes.get(HARDWARE) or [attributes[IDENTITY]]
    return ", then ".join(dict.fromkeys(machine["devices"] for machine in machines))


def exists(path: Path) -> bool:
    """Whether something lies at `path`. Errors: a path that cannot be looked up."""
    try:
        return path.exists()
    except OSError as error:
        raise SinkjaxError(f"cannot use {str(path)[:200]}: {error.strerror}") from None


def resume(path: Path, identity: Mapping[str, Any], but: tuple[str, str] | None = None) -> Store:
    """The store that an earlier call with this identity made.

    identity: what defines the numbers (model, prompts, edits, probe, versions, ...), as JSON. but: an entry that may differ.
    Errors: a path that is no store of a sweep, or the store of another one (each difference is named); metadata that are damaged.
    """
    refuse_other(path, identity, but)
    return Store(path)


def refuse_other(path: Path, identity: Mapping[str, Any], but: tuple[str, str] | None = None) -> None:
    """Raise, naming each difference, unless `path` is a store of this identity. but: as for `resume`."""
    have, want = _identity_of(path), json.loads(json.dumps(identity))
    if have.get("mesh"):
        raise _of_earlier(path)
    for name in OF_EARLIER:
        have.pop(name, None)
    if but:
        for entry in (have, want):
            entry.get(but[0], {}).pop(but[1], None)
    differences = _differences(have, want)
    if differences:
        raise SinkjaxError(f"{path} holds another sweep ({'; '.join(differences)}); choose another output or delete it")


def create(
    path: Path,
    identity: Mapping[str, Any],
    facts: Mapping[str, Any],
    schedule: Schedule,
    attributes: Mapping[str, Any],
    variables: Mapping[str, tuple[tuple[str, ...], tuple[int, ...], np.dtype]],
    fixed: Mapping[str, tuple[tuple[str, ...], np.ndarray]],
) -> Store:
    """A new, empty store, whole or not at all; or that which another process was faster to make, if it is of this sweep.

    variables: name -> (dims, shape, dtype) of what will be written; the first two dims are edit and prompt. fixed: name -> (dims,
    values), coordinates and whatever else is known beforehand. facts: of the machine. attributes: provenance, as JSON.
    Errors: no permission or no room; attributes that JSON does not have, or of a name that the store itself uses; the store of
    another sweep, made meanwhile.
    """
    import zarr

    attributes = _as_json(attributes)
    with making(path) as scratch:
        if scratch is not None:
            group = zarr.open_group(scratch, mode="w", zarr_format=2)
            for name, (dims, shape, dtype) in variables.items():
                fill = np.nan if np.issubdtype(dtype, np.floating) else None  # readers take a fill value for "missing"
                size = (1, schedule.prompt_block, *shape[2:])
                array = group.create_array(name, shape=shape, chunks=size, dtype=dtype, fill_value=fill, **codecs())
                array.attrs[DIMS] = list(dims)
            edits, prompts = next(iter(variables.values()))[1][:2]
            blocks, count = -(-prompts // schedule.prompt_block), len(variables)
            done = group.create_array(
                DONE, shape=(edits, blocks, count), chunks=(1, 1, count), dtype="uint32", fill_value=None, **codecs()
            )
            done.attrs[DIMS] = ["edit", "prompt_block", "variable"]
            for name, (dims, values) in fixed.items():
                array = group.create_array(
                    name, shape=values.shape, chunks=values.shape, dtype=values.dtype, fill_value=None, **codecs()
                )
                array.attrs[DIMS] = list(dims)
                array[...] = values
            own = {IDENTITY: identity, HARDWARE: [facts], SCHEDULE: schedule.to_json()}
            group.attrs.update(attributes | json.loads(json.dumps(own)))
            zarr.consolidate_metadata(scratch, zarr_format=2)
            seal(scratch)
    return resume(path, identity)


def described(found: Mapping[str, str]) -> str:
    """What is wrong with parts of a store, in words; "" for nothing."""
    shown = [f"{part} {fault}" for part, fault in found.items()]
    return "; ".join(shown[:3]) + (f"; and {len(shown) - 3} more" if len(shown) > 3 else "")


def check_metadata(path: Path) -> dict[str, str]:
    """What is wrong with the files with which a store was made: file -> fault. Errors: metadata that are missing or changed."""
    try:
        found = faults(path)
    except OSError as error:
        raise SinkjaxError(f"cannot read {path}: {error.strerror or error}") from None
    for file, fault in found.items():
        if is_metadata(file):
            raise _damaged(path, f"{file} {fault}")
    return found


def _words(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())[:120]


def _damaged(path: Path, what: str) -> SinkjaxError:
    return SinkjaxError(f"the store {path} is damaged ({what}); delete it, and the command that made it makes it again")


def _of_earlier(path: Path) -> SinkjaxError:
    return SinkjaxError(f"{path} was planned by another version of sinkjax; choose another output or delete it")


def _as_json(attributes: Mapping[str, Any]) -> dict[str, Any]:
    for name in (IDENTITY, SCHEDULE, HARDWARE):
        if name in attributes:
            raise SinkjaxError(f"the attribute {name!r} is the store's own; choose another name")
    try:
        return json.loads(json.dumps(attributes, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise SinkjaxError(f"attributes must be JSON: {error}") from None


def _identity_of(path: Path) -> dict:
    check_metadata(path)
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
