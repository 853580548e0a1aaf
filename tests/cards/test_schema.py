"""The schema of card.json: its classes and fields are documented in the reference."""

from __future__ import annotations

import dataclasses
import importlib.util
import typing
from pathlib import Path
from pydoc import locate

import pytest

import sinkjax
from sinkjax.cards.card import Card


@pytest.fixture(scope="module")
def generate():
    """docs/generate.py as a module."""
    path = Path(__file__).parents[2] / "docs" / "generate.py"
    spec = importlib.util.spec_from_file_location("generate", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parts(cls: type) -> set[type]:
    """A dataclass and those that its fields contain."""
    found, waiting = {cls}, [*typing.get_type_hints(cls).values()]
    while waiting:
        kind = waiting.pop()
        waiting += typing.get_args(kind)
        if dataclasses.is_dataclass(kind) and kind not in found:
            found.add(kind)
            waiting += typing.get_type_hints(kind).values()
    return found


def test_every_class_of_a_card_is_in_the_reference_with_each_of_its_fields(generate):
    page = generate.api()["api-the-sink-card"]
    written = {locate(name) for name in generate.PARTS}
    assert parts(Card) - {Card, sinkjax.SinkPrefix} == written
    for cls in (Card, *written):
        name = cls.__name__ if cls is Card else f"{cls.__module__.partition('.')[2]}.{cls.__name__}"
        assert f".. autoclass:: sinkjax.{name}\n" in page
        assert {field.name for field in dataclasses.fields(cls)} == {*generate._attributes(cls)}, cls
