"""The facts that a store states about itself: its sweep, and the machines that computed it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sinkjax.config_files.places import Place, read_bytes
from sinkjax.errors import SinkjaxError

IDENTITY, SCHEDULE = "sweep", "schedule"  # attributes: what two runs must share for one to resume the other, and their calls
HARDWARE = "hardware"  # attribute: the machine that made a store; others that wrote to it have a file each in HARDWARE_FOLDER
HARDWARE_FOLDER = ".hardware"
UNKNOWN = "devices whose record is damaged"
OF_EARLIER = ("devices", "mesh")  # kept in the identity by earlier versions
RECORDED = ("jax", "jaxlib")  # versions that are a fact of the machine, and that earlier versions kept in the identity


def hardware(path: Place, attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The machines that wrote to a store of these attributes: the one that made it, then others."""
    made = attributes.get(IDENTITY, {})  # in which earlier versions kept them
    first = attributes.get(HARDWARE) or [{"devices": made.get("devices")}]
    return [*first, *map(_machine, sorted((path / HARDWARE_FOLDER).glob("*.json")))]


def _machine(file: Place) -> dict[str, Any]:
    try:
        return {"devices": UNKNOWN} | json.loads(read_bytes(file))
    except (OSError, ValueError, TypeError):
        return {"devices": UNKNOWN}


def devices_in_words(attributes: Mapping[str, Any]) -> str:
    """What the numbers of a dataset with these attributes were computed on."""
    machines = attributes.get(HARDWARE) or [attributes[IDENTITY]]
    return ", then ".join(dict.fromkeys(machine["devices"] for machine in machines))


def versions_in_words(attributes: Mapping[str, Any]) -> str:
    """The versions of packages behind a dataset with these attributes."""
    first = (attributes.get(HARDWARE) or [{}])[0]
    versions = attributes[IDENTITY]["versions"] | {name: first[name] for name in RECORDED if name in first}
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def refuse_other(path: Place, have: Mapping[str, Any], want: Mapping[str, Any], but: tuple[str, str] | None = None) -> None:
    """Raise, naming each difference, unless `path`, whose identity is `have`, has the identity `want`. but: may differ."""
    have, want = (json.loads(json.dumps({**identity, **dict.fromkeys(OF_EARLIER)})) for identity in (have, want))
    for section, name in (*(("versions", name) for name in RECORDED), *([but] if but else [])):
        for entry in (have, want):
            if isinstance(entry.get(section), dict):
                entry[section].pop(name, None)
    if found := differences(have, want):
        raise SinkjaxError(f"{path} holds another sweep ({'; '.join(found)}); choose another output or delete it")


def described(found: Mapping[str, str]) -> str:
    """What is wrong with parts of a store, in words; "" for nothing."""
    shown = [f"{part} {fault}" for part, fault in found.items()]
    return "; ".join(shown[:3]) + (f"; and {len(shown) - 3} more" if len(shown) > 3 else "")


def of_earlier(path: Place) -> SinkjaxError:
    """The error for a store that this version cannot read."""
    return SinkjaxError(f"{path} was made by another version of sinkjax; choose another output or delete it")


def as_json(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as JSON gives them back. Errors: what it does not have; a name that the store itself uses."""
    for name in (IDENTITY, SCHEDULE, HARDWARE):
        if name in attributes:
            raise SinkjaxError(f"the attribute {name!r} is reserved for the store; choose another name")
    try:
        return json.loads(json.dumps(attributes, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise SinkjaxError(f"attributes must be JSON: {error}") from None


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
