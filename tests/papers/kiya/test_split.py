"""kiya/split: which queries and keys are counted, and equal shares on planted attention."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.papers.kiya.split import first_share, to_keys, together
from sinkjax.study.registry import find
from sinkjax.study.work import Condition
from tests.study import planted
from tests.study.budget import Conditions
from tests.study.planted import axes
from tests.study.stores import Values

STUDY, N = find("kiya/split"), 24
NAMES = ("text", "copies")
SETTINGS: dict[str, Any] = {"places": (4, 8, 10), "counts": (1, 3), "length": 24}


def test_the_share_of_key_0_is_of_the_keys_that_are_isolated():
    received = np.zeros((1, 1, 1, 2, 12))
    received[..., 0], received[..., 4], received[..., 8] = 0.2, 0.2, 0.6
    data = xarray.Dataset({"attention_from": (("edit", "prompt", "layer", "head", "key"), received)})
    assert first_share((4, 8), 8, 1).of(data) == pytest.approx(50)
    assert first_share((4, 8), 8, 2).of(data) == pytest.approx(20)
    assert together((4, 8), 8, 2).of(data) == pytest.approx(100)
    assert to_keys(data, 8).shape == (1, 1, 1, 2, 2)


def test_the_first_k_places_see_only_themselves_and_a_copy_enters_as_the_first_token_does(tiny_config):
    study = Conditions(STUDY, tiny_config, **SETTINGS)
    expected = sinkjax.edit("logits", "set", -np.inf, queries=(4, 8, 10), relation="others")
    study.assert_same(study.of("text")["tokens 3"].edit, expected)
    embedded, hidden = study.of("copies")["tokens 1"].edit.terms
    assert (embedded.site, embedded.queries) == (sinkjax.Site.EMBED, (4,))
    assert hidden.queries == (4,)


def words(first: dict[int, float], each: dict[int, float], had: float = 60.0) -> dict[str, str]:
    """The words where key 0 and each isolated token get this attention (%), for each number of tokens; key 0 had `had`."""

    def numbers(name: str, point: Condition) -> Values:
        noise = np.random.default_rng(zlib.crc32(f"{name} {point.label}".encode())).uniform(-0.3, 0.3, N)
        count, twin = axes(point).get("tokens", 0), name.endswith("-twin")
        found: dict[tuple[Any, ...], Any] = {("seen", 0): (5.0 if twin else first.get(count, had)) + noise}
        return found | {("seen", place): each.get(count, 1.0) for place in SETTINGS["places"][:count]}

    found = planted.words(STUDY, numbers, layers=2, **SETTINGS, prompts=N, control_prompts=N)
    assert {found[name] for name in found if name.endswith(("keys", "heads"))} == {"described"}
    return {name: word for name, word in found.items() if word != "described"}


def test_equal_shares_replicate_and_unequal_ones_move():
    assert words({1: 30.0, 3: 15.0}, {1: 30.0, 3: 15.0}) == dict.fromkeys(NAMES, "confirmed")
    assert words({1: 33.0, 3: 22.0}, {1: 33.0, 3: 22.0}) == dict.fromkeys(NAMES, "confirmed")  # whatever their sum
    assert words({1: 40.0, 3: 30.0}, {1: 20.0, 3: 10.0}) == dict.fromkeys(NAMES, "moves")
