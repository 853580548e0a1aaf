"""The settings of a study: the dataclass that its config file and its command line fill, and what of it is refused."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import field, make_dataclass
from typing import TYPE_CHECKING, Annotated, get_type_hints

import tyro

from sinkjax.config_files.checks import MIN_QUERIES, at_least, refuse, share
from sinkjax.errors import SinkjaxError
from sinkjax.studies.declaration import SHARED, Study, base_config, common_settings, stated
from sinkjax.studies.grids import At
from sinkjax.studies.scope import Contrast, Measure
from sinkjax.studies.words import Field, Word, as_tuple

if TYPE_CHECKING:
    from sinkjax.studies.config import Settings, StudyConfig

NAMED = re.compile(r"\{(\w+)\}")  # a setting in a text


@functools.cache
def config_type(study: Study) -> type:
    """The dataclass of a study's settings.

    Args:
        study: The study.

    Returns:
        A frozen dataclass over `StudyConfig`, or over its trainings' config: the shared settings that the study's words name,
        then its own.
    """
    base = base_config(study)
    named = {one.name for one in study.words if isinstance(one, Field)}
    named |= {"controls", "control_prompts"} if study.controls else set()
    named |= {"control_prompts"} if study.known else set()
    judged = any(isinstance(claim.contrast, Contrast) for claim in study.claims.values())
    named |= {"twin", "control_prompts"} if judged and not study.trainings else set()
    named |= {"map_layers"} if any(word.word == "maps" for word in study.figures) else set()
    found = {name: entry for name, entry in SHARED.items() if name in named} | stated(study)
    fields = []
    for name, entry in found.items():
        old = base.__dataclass_fields__.get(name)
        shared = SHARED.get(name)
        kind = old.type if old else _type(entry.value, f"{study.name}: {name}", (shared or entry).value)
        help_text = entry.help or (shared.help if shared else "")
        hint: object = Annotated[kind, tyro.conf.arg(help=help_text)] if help_text and old is None else kind
        fields.append((name, get_type_hints(base, include_extras=True)[name] if old else hint, field(default=entry.value)))
    own = [name for name in found if name not in common_settings(study)]

    def check(self: StudyConfig) -> None:
        base.__post_init__(self)
        for name in own:
            value = getattr(self, name)
            if isinstance(value, int) and not isinstance(value, bool):
                at_least(self, **{name: 1 if name in ("controls", "control_prompts") else 0})
            if isinstance(value, tuple):
                _check_list(name, value, filled=bool(found[name].value))
        if "eps" in own:
            share(self, "eps")
        if not study.trainings:
            _check_positions(study, self)
            _check_choices(study, self)

    title = filled(study.title or study.name, {name: entry.value for name, entry in stated(study).items()})
    namespace = {"__post_init__": check, "__doc__": " ".join(title.split()), "__module__": __name__}
    name = "".join(part.capitalize() for part in study.name.replace("/", "-").split("-"))
    return make_dataclass(name, fields, bases=(base,), namespace=namespace, frozen=True, kw_only=True)


def _check_list(name: str, value: tuple[object, ...], filled: bool) -> None:
    """Refuse a list that is empty but must not be, or that has negative layers, positions or counts."""
    if filled and not value:
        raise SinkjaxError(f"{name} is empty")
    for entry in value:
        if isinstance(entry, int) and entry < 0:
            raise SinkjaxError(f"{name} has {entry}; layers, positions and counts start at 0")


def _check_positions(study: Study, config: Settings) -> None:
    """Refuse a position that prompts of the config's length do not have, or a key that too few of their queries see."""
    length = config.length
    for measure in (word for word in study.words if isinstance(word, Measure)):
        seen = measure.meaning.facts.get("seen", ())
        for argument in ("key", "position"):
            if isinstance(written := measure.given.get(argument), str):
                raise SinkjaxError(f"{argument} of {measure} is a position, not {written!r}")
            for name, place in _integers(study, config, measure.given.get(argument)):
                refuse(place >= length, f"{name}: position {place} of {measure} is beyond prompts of {length} tokens")
                if argument in seen and place + MIN_QUERIES > length:
                    raise SinkjaxError(
                        f"{name}: key {place} of {measure} is seen by fewer than {MIN_QUERIES} of {length} queries"
                    )


def _check_choices(study: Study, config: Settings) -> None:
    """Refuse a value that is fixed along an axis of a grid and is not one of its values."""
    for chosen in (word for word in study.words if isinstance(word, At)):
        for axis, value in (chosen.given["fixed"] or {}).items():
            along = study.grids[chosen.given["grid"]].given["over"] or {}
            allowed = _value(config, along.get(axis))
            if isinstance(value, Field) and isinstance(allowed, tuple) and _value(config, value) not in allowed:
                listed = ", ".join(map(str, allowed))
                raise SinkjaxError(f"{value.name} is {_value(config, value)}, but must be one of {along[axis]}: {listed}")


def _integers(study: Study, config: Settings, entry: object) -> list[tuple[str, int]]:
    """The integers that an argument of a measure takes, each with the name of its setting."""
    plus = entry.plus if isinstance(entry, Field) else 0
    if isinstance(entry, Field):
        over = [grid.given["over"] or {} for grid in study.grids.values()]
        entry = next((axes_of[entry.name] for axes_of in over if entry.name in axes_of), Field(entry.name))
    name = entry.name if isinstance(entry, Field) else "position"
    found = as_tuple(_value(config, entry))
    return [(name, one + plus) for one in found if isinstance(one, int) and not isinstance(one, bool)]


def _value(config: Settings, entry: object) -> object:
    """A plain value, or the setting that a field names; None for a number found later."""
    if isinstance(entry, Field):
        found = getattr(config, entry.name, None)
        return found + entry.plus if isinstance(found, int) else found
    return None if isinstance(entry, Word) else entry


def filled(text: str, values: Mapping[str, object]) -> str:
    """A text with settings in place of their names in braces.

    Args:
        text: A text with `{key}` for the setting `key`.
        values: Name -> value; other names stay in braces.

    Returns:
        The text.
    """

    def said(found: re.Match[str]) -> str:
        value = values.get(found[1], found[0])
        return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)

    return NAMED.sub(said, text)


def _type(value: object, what: str, like: object) -> object:
    """The type of a setting, from its default."""
    if isinstance(value, tuple):
        entry = next(iter(value or (like if isinstance(like, tuple) else ())), 0)
        return tuple.__class_getitem__((type(entry), ...))
    if type(value) in (bool, int, float, str):
        return type(value)
    raise SinkjaxError(f"{what} must be a number, a text, a truth value or a list of these, not {value!r}")
