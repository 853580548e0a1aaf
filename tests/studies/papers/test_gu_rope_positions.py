"""gu/rope-positions: conditions and controls set the indices that they name, and verdicts follow their rules."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.analysis.summary import Row
from sinkjax.errors import SinkjaxError
from sinkjax.studies.papers.gu.rope_positions import (
    ALL,
    REVERSED,
    SAME,
    SWAPPED,
    TAKEN,
    ZERO,
    RopePositions,
    at_place,
    conditions,
    labels,
    measures,
    on_any_key,
    random_exchanges,
    uneven,
)
from tests.studies.planted import Planted, around

CONFIG = RopePositions(length=10, places=(2, 5), shift=7, controls=20)
AT_FIRST, AT_PLACE, ANYWHERE = measures(CONFIG)[0].name, at_place(CONFIG).name, on_any_key(CONFIG).name


def indices(edit: sinkjax.Edit) -> list[int]:
    query, key = (np.asarray(term.value).tolist() for term in edit.terms)
    assert query == key
    return query


def test_the_conditions_set_the_indices_that_they_name():
    found = {condition.label: condition for condition in conditions(CONFIG, None)}
    assert found["no edit"].edit.terms == ()
    assert indices(found[SAME].edit) == list(range(10))
    assert indices(found["all indices + 7"].edit) == list(range(7, 17))
    assert indices(found[ZERO].edit) == [0] * 10
    assert indices(found[REVERSED].edit) == list(range(9, -1, -1))
    assert indices(found["index 0 becomes 5"].edit) == [5, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert indices(found["indices 0 and 5 swapped"].edit) == [5, 1, 2, 3, 4, 0, 6, 7, 8, 9]
    assert len(found) == 5 + 2 * 2


def test_controls_change_as_many_indices_but_never_that_of_the_first_token():
    drawn = list(random_exchanges(CONFIG, None))
    changed = [(np.array(indices(condition.edit)) != np.arange(10)) for condition in drawn]
    assert [int(mask.sum()) for mask in changed] == [condition.budget for condition in drawn] == [1, 2] * 20
    assert not any(mask[0] for mask in changed)
    assert {condition.budget for condition in conditions(CONFIG, None)} == {None, 1, 2}
    assert len({tuple(indices(condition.edit)) for condition in drawn}) == len(drawn)
    few = dataclasses.replace(CONFIG, controls=100)
    assert len(list(random_exchanges(few, None))) == 2 * 36  # all pairs of the other nine positions


def test_the_rate_on_key_t_is_read_at_each_conditions_own_t():
    shown = ["no edit", "index 0 becomes 2", "indices 0 and 5 swapped", "control 0: another"]
    received = np.zeros((4, 3, 1, 2, 10))
    received[1, :, :, 0, 2] = received[2, :, :, :, 5] = 1
    data = xarray.Dataset({"attention_received": (("edit", "prompt", "layer", "head", "key"), received)}, {"edit": shown})
    rates = at_place(CONFIG).of(data)
    assert np.isnan(rates[[0, 3]]).all()
    assert rates[1].tolist() == [50] * 3
    assert rates[2].tolist() == [100] * 3


def test_the_largest_rate_is_that_of_one_key_in_each_prompt():
    received = np.zeros((1, 3, 1, 4, 10))  # edit, prompt, layer, head, key
    received[0, 0, 0, :2, 3] = received[0, 0, 0, 2, 0] = 1  # two heads on key 3, one on key 0
    received[0, 1, 0, :, 5] = 1  # five queries see the middle one
    received[0, 2, 0, :, 6:] = 1  # few queries see these
    data = xarray.Dataset({"attention_received": (("edit", "prompt", "layer", "head", "key"), received)})
    assert on_any_key(CONFIG).of(data).tolist() == [[50, 100, 0]]


def test_unevenness_is_that_of_the_worst_prompt():
    largest = np.full((2, 3, 4, 10), 2.0)  # edit, prompt, depth, position
    largest[1, 2, 3, 4] = 3
    stores = {"repeat": xarray.Dataset({"resid_max": (("edit", "prompt", "depth", "position"), largest)})}
    assert uneven(Planted("gu/rope-positions", CONFIG, stores=stores)) == pytest.approx(50)


EXCHANGED = labels(CONFIG, TAKEN, SWAPPED)


def planted(bos: str | int = "none", position: str = "", **changed: float) -> list[str]:
    """Verdicts with 80 % on key 0 of text in all conditions, 0 % elsewhere. changed: "kind, label, key" -> another rate."""
    every = [*labels(CONFIG, "no edit", ALL), *EXCHANGED]
    rates = {(f"natural text: {label}", AT_FIRST): 80.0 for label in every}
    rates |= {(f"natural text: {label}", AT_PLACE): 0.0 for label in EXCHANGED}
    rates |= {(f"one token repeated: {label}", ANYWHERE): 0.0 for label in every}
    for where, rate in changed.items():
        kind, label, key = where.split(", ")
        rates[f"{kind}: {label}", {"0": AT_FIRST, "t": AT_PLACE, "any": ANYWHERE}[key]] = rate
    halves = {key: 0.05 if key[0].startswith("one token") else 1.0 for key in rates}
    rows = {
        key: Row(key[0], "planted", key[1], around(rate, halves[key])) for key, rate in rates.items()
    }  # a rate less half of another: half as wide an interval
    config = dataclasses.replace(CONFIG, bos=bos)
    return Planted("gu/rope-positions", config, {"position": position}, rows).verdicts()


@pytest.mark.parametrize(
    ("changed", "verdicts"),
    [
        ({}, ["not applicable", "supported", "supported"]),
        ({"one token repeated, all indices 0, any": 1.1}, ["not applicable", "contradicted", "supported"]),
        ({"one token repeated, index 0 becomes 5, any": 1.1}, ["not applicable", "contradicted", "supported"]),
        ({"one token repeated, index 0 becomes 5, any": 1.02}, ["not applicable", "inconclusive", "supported"]),
        ({"one token repeated, index 0 becomes 5, any": 0.9}, ["not applicable", "supported", "supported"]),
        ({"one token repeated, all indices 0, any": 1.1, "bos": "model"}, ["not applicable", "not applicable", "supported"]),
        ({"position": "Learned()"}, ["not applicable", "not applicable", "supported"]),
        ({"natural text, index 0 becomes 5, 0": 40.6}, ["not applicable", "supported", "supported"]),
        ({"natural text, index 0 becomes 5, 0": 40.4}, ["not applicable", "supported", "inconclusive"]),
        ({"natural text, index 0 becomes 5, 0": 30.0}, ["not applicable", "supported", "contradicted"]),
        ({"natural text, indices 0 and 2 swapped, t": 39.4}, ["not applicable", "supported", "supported"]),
        ({"natural text, indices 0 and 2 swapped, t": 39.6}, ["not applicable", "supported", "inconclusive"]),
        ({"natural text, all indices 0, 0": 0.0}, ["not applicable", "supported", "supported"]),
        ({"natural text, no edit, 0": 10.9}, ["not applicable", "supported", "inconclusive"]),
        ({"natural text, no edit, 0": 8.9}, ["not applicable", "supported", "not applicable"]),
    ],
)
def test_verdicts_follow_their_rule(changed, verdicts):
    assert planted(**changed) == verdicts


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"places": ()}, "places is empty"),
        ({"places": (0, 3)}, "places must be different positions from 1 to 63, but contains 0"),
        ({"places": (3, 64)}, "but contains 64"),
        ({"published_taken": (1.0,)}, "published_taken needs one number for each of published_places, 0"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(fields, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        RopePositions(**fields)
