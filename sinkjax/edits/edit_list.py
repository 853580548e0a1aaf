"""Edits written in YAML: constructors by name, grids, and positions and layers as Python would write them.

    edits:
      - compose: []                                       # no edit
      - mask_key: {key: 0}                                # every layer and head
      - mask_key: {key: 0, layers: [0, 1, 2]}             # one edit in three layers; "0:3" means the same
        label: early mask                                 # instead of the label made from the arguments
      - mask_key: {key: 0, layers: {each: "0:30"}}        # thirty edits, one for each layer
      - add_logit: {key: 0, value: {each: [-4, 4]}, layers: {each: [0, 5]}}      # a grid of four
      - edit: {site: resid, op: scale, value: 0, queries: 0, layers: 11}         # the primitive
      - compose: [{mask_key: {key: 0, layers: 0}}, {drop_mlp: {position: 1, layers: 11}}]

A list or slice is a single selector; only `each` makes several edits, in the order of the arguments.
"""

from __future__ import annotations

import inspect
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from sinkjax.config_files.checks import refuse
from sinkjax.edits import named
from sinkjax.edits.edit import Edit, compose, edit
from sinkjax.errors import LONGEST, SinkjaxError, one_of

CONSTRUCTORS: dict[str, Callable[..., Edit]] = {"edit": edit} | {name: getattr(named, name) for name in named.__all__}
SELECTORS = ("layers", "heads", "kv_heads", "queries", "keys", "dims", "distances", "key", "position", "rows", "cols")
NUMBERS = ("value", "factor")
EACH, LABEL, COMPOSE = "each", "label", "compose"
SLICE = re.compile(r"(\d{,18}):(\d{,18})(?::([1-9]\d{,17}))?")
INFINITY = re.compile(r"[-+]?\.?(?:inf|Inf|INF|infinity)")  # .inf is how YAML writes it, inf how Python and JSON do
MOST_EDITS = 100_000


def read_edits(entries: Sequence[Mapping[str, object]]) -> list[Edit]:
    """Read a YAML list of edits. Errors: an unknown constructor or argument, an invalid value, or a duplicate label."""
    refuse(not entries, "edits is empty: list at least one, e.g. - mask_key: {key: 0}")
    edits: dict[str, Edit] = {}
    for number, entry in enumerate(entries):
        try:
            expanded = list(_expand(entry))
        except SinkjaxError as error:
            raise SinkjaxError(f"edits[{number}]: {error}") from None
        for made in expanded:
            refuse(made.label in edits, f"two edits have the label {made.label!r}; give each its own label")
            edits[made.label] = made
    return [*edits.values()]


def _expand(entry: object) -> Iterator[Edit]:
    """Expand one entry into its edits: one, or a grid."""
    if not isinstance(entry, Mapping):
        raise SinkjaxError(f"an edit is written as a constructor and its arguments, e.g. mask_key: {{key: 0}}, not {entry!r}")
    label = entry.get(LABEL)
    names = [name for name in entry if name != LABEL]
    if len(names) != 1 or not (label is None or isinstance(label, str)):
        raise SinkjaxError(f"an entry has one constructor and optionally a label, not {', '.join(map(str, entry)) or 'nothing'}")
    edits = list(_compositions(entry[COMPOSE]) if names[0] == COMPOSE else _calls(names[0], entry[names[0]]))
    refuse(label is not None and len(edits) != 1, f"the label {label!r} cannot name {len(edits)} edits")
    yield from (made if label is None else made.named(label) for made in edits)


def _compositions(parts: object) -> Iterator[Edit]:
    """Every composition of one edit from each part."""
    if not isinstance(parts, list | tuple):
        raise SinkjaxError(f"compose takes a list of edits, not {parts!r}")
    choices: list[list[Edit]] = []
    for part in parts:
        choices.append(list(_expand(part)))
        _refuse_many("compose", choices)
    for combination in itertools.product(*choices):
        yield compose(*combination)


def _calls(name: str, arguments: object) -> Iterator[Edit]:
    """Call a constructor with every combination of the values that `each` lists."""
    one_of("constructor", name, (*CONSTRUCTORS, COMPOSE))
    make = CONSTRUCTORS[name]
    parameters = inspect.signature(make).parameters
    if not isinstance(arguments, Mapping):
        raise SinkjaxError(f"{name} takes arguments by name, e.g. {name}: {{{next(iter(parameters))}: 0}}, not {arguments!r}")
    for argument in arguments:
        one_of(f"argument of {name}", argument, parameters)
    missing = [key for key, entry in parameters.items() if entry.default is entry.empty and key not in arguments]
    refuse(bool(missing), f"{name} needs {', '.join(missing)}")
    choices = [_choices(argument, value) for argument, value in arguments.items()]
    _refuse_many(name, choices)
    for combination in itertools.product(*choices):
        try:
            yield make(**dict(zip(arguments, combination, strict=True)))
        except (TypeError, ValueError) as error:
            raise SinkjaxError(f"{name}: {error}") from None


def _refuse_many(name: str, choices: Sequence[Sequence[object]]) -> None:
    count = math.prod(map(len, choices))
    refuse(count > MOST_EDITS, f"{name} is a grid of {count} edits, more than {MOST_EDITS}")


def _choices(argument: str, value: object) -> Sequence[object]:
    """List the values that an argument takes in turn."""
    if not isinstance(value, Mapping):
        return [_selector(argument, value)]
    given = ", ".join(map(str, value)) or "nothing"
    refuse(set(value) != {EACH}, f"{argument} is a value or {{each: [...]}}, not a mapping of {given}")
    several = _selector(argument, value[EACH])
    if isinstance(several, slice) and several.stop is not None:
        return range(several.start or 0, several.stop, several.step or 1)
    if not isinstance(several, list | tuple) or not several:
        raise SinkjaxError(f'each in {argument} takes a list or a slice with an end, such as "0:30", not {value[EACH]!r}')
    return [_selector(argument, entry) for entry in several]


def _selector(argument: str, value: object) -> object:
    """Parse a slice (for a selector) or an infinity (for a number) from text; return any other value unchanged."""
    if not isinstance(value, str):
        return value
    if argument in NUMBERS:
        refuse(not INFINITY.fullmatch(value), f"{argument} {value!r} is text, not a number; write -.inf for minus infinity")
        return float(value.replace(".", ""))
    if argument not in SELECTORS:
        return value
    match = SLICE.fullmatch(value)
    if match is None:
        raise SinkjaxError(f'{argument} {value[:LONGEST]!r} is neither a number, a list of numbers nor a slice such as "0:30"')
    return slice(*(int(end) if end else None for end in match.groups()))
