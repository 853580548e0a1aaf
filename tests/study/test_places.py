"""Places and sweeps: the layers, heads and labels of each place, the conditions of a sweep, choices of them, and its controls."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import sinkjax
from sinkjax import attend_self, mask_key
from sinkjax.errors import SinkjaxError
from sinkjax.papers._shared import cut_links
from sinkjax.study import ALL, Controlled, Lab, Layers, Sweep, each, layer, prefixes, upto
from sinkjax.study.lab import Study
from sinkjax.study.parts import controls as drawn
from sinkjax.study.prose import Prose
from sinkjax.study.work import Condition, Control
from tests.study.budget import assert_same, budget

T, L = 16, 3
FORMS = upto(1, "the one in which it forms")


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled):
    spots: tuple[int, ...] = (3, 7)


def program(edits: Mapping[Any, Any], control: Control | None = None) -> Study:
    """A study of one sweep, of which no claim is made."""
    function = functools.partial(_swept, edits, control)
    return Study("own/places", function, Settings, Prose(), False, "")


def _swept(edits: Mapping[Any, Any], control: Any, lab: Lab, s: Settings) -> None:
    lab.sweep("a", edits, control=control and functools.partial(control, lab))


def sweep(edits: Mapping[Any, Any]) -> Sweep:
    return Sweep("a", dict(edits))


def masks(*places: Layers | Layers) -> Sweep:
    return sweep({one: mask_key(0, layers=getattr(one, "layers", None)) for one in places})


@pytest.mark.parametrize(
    ("places", "layers", "labels"),
    [
        ([ALL], [None], ["all layers"]),
        (each(L), [(0,), (1,), (2,)], ["layer 0", "layer 1", "layer 2"]),
        (prefixes(4), [(0, 1), (0, 1, 2)], ["layers 0 to 1", "layers 0 to 2"]),
        (prefixes(L, (0, 1, 2, 9)), [(0,), (0, 1)], ["layer 0", "layers 0 to 1"]),  # neither all layers nor others
        ([layer(1, "the layer in which it forms")], [(1,)], ["the layer in which it forms"]),
        ([upto(0), FORMS], [(0,), (0, 1)], ["layer 0", "layers 0 to the one in which it forms"]),
    ],
)
def test_a_place_is_its_layers(places, layers, labels):
    assert [one.layers for one in places] == layers
    assert [one.label for one in places] == labels


def test_axes_are_named_in_labels_and_series():
    pairs = [(spot, strength) for spot in (3, 7) for strength in (-1.5, 2.0)]
    both = [place.at(spot=spot, strength=strength) for place in (layer(0), ALL) for spot, strength in pairs]
    _, *points = masks(*both).conditions()
    assert [point.label for point in points[:2]] == ["spot 3, strength -1.5 in layer 0", "spot 3, strength 2 in layer 0"]
    assert points[4].label == "spot 3, strength -1.5 in all layers"
    assert [point.case.x for point in points[:4]] == [-1.5, 2.0, -1.5, 2.0]  # the last axis
    alone = masks(ALL.at(spot=3), ALL.at(spot=7), ALL.at(spot="a b"), ALL.at(spot=", "))
    assert [point.label for point in alone.conditions()[1:]] == ["spot 3", "spot 7", "spot a b", "spot ', '"]
    places = (*each(L), *prefixes(L, (0, 1)), FORMS, ALL)
    _, *points = masks(*(place.at(spot=spot) for place in places for spot in (3, 4))).conditions()
    assert list(dict.fromkeys(point.series for point in points)) == [
        *("one layer", "several layers", "layers 0 to the one in which it forms", "all layers")
    ]


def test_conditions_are_chosen_by_place_and_axes():
    a = masks(*(place.at(spot=spot) for place in (layer(0), ALL) for spot in (3, 7)))

    def chosen(where: Any) -> list[str]:
        return [where.sweep.label(case) for case in where.cases]

    assert chosen(a.every) == ["spot 3 in layer 0", "spot 7 in layer 0", "spot 3 in all layers", "spot 7 in all layers"]
    assert chosen(a[ALL]) == ["spot 3 in all layers", "spot 7 in all layers"]
    assert chosen(a[layer(0).at(spot=7)]) == ["spot 7 in layer 0"]
    assert chosen(a.at(spot=3)) == ["spot 3 in layer 0", "spot 3 in all layers"]
    assert sweep({}).every.cases == [None]
    assert [one.text for one in (a.every, a[ALL], a[layer(0).at(spot=7)], a.at(spot=3))] == [
        *("a", "all layers", "spot 7 in layer 0", "spot 3")
    ]
    for where, wanted in ((a[layer(1)], "layer 1"), (a.at(spot=4), "spot 4"), (a.at(sport=3), "sport 3")):
        with pytest.raises(SinkjaxError, match=rf"a is {wanted}; .*spot 3 in layer 0, "):
            _ = where.cases
    with pytest.raises(SinkjaxError, match=r"a is all layers; .*none"):
        _ = sweep({})[ALL].cases


# Controls.

KEYS = (2, 3)  # which no control masks


def another(lab: Lab, rng: np.random.Generator, case: Layers) -> sinkjax.Edit:
    return mask_key(lab.random_position(rng, but=KEYS), layers=case.layers)


def controls(architecture: Any, edits: Mapping[Any, Any], control: Any, **settings: Any) -> list[Condition]:
    """The controls of every condition of a sweep, without no edit."""
    mine, config = program(edits, control), Settings(length=T, bos="none", **{"controls": 12, **settings})
    none, *found = drawn(mine.trace(config, architecture), "a")
    assert none.edit.terms == ()
    return found


def masked(points: list[Condition]) -> list[int]:
    return [key for point in points for key in point.edit.terms[0].keys]


def test_controls_mask_other_keys_in_the_same_layers(tiny_config):
    found = controls(tiny_config, {place: mask_key(2, layers=place.layers) for place in (layer(1), ALL)}, another)
    for place, layers in ((layer(1), 1), (ALL, None)):
        mine = [point for point in found if point.case is not None and point.case == place]
        assert [point.draw for point in mine] == list(range(12))
        assert {budget(point) for point in mine} == {place.label}
        assert len({*masked(mine)}) == 12
        assert not {*KEYS, T - 1} & {*masked(mine)}  # no later query sees the last
        for point, key in zip(mine, masked(mine), strict=True):
            assert_same(point.edit, mask_key(key, layers=layers), tiny_config)
    assert len({point.label for point in found}) == len(found)


def test_controls_are_drawn_for_the_axes_of_their_condition(tiny_config):
    def links(lab: Lab, rng: np.random.Generator, case: Layers) -> sinkjax.Edit:
        return cut_links(rng, case["spot"], lab.settings.length)

    found = controls(tiny_config, {ALL.at(spot=spot): attend_self(spot) for spot in (3, 7)}, links)
    assert [point.case["spot"] for point in found if point.case] == [3] * 12 + [7] * 12
    for point in found:
        (term,), spot = point.edit.terms, point.case["spot"] if point.case else 0
        (key,) = term.keys
        assert len(term.queries) == spot  # as many links as the query has to others
        assert min(term.queries) > key > 0  # the first key's attention is read
        assert key != spot
        expected = sinkjax.edit("logits", "set", -np.inf, queries=list(term.queries), keys=key, relation="others")
        assert_same(point.edit, expected, tiny_config)
    with pytest.raises(SinkjaxError, match=r"16 positions .*16 later queries"):
        cut_links(np.random.default_rng(0), 16, T)
