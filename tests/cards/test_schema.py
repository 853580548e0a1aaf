"""The schema of card.json: its classes and fields are documented in the reference."""

from __future__ import annotations

import dataclasses
import runpy
import typing
from pathlib import Path
from pydoc import locate
from types import SimpleNamespace

import sinkjax
from sinkjax.cards.card import Card


def parts(cls: type) -> set[type]:
    """A dataclass and those that its fields contain."""
    hints = [kind for hint in typing.get_type_hints(cls).values() for kind in (hint, *typing.get_args(hint))]
    return {cls}.union(*(parts(kind) for kind in hints if dataclasses.is_dataclass(kind)))


def test_every_class_of_a_card_is_in_the_reference_with_each_of_its_fields():
    generate = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[2] / "docs" / "generate.py")))
    page = generate.api()["api-the-sink-card"]
    written = {locate(name) for name in generate.PARTS}
    assert parts(Card) - {Card, sinkjax.SinkPrefix} == written
    for cls in (Card, *written):
        name = cls.__name__ if cls is Card else f"{cls.__module__.partition('.')[2]}.{cls.__name__}"
        assert f".. autoclass:: sinkjax.{name}\n" in page
        assert {field.name for field in dataclasses.fields(cls)} == {*generate._attributes(cls)}, cls
