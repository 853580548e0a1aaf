"""kiya/rope: the first token exchanges its rotary index with a later one, and controls exchange those of two others."""

from __future__ import annotations

import numpy as np
import pytest

import sinkjax
from sinkjax.study.parts import parts
from sinkjax.study.registry import program
from sinkjax.study.work import Calculation
from tests.study.budget import Conditions
from tests.study.planted import axes

STUDY = program("kiya/rope")


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


def test_controls_leave_index_0_where_it_is(study):
    drawn = study.random("indices")
    assert len(drawn) == 12
    for point in drawn:
        place, (values, _) = axes(point)["position"], (term.value for term in point.edit.terms)
        moved = np.flatnonzero(np.asarray(values) != np.arange(24))
        assert place in moved
        assert len(moved) == 2
        assert 0 not in moved
        other = int(*({*moved.tolist()} - {place}))
        wanted = sinkjax.set_positions(query=exchanged(other, place), key=exchanged(other, place))
        study.assert_same(point.edit, wanted)


def test_the_edit_that_must_change_nothing_exchanges_a_position_with_itself(study):
    (edit,) = study.lab.noops
    study.assert_same(edit, sinkjax.set_positions(query=np.arange(24), key=np.arange(24)))


def test_scores_are_computed_once_without_prompts_beside_the_sweeps(tiny_config):
    (scores,) = (part for part in parts(STUDY.trace(STUDY.settings(), tiny_config)) if isinstance(part, Calculation))
    assert scores.name == "scores"
    assert not scores.twin
