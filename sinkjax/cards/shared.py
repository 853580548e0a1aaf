"""Cards as others send them: read from card.json with every field checked, and written without paths and passages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from sinkjax.cards import files
from sinkjax.cards.card import Card
from sinkjax.config_files.checks import check_keys, refuse
from sinkjax.config_files.documents import describe, options
from sinkjax.config_files.files import user_path
from sinkjax.errors import SinkjaxError

LARGEST = 8_000_000  # bytes of a card.json
LONGEST = 400  # characters of a text in it
ESTIMATE = {"mean", "low", "high", "n"}
MODEL = ("name", "revision", "kind", "model_type", "stored", "sha256", "dtype", "weights", "config", "vocab_size", "bos", "eos")
BESIDE = ("version", "checksum", "advice", "prefix", "shared")  # entries of the file that are no fields of a card


def read_card(path: str | Path) -> Card:
    """Read a card from its folder or its card.json.

    Args:
        path: The folder, or the file.

    Returns:
        The card, without its prefix; `passages` is empty if it was shared.

    Raises:
        SinkjaxError: The file is missing, too large, of another version, or has changed since it was written; a field is
            missing, unknown, of another type, not finite or too long.
    """
    path = user_path(path)
    path = path / files.CARD if path.is_dir() else path
    refuse(path.is_file() and path.stat().st_size > LARGEST, f"{path} has more than {LARGEST:,} bytes, so it is not a card")
    content = files.read(path)
    fields = {"cause" if name == "hangs" else name: part for name, part in content.items() if name not in BESIDE}
    card: Card = _structured({"prefix": None} | fields, Card, str(path))
    _structured(content.get("shared", {}), dict[str, str], f"{path}: shared")
    L, heads = len(card.where.by_head), card.where.of
    if L == 0 or {len(row) for row in card.where.by_head} != {heads // L} or len(card.where.activation.by_layer) != L:
        raise SinkjaxError(f"{path}: where: by_head, by_layer and of do not agree about the numbers of layers and heads")
    return card


def shared(card: Card, by: str = "") -> bytes:
    """Return a card's JSON for others: without passages, and with the last part of the model's name.

    Args:
        card: The card.
        by: Name of whoever measured it, if they wish.

    Returns:
        The content of a card.json, with `shared`: {by, date}.
    """
    model = {name: card.model.get(name) for name in MODEL} | {"name": Path(str(card.model["name"])).name}
    text = card.prompts["text"]
    prompts = {**card.prompts, "text": text if text.startswith("packaged") else "a text of its own"}
    plain = dataclasses.replace(card, model=model, prompts=prompts, passages={}, prefix=None)
    return files.as_json(plain.content() | {"shared": {"by": by, "date": date.today().isoformat()}})


def _structured(value: Any, hint: Any, what: str) -> Any:
    """Return JSON as the type of a field. Errors: another type, an unknown or missing key, a number that is not finite."""
    for option in options(hint):
        kind, inner = get_origin(option) or option, get_args(option)
        if option is Any:
            return _plain(value, what)
        if kind is Literal and isinstance(value, str) and value in inner:
            return value
        if option in (str, int, bool, NoneType) and type(value) is option:
            return _plain(value, what)
        if option is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(_plain(value, what))
        if kind is list and isinstance(value, list):
            return [_structured(entry, inner[0], f"{what}[{number}]") for number, entry in enumerate(value)]
        if kind is tuple and isinstance(value, list) and len(value) == len(inner):
            return tuple(_structured(entry, each, what) for entry, each in zip(value, inner, strict=True))
        if kind is dict and isinstance(value, Mapping):
            found = {_plain(key, what): _structured(entry, inner[1], f"{what}: {key}") for key, entry in value.items()}
            if ESTIMATE & found.keys() and (not found.keys() >= ESTIMATE or isinstance(found["mean"], str)):
                raise SinkjaxError(f"{what} must have {', '.join(sorted(ESTIMATE))}")
            return found
        if dataclasses.is_dataclass(option) and isinstance(option, type) and isinstance(value, Mapping):
            hints = get_type_hints(option)
            check_keys(value, [field.name for field in dataclasses.fields(option)], what)
            if lost := [field.name for field in dataclasses.fields(option) if field.name not in value]:
                raise SinkjaxError(f"{what} lacks {lost[0]}")
            return option(**{name: _structured(entry, hints[name], f"{what}: {name}") for name, entry in value.items()})
    raise SinkjaxError(f"{what} is {describe(value)}, which is not a card's")


def _plain(value: Any, what: str) -> Any:
    """Return a value of JSON whose texts are short and printable and whose numbers are finite; raise for others."""
    if isinstance(value, Mapping):
        return {_plain(key, what): _plain(entry, f"{what}: {key}") for key, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry, what) for entry in value]
    if isinstance(value, str):
        refuse(len(value) > LONGEST, f"{what} has a text of {len(value):,} characters")
    elif isinstance(value, int | float) and not abs(value) < 1e38:
        raise SinkjaxError(f"{what} has a number that is not finite")
    return value
