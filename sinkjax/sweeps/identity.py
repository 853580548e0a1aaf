"""What a store says of itself: which sweep it is of, on which machines it was computed, and whether its metadata are sound."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sinkjax.config_files.places import Place, read_bytes
from sinkjax.errors import SinkjaxError
from sinkjax.sweeps.chunks import faults, is_metadata

IDENTITY, SCHEDULE = "sweep", "schedule"  # attributes: what two runs must share for one to resume the other, and their calls
HARDWARE = "hardware"  # attribute: the machine that made a store; others that wrote to it have a file each in HARDWARE_FOLDER
HARDWARE_FOLDER = ".hardware"
OF_EARLIER = ("devices", "mesh")  # kept in the identity by earlier versions; with a mesh, calls were those of all its devices


def hardware(path: Place, attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The machines that wrote to a store of these attributes: the one that made it, then others."""
    made = attributes.get(IDENTITY, {})  # in which earlier versions kept them
    first = attributes.get(HARDWARE) or [{"devices": made.get("devices")}]
    return [*first, *(json.loads(read_bytes(file)) for file in sorted((path / HARDWARE_FOLDER).glob("*.json")))]


def devices_in_words(attributes: Mapping[str, Any]) -> str:
    """What the numbers of a dataset with these attributes were computed on."""
    machines = attributes.get(HARDWARE) or [attributes[IDENTITY]]
    return ", then ".join(dict.fromkeys(machine["devices"] for machine in machines))


def refuse_other(path: Place, identity: Mapping[str, Any], but: tuple[str, str] | None = None) -> None:
    """Raise, naming each difference, unless `path` is a store of this identity. but: as for `resume`."""
    have, want = _identity_of(path), json.loads(json.dumps(identity))
    if have.get("mesh"):
        raise of_earlier(path)
    for name in OF_EARLIER:
        have.pop(name, None)
    if but:
        for entry in (have, want):
            entry.get(but[0], {}).pop(but[1], None)
    if found := differences(have, want):
        raise SinkjaxError(f"{path} holds another sweep ({'; '.join(found)}); choose another output or delete it")


def described(found: Mapping[str, str]) -> str:
    """What is wrong with parts of a store, in words; "" for nothing."""
    shown = [f"{part} {fault}" for part, fault in found.items()]
    return "; ".join(shown[:3]) + (f"; and {len(shown) - 3} more" if len(shown) > 3 else "")


def check_metadata(path: Place) -> dict[str, str]:
    """What is wrong with the files with which a store was made: file -> fault. Errors: metadata that are missing or changed."""
    try:
        found = faults(path)
    except OSError as error:
        raise SinkjaxError(f"cannot read {path}: {error.strerror or error}") from None
    for file, fault in found.items():
        if is_metadata(file):
            raise damaged(path, f"{file} {fault}")
    return found


def damaged(path: Place, what: str) -> SinkjaxError:
    """The error for metadata with this fault."""
    return SinkjaxError(f"the store {path} is damaged ({what}); delete it and rerun the command that made it")


def of_earlier(path: Place) -> SinkjaxError:
    """The error for a store of which the calls cannot be repeated."""
    return SinkjaxError(f"{path} was planned by another version of sinkjax; choose another output or delete it")


def as_json(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as JSON gives them back. Errors: what it does not have; a name that the store itself uses."""
    for name in (IDENTITY, SCHEDULE, HARDWARE):
        if name in attributes:
            raise SinkjaxError(f"the attribute {name!r} is reserved for the store; choose another name")
    try:
        return json.loads(json.dumps(attributes, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise SinkjaxError(f"attributes must be JSON: {error}") from None


def _identity_of(path: Place) -> dict:
    check_metadata(path)
    try:
        return json.loads(read_bytes(path / ".zattrs"))[IDENTITY]
    except (OSError, ValueError, KeyError, TypeError):
        raise SinkjaxError(f"{path} exists and is not the store of a sweep; choose another output") from None


def differences(have: Any, want: Any, name: str = "") -> list[str]:
    """Where two identities differ, by dotted name."""
    if isinstance(have, dict) and isinstance(want, dict):
        return [
            entry
            for key in sorted(have.keys() | want.keys())
            for entry in differences(have.get(key), want.get(key), f"{name}.{key}" if name else key)
        ]
    return [] if have == want else [f"{name} was {_short(have)}, now {_short(want)}"]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
