"""kiya/self: which query sees what in which layers, controls that cut as many links, and the words of planted sinks."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

import sinkjax
from sinkjax.study.registry import find
from sinkjax.study.work import Condition
from tests.study import planted
from tests.study.budget import Conditions
from tests.study.planted import axes, where
from tests.study.stores import Values

STUDY = find("kiya/self")
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


def isolates(**places: tuple[float, float, float]) -> Any:
    """Attention to the position (%), to key 0, and largest |h| at the position, under the edits in some places."""

    def numbers(name: str, point: Condition) -> Values:
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
