"""YAML, JSON and typed configs: strict reading, and writing that reads back as an equal config.

A record inside a config is a mapping with its class's name under `type`, next to its fields.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml
from yaml._yaml import CParser
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from sinkjax.config_files.checks import check_keys, refuse
from sinkjax.errors import SinkjaxError, unknown

C = TypeVar("C")
TAG = "type"
# Metadata of a field that chooses a part of a study, its devices, or the words that show it: folders may differ
# in it.
CHOICE = {"choice": True}
# Metadata of a field that did not exist when the first results were stored.
LATER = {"later": True}
# Limits of a document: far more than any config needs, and small enough to read in a second.
MOST_BYTES, MOST_VALUES, MOST_KEYS, MOST_ALIASES, DEEPEST = 1_000_000, 20_000, 300, 100, 40
LARGEST = 2**63


class Loader(Composer, CParser, SafeConstructor, Resolver):
    """Bounded, safe YAML without tags or duplicate keys, which reads 1e-5 as a number, as in YAML 1.2.

    It is parsed by libyaml, in a tenth of the time. An alias counts as all the values that it refers to.
    """

    def __init__(self, text: str):
        for base in (Composer, SafeConstructor, Resolver):
            base.__init__(self)
        CParser.__init__(self, text)
        self.values = self.aliases = self.depth = 0
        self.sizes: dict[yaml.Node, int] = {}  # size of each complete node that an anchor may refer to

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()
        line = f" (line {event.start_mark.line + 1})"
        if isinstance(event, yaml.AliasEvent):
            named: Any = super().compose_node(parent, index)
            refuse(named not in self.sizes, f"the alias *{event.anchor} refers to a value that contains it{line}")
            self.aliases += 1
            self.count(self.sizes[named], line)
            return named
        refuse(event.tag is not None, f"the tag {event.tag!r} is not allowed{line}")
        before, self.depth = self.values, self.depth + 1
        self.count(1, line)
        node: Any = super().compose_node(parent, index)
        self.depth -= 1
        self.sizes[node] = self.values - before
        return node

    def count(self, values: int, line: str) -> None:
        """Count values that have been read; raise if a limit is exceeded."""
        self.values += values
        limits = {"values": (self.values, MOST_VALUES), "aliases": (self.aliases, MOST_ALIASES), "levels": (self.depth, DEEPEST)}
        for what, (number, most) in limits.items():
            refuse(number > most, f"more than {most} {what} are too many for a config{line}")

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        value = int(super().construct_yaml_int(node))
        refuse(abs(value) >= LARGEST, f"an integer has more than 64 bits (line {node.start_mark.line + 1})")
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        number, line = len(node.value), node.start_mark.line + 1
        refuse(number > MOST_KEYS, f"{number} keys in one mapping are more than {MOST_KEYS} (line {line})")
        keys: dict[str, yaml.Node] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                twice = keys.setdefault(key.value, key) is not key
                refuse(twice, f"the key {key.value!r} is written twice (line {key.start_mark.line + 1})")
        return super().construct_mapping(node, deep)


Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_yaml_int)  # type: ignore[type-var]
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


class Dumper(yaml.SafeDumper):
    """Safe YAML whose strings read back unchanged under both YAML 1.1 and 1.2.

    A string that looks like a number, a boolean or null is quoted. A non-ASCII line break is escaped, because readers fold it.
    """


def _text(dumper: Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if {*text} & {*"\x85\u2028\u2029"} else None)


Dumper.add_representer(str, _text)
# Besides those of PyYAML: `y` of YAML 1.1, exponents without a dot or a sign (`0E0`, also `Loader`) and `0o7` of 1.2.
Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"[yYnN]$"), list("yYnN"))
Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(0o[0-7]+|[0-9_]*(\.[0-9._]*)?([eE][-+]?[0-9]+)?)$"), list("-+.0123456789")
)


def dump(values: Mapping[str, Any]) -> str:
    """Write a mapping as a YAML document, in order."""
    return yaml.dump(values, Dumper=Dumper, sort_keys=False, allow_unicode=True)


def parse(text: str, what: str) -> dict[str, Any]:
    """Parse a YAML document as a mapping with names as keys.

    Errors: anything else, with the line of the first syntax error; tags; a duplicate key; a document beyond the limits.
    """
    refuse(len(text) > MOST_BYTES, f"{what} is longer than a config may be ({MOST_BYTES:,} characters)")
    try:
        values = Loader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        line = f" (line {error.problem_mark.line + 1})" if error.problem_mark else ""
        raise SinkjaxError(f"{what} is not valid YAML: {error.problem or error.context}{line}") from None
    except SinkjaxError as error:
        raise SinkjaxError(f"{what}: {error}") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise SinkjaxError(f"{what} is not valid YAML: {' '.join(str(error).split())}") from None
    named = isinstance(values, dict) and all(isinstance(key, str) for key in values)
    refuse(not named, f"{what} must hold keys and values, such as `prompts: 32`, not {describe(values)}")
    parsed: dict[str, Any] = values
    return parsed


def build(cls: type[C], values: Mapping[str, Any], what: str) -> C:
    """Build a config from its values. Errors: an unknown or missing key, a value of the wrong type, or an invalid value."""
    hints, known = get_type_hints(cls), {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    check_keys(values, known, what)
    for name, field in known.items():
        needed = field.default is field.default_factory is dataclasses.MISSING
        refuse(needed and name not in values, f"{what} lacks the key {name!r}")
    converted = {key: convert(value, hints[key], f"{what}: {key}") for key, value in values.items()}
    try:
        return cls(**converted)
    except SinkjaxError as error:
        raise SinkjaxError(f"{what}: {error}") from None


def read_whole(cls: type[C], values: Mapping[str, Any], text: str, what: str) -> C:
    """Build a config from a document made by `write`, which has every field except `LATER` ones and a final line break.

    Errors: see `build`; an incomplete document.
    """
    stated = [field.name for field in dataclasses.fields(cls) if not field.metadata.get("later")]  # type: ignore[arg-type]
    missing = [name for name in stated if name not in values]
    lacks = f"lacks {', '.join(missing)}" if missing else "breaks off in its last line"
    whole = "the config of a run states every field, so it is truncated or of an older version"
    refuse(bool(missing) or not text.endswith("\n"), f"{what} {lacks}: {whole}")
    return build(cls, values, what)


def typed(config: Any) -> None:
    """Raise if the value of a field does not have its declared type."""
    hints = get_type_hints(type(config))
    for name, value in fields(config).items():
        convert(value, hints[name], name)


def convert(value: Any, hint: Any, what: str) -> Any:
    """Check that `value` has the type `hint`; the only conversions are from lists to tuples and from integers to floats."""
    huge = isinstance(value, int) and abs(value) >= LARGEST
    for option in options(hint) if not huge else ():
        if option is Any or (get_origin(option) is Literal and value in get_args(option) and not isinstance(value, bool)):
            return value
        if option is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if option in (int, str, bool, type(None)) and type(value) is option:
            return value
        if get_origin(option) is tuple and isinstance(value, list | tuple):
            hints = get_args(option)[:1] * len(value) if ... in get_args(option) else get_args(option)
            refuse(len(value) != len(hints), f"{what} must be a list of {len(hints)}, not of {len(value)}")
            return tuple(convert(entry, hints[index], f"{what}[{index}]") for index, entry in enumerate(value))
        if get_origin(option) is Mapping and isinstance(value, Mapping):
            return value
    if isinstance(value, Mapping) and (kinds := records(hint)):
        name = value.get(TAG)
        if not isinstance(name, str) or name not in kinds:
            raise SinkjaxError(f"{what}: {unknown(TAG, name, kinds)}")
        return build(kinds[name], {key: entry for key, entry in value.items() if key != TAG}, what)
    raise SinkjaxError(f"{what} must be {allowed(hint)}, not {describe(value)}")


def records(hint: Any) -> dict[str, type]:
    """Map names to classes of all records that a hint allows; for an abstract class, the subclasses in its package."""
    classes: list[type] = []
    for option in options(hint):
        derived = [option] if inspect.isclass(option) else []
        for cls in derived:  # grows during iteration
            package = option.__module__.rpartition(".")[0]
            derived += [heir for heir in cls.__subclasses__() if heir.__module__.rpartition(".")[0] == package]
        classes += [cls for cls in derived if dataclasses.is_dataclass(cls) and not inspect.isabstract(cls)]
    return {cls.__name__: cls for cls in classes}


def options(hint: Any) -> tuple[Any, ...]:
    """Return the alternatives of a union, or the single type."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def allowed(hint: Any) -> str:
    """Describe a type."""
    words = {int: "an integer", float: "a number", str: "text", bool: "true or false", type(None): "null", Path: "a path"}
    parts = []
    for option in options(hint):
        if get_origin(option) is Literal:
            parts += [repr(choice) for choice in get_args(option)]
        elif get_origin(option) is tuple:
            parts.append(f"a list, each entry {allowed(get_args(option)[0])}")
        elif kinds := records(option):
            parts.append(f"a record ({TAG}: {', '.join(kinds)})")
        else:
            parts.append(words.get(option, "a mapping"))
    return " or ".join(parts)


def describe(value: Any) -> str:
    """Describe a wrong value."""
    kinds = {dict: "a mapping", list: "a list", tuple: "a list", type(None): "null"}
    if type(value) in kinds:
        return kinds[type(value)]
    if isinstance(value, int) and abs(value) >= LARGEST:
        return "one of more than 64 bits"
    return f"the text {value[:40]!r}" if isinstance(value, str) else str(value)[:40]


def write(name: str, config: Any, key: str = "experiment") -> str:
    """Write the YAML document of a resolved config: the study's name, under `key`, and every field."""
    return dump(plain({key: name, **fields(config)}))


def differences(old: Any, new: Any) -> list[str]:
    """Describe the differences between two configs of one type, except fields that choose a part of the study."""
    was, now = fields(old), fields(new)
    return [f"{name} was {was[name]!r}, now {now[name]!r}" for name in decides(new) if plain(was[name]) != plain(now[name])]


def decides(config: Any) -> list[str]:
    """Return the names of a config's fields that must be the same throughout a folder."""
    return [field.name for field in dataclasses.fields(config) if not field.metadata.get("choice")]


def decisive(config: Any) -> dict[str, Any]:
    """Return every field of a config by name, with default values for fields that may differ between folders."""
    choices = {field.name: _default(field) for field in dataclasses.fields(config) if field.metadata.get("choice")}
    return {**fields(config), **choices}


def fields(config: Any) -> dict[str, Any]:
    """Return every field of a config by name, with unchanged values."""
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}


def stated(record: Any) -> dict[str, Any]:
    """Return the fields that identify a result: all except later ones at their default, so that old results stay valid."""
    return {
        field.name: getattr(record, field.name)
        for field in dataclasses.fields(record)
        if not (field.metadata.get("later") and getattr(record, field.name) == _default(field))
    }


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def plain(value: Any) -> Any:
    """Convert to YAML and JSON types recursively: tuples to lists, mappings to dicts, and records to tagged dicts."""
    if dataclasses.is_dataclass(value):
        return {TAG: type(value).__name__, **plain(fields(value))}
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    return [plain(entry) for entry in value] if isinstance(value, list | tuple) else value
