"""kiya/rope: the first token exchanges its rotary index with a later one, and controls exchange those of two others."""

from __future__ import annotations

import numpy as np
import pytest

import sinkjax
from sinkjax.study.registry import find
from tests.study.budget import Conditions

STUDY = find("kiya/rope")


@pytest.fixture(scope="module")
def study(tiny_config) -> Conditions:
    return Conditions(STUDY, tiny_config, positions=(1, 8), length=24, controls=6)


def exchanged(one: int, other: int) -> np.ndarray:
    indices = np.arange(24)
    indices[[one, other]] = other, one
    return indices


def test_queries_and_keys_of_two_positions_exchange_their_indices(study):
    none, *found = study.of("indices").values()
    assert none.edit.terms == ()
    for point, place in zip(found, (1, 8), strict=True):
        wanted = sinkjax.set_positions(query=exchanged(0, place), key=exchanged(0, place))
        study.assert_same(point.edit, wanted)
