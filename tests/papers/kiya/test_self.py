"""kiya/self: which query sees what in which layers, controls that cut as many links, and the words of planted sinks."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.study.registry import program
from sinkjax.study.work import Point
from tests.study import planted
from tests.study.budget import Conditions, budget
from tests.study.planted import axes, where
from tests.study.stores import Numbers

STUDY = program("kiya/self")
FORMS = "layers 0 to the one in which it forms"
LAYERS: dict[str, Any] = {"layer 0": 0, "layer 1": 1, "layer 2": 2, "layers 0 to 1": [0, 1], FORMS: [0, 1], "all layers": None}
SETTINGS = {"positions": (4, 8), "shown": 8, "ends": (1, 5), "length": 24}
N, POSITIONS = 24, tuple(range(4, 12))


@pytest.fixture(scope="module")
def study(tiny_config) -> Conditions:
    return Conditions(STUDY, tiny_config, {"forms": 1}, controls=6, **SETTINGS)


def test_the_query_sees_itself_alone_in_each_set_of_layers(study):
    none, *found = study.of("alone").values()
    assert none.edit.terms == ()
    assert [where(point) for point in found] == [label for label in LAYERS for _ in range(2)]
    for point in found:
        place = axes(point)["position"]
        assert point.label == f"position {place} in {where(point)}"
        study.assert_same(point.edit, sinkjax.attend_self(place, layers=LAYERS[where(point)]))


def test_or_one_random_earlier_key_in_all_layers(study):
    _, *found = study.of("other").values()
    assert [point.label for point in found] == ["position 4", "position 8"]
    for point in found:
        (term,), place = point.edit.terms, axes(point)["position"]
        (seen,) = set(range(place + 1)) - set(term.keys)
        assert seen < place
        hidden = [key for key in range(place + 1) if key != seen]
        study.assert_same(point.edit, sinkjax.edit("logits", "set", -np.inf, queries=place, keys=hidden))


def test_which_other_key_depends_on_the_seed(tiny_config):
    def seen(seed: int) -> list[Any]:
        conditions = Conditions(STUDY, tiny_config, {"forms": 1}, seed=seed, positions=tuple(range(4, 14)), shown=8, length=24)
        return [point.edit.terms[0].keys for point in [*conditions.of("other").values()][1:]]

    assert seen(0) == seen(0) != seen(1)


def test_controls_cut_as_many_links_to_one_key_in_the_same_layers(study):
    drawn = study.random("alone")
    assert len(drawn) == 6 * 2 * 2  # of the two places that claims are about
    for point in drawn:
        (term,), place = point.edit.terms, axes(point)["position"]
        (key,) = term.keys
        assert len(set(term.queries)) == place
        assert key < min(term.queries)
        assert key != place
        wanted = sinkjax.edit(
            "logits",
            "set",
            -np.inf,
            queries=list(term.queries),
            keys=key,
            relation="others",
            layers=LAYERS[budget(point).partition(" in ")[2]],
        )
        study.assert_same(point.edit, wanted)


def test_the_position_that_is_drawn_is_one_of_those_that_are_edited():
    with pytest.raises(SinkjaxError, match=r"shown is 5, .*4, 8"):
        STUDY.settings(**{**SETTINGS, "shown": 5})


def isolates(**places: tuple[float, float, float]) -> Any:
    """Attention to the position (%), to key 0, and largest |h| at the position, under the edits in some places."""

    def numbers(name: str, point: Point) -> Numbers:
        noise = np.random.default_rng(zlib.crc32(f"{name} {point.label}".encode())).uniform(-1, 1, (2, 16, N))
        place = {FORMS: "forms", "all layers": "everywhere"}.get(where(point), "") if point.draw < 0 else ""
        twin = name.endswith("-twin")
        place = "other" if place and name == "other" else "" if twin or name == "free" else place
        place = "apart" if place == "everywhere" and name == "without-0" else place
        seen, first, size = places.get(place, (1.0, 90.0, 10.0))
        found: dict[tuple[Any, ...], Any] = {}
        for position in (0, *POSITIONS):
            usual = (20.0 if twin else 90.0, 500.0) if position == 0 else (1.0, 10.0)
            here = {0: (20.0 if twin else first, 500.0), axes(point).get("position"): (seen, size)}.get(position, usual)
            found["seen", position] = here[0] + noise[0, position]
            found["size", position] = here[1] * np.exp(noise[1, position] / 50)
        return found

    return numbers


def words(numbers: Any) -> dict[str, str]:
    settings = {**SETTINGS, "positions": POSITIONS, "prompts": N, "control_prompts": N, "ends": (1,)}
    return planted.words(STUDY, numbers, layers=2, **settings)


def test_a_query_that_sees_itself_alone_takes_the_sink_over():
    planted_sinks = {"everywhere": (70.0, 20.0, 400.0), "forms": (30.0, 60.0, 400.0), "other": (20.0, 60.0, 200.0)}
    found = words(isolates(**planted_sinks, apart=(1.0, 90.0, 400.0)))
    assert found == {
        "sink": "replicates",
        "sink-alone": "absent",
        "activation": "replicates",
        "leaves": "replicates",
        "early": "confirmed",
        "early-alone": "confirmed",
        "other": "confirmed",
    }


def test_a_first_token_that_another_one_outdoes_has_no_sink_that_could_move():
    def numbers(name: str, point: Point) -> Numbers:
        return {**isolates(everywhere=(70.0, 20.0, 400.0))(name, point), ("seen", 2): 95.0}

    found = words(numbers)
    untested = ["sink", "sink-alone", "leaves", "early", "early-alone", "other"]
    assert [name for name in found if found[name] == "not applicable"] == untested


def test_a_query_that_sees_itself_alone_and_changes_nothing():
    found = words(isolates())
    assert found["sink"] == found["activation"] == found["early"] == found["leaves"] == "absent"


def test_without_the_first_token_the_query_sees_itself_alone_and_no_later_one_sees_key_0(study, tiny_config, tiny_params):
    point = study.of("without-0")["position 4 in all layers"]
    tokens = np.random.default_rng(0).integers(0, 61, (1, 12))
    seen = sinkjax.forward(tiny_params, tokens, tiny_config, point.edit, sinkjax.Probe(attention=(0,))).record["attention"]
    found = np.asarray(seen)[0, 0].max(axis=0) > 0
    expected = np.tri(12, dtype=bool)
    expected[4, :4], expected[5:, 0] = False, False
    np.testing.assert_array_equal(found, expected)
