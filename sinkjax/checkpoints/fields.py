"""Read the settings of a file key by key.

Values are checked, a missing key is reported by name, and a key that nobody read is an error.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sinkjax.config_files.checks import is_number, refuse
from sinkjax.errors import LONGEST, SinkjaxError, unknown

LARGEST = 2**31 - 1
GREATEST = 1e30
SHOWN = 20  # maximum unknown keys named in a message


@dataclass
class Fields:
    """The settings of one file (or of one table in it).

    values: key -> JSON value. where: the file's name in messages. defaults: value of an absent (or null) key, or a function of
    the settings that returns it; a key without a default is required. assumed: the defaults that were used, for provenance.
    ignored: keys that the user wants to ignore; a nested table's keys are prefixed by its name. in_table:
    whether the settings are a table in a file, where `assume` supplies nothing.
    """

    values: Mapping[str, Any]
    where: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    assumed: dict[str, Any] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    ignored: Collection[str] = ()
    in_table: bool = False

    def get(self, key: str) -> Any:
        """Return the value of a key, or its default; raise if it has neither."""
        self.read.add(key)
        value = self.values.get(key)
        if value is None:
            way = "write it into the file" if self.in_table else f"load(..., assume={{{key!r}: ...}}) supplies it"
            refuse(key not in self.defaults, f"{self.where} does not state {key!r}, which has no default; {way}")
            default = self.defaults[key]
            value = self.assumed[key] = default(self) if callable(default) else default
        return value

    def stated(self, key: str) -> bool:
        """Return whether the file itself sets the key."""
        return self.values.get(key) is not None

    def integer(self, key: str, low: int = 1, high: int = LARGEST) -> int:
        """Return an integer from `low` to `high`; some programs write 8 as 8.0."""
        value = self.get(key)
        value = int(value) if isinstance(value, float) and value.is_integer() else value
        self.require(type(value) is int and low <= value <= high, key, f"an integer from {low} to {high}")
        return int(value)

    def number(self, key: str, low: float | None = None) -> float:
        """Return a number of at least `low` (None: above 0) that is small enough for float32 arithmetic."""
        value = self.get(key)
        bound, least = ("above 0", math.ulp(0)) if low is None else (f"of at least {low:g}", low)
        self.require(is_number(value) and least <= value < GREATEST, key, f"a number {bound} and below {GREATEST:g}")
        return float(value)

    def optional_number(self, key: str, low: float | None = None) -> float | None:
        """Return a number as `number` does, or None if the file has none; if it omits the key, its default, if any."""
        self.read.add(key)
        omitted = key not in self.values and key in self.defaults
        return self.number(key, low) if omitted or self.stated(key) else None

    def flag(self, key: str) -> bool:
        value = self.get(key)
        self.require(isinstance(value, bool), key, "true or false")
        return bool(value)

    def choice(self, key: str, allowed: Collection[str], what: str) -> str:
        value = self.get(key)
        if not isinstance(value, str) or value not in allowed:
            raise unknown(what, value, allowed, f" (in {self.where})")
        return value

    def table(self, key: str) -> dict[str, Any]:
        """Return a nested table; an absent one is empty."""
        self.read.add(key)
        self.require(not self.stated(key) or isinstance(self.values[key], dict), key, "a table of settings")
        return dict(self.values.get(key) or {})

    def inner(self, key: str, defaults: Mapping[str, Any] | None = None, table: Mapping[str, Any] | None = None) -> Fields:
        """Return the settings of a nested table with its own defaults. table: its values if they are not the file's own."""
        values = self.table(key) if table is None else table
        return Fields(values, f"{key} of {self.where}", defaults or {}, self.assumed, ignored=self.ignored, in_table=True)

    def fixed(self, key: str, only: Any) -> None:
        """Raise unless the key is absent or has the only supported value."""
        self.read.add(key)
        self.require(not self.stated(key) or self.values[key] == only, key, f"{only!r}, the only value supported")

    def finish(
        self, inert: Iterable[str] = (), prefix: str = "", elsewhere: Collection[str] = (), here: str = "this file"
    ) -> None:
        """Raise for keys that were neither read nor are known to have no effect, and for ignored keys that were read.

        inert: keys without effect. prefix: prefix of a nested table's keys in `ignored`. elsewhere: keys that change numbers in
        files of other kinds. here: what this file describes, for an error about one of these.
        """
        for key in self.read:
            effective = prefix + key in self.ignored
            refuse(effective, f"{prefix + key!r} in {self.where} has an effect, so ignore_keys cannot leave it out")
        passed = {*inert, *self.ignored}
        odd = sorted(key for key in self.values if self.stated(key) and key not in self.read and prefix + key not in passed)
        for key in odd:
            other = f"unknown config key {prefix + key!r} in {self.where}: it changes numbers elsewhere, but {here} has none of"
            way = "correct what the file describes, or set the key to null if the model was trained without it"
            refuse(key in elsewhere, f"{other} its kind; {way}")
        if odd:
            near = {key: difflib.get_close_matches(key, self.read, n=1, cutoff=0.75) for key in odd[:SHOWN]}
            shown = [(prefix + key)[:LONGEST] for key in near]
            guesses = ["".join(f" (did you mean {guess!r}?)" for guess in found) for found in near.values()]
            named = ", ".join(f"{key!r}{guess}" for key, guess in zip(shown, guesses, strict=True))
            named += f" and {len(odd) - SHOWN} more" if len(odd) > SHOWN else ""
            keys, them = ("key", "it") if len(odd) == 1 else ("keys", "them")
            unread = f"unknown config {keys} {named} in {self.where}"
            raise SinkjaxError(f"{unread}: if no number depends on {them}, {let_pass(shown)}")

    def require(self, right: bool, key: str, wanted: str) -> None:
        """Raise the error for a value of the wrong kind unless it is right."""
        value = self.values[key] if self.stated(key) else self.assumed.get(key)
        refuse(not right, f"{key!r} in {self.where} must be {wanted}, not {_short(value)}")


def let_pass(keys: Collection[str]) -> str:
    """Describe the two ways to ignore keys deliberately, for an error."""
    them = "it" if len(keys) == 1 else "them"
    listed = ", ".join(map(repr, keys)) + "," * (len(keys) == 1)
    deliberately = f"load(..., ignore_keys=({listed})) leaves {them} out deliberately"
    return f"{deliberately}, and so does --ignore-keys {' '.join(keys)} on the command line"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
