"""kiya/bos-swap: which rows are swapped on which prompts, models without a usable BOS, and the words of planted sinks."""

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
from tests.study.planted import axes
from tests.study.stores import Values

STUDY = find("kiya/bos-swap")
POSITIONS, N, T = tuple(range(1, 9)), 32, 24
SETTINGS = {"positions": POSITIONS, "shown": 8, "prompts": N, "control_prompts": N, "length": T}


@pytest.mark.parametrize("grid", ["text", "bos"])
def test_the_first_embedding_changes_places_with_a_later_one(tiny_config, grid):
    study = Conditions(STUDY, tiny_config, positions=(1, 8), shown=8, length=T, controls=6, bos=0)
    none, *found = study.of(grid).values()
    assert none.edit.terms == ()
    for point, place in zip(found, (1, 8), strict=True):
        study.assert_same(point.edit, sinkjax.swap_embeddings(0, place))
    drawn = study.random(grid)
    assert len(drawn) == 12
    for point in drawn:
        place = axes(point)["position"]
        ((other, there),) = np.atleast_2d(point.edit.terms[0].value).tolist()
        assert there == place
        assert other not in (0, place, T - 1)


def swaps(stays: bool = True, first: bool = True, sinks: float = 90.0, massive: float = 200.0) -> Any:
    """The sink and the activation stay at position 0 or move along; in the first layer they move along with a BOS, or not.

    sinks, massive: attention to BOS (%) and its largest activation in the first layer.
    """

    def numbers(name: str, point: Condition) -> Values:
        noise = np.random.default_rng(zlib.crc32(f"{name} {point.label}".encode())).uniform(-1, 1, (4, 10, N))
        at = axes(point).get("position", 0) if point.draw < 0 and not name.endswith("-twin") else 0
        later, here = (0 if stays else at), (at if first and name.startswith("bos") else 0)
        usual = 20.0 if name.endswith("-twin") else 90.0
        planted: dict[tuple[Any, ...], Any] = {}
        for place in (0, *POSITIONS):
            planted["seen", place] = (usual if place == later else 2.0) + noise[0, place]
            planted["size", place] = (500.0 if place == later else 10.0) * np.exp(noise[1, place] / 50)
            planted["seen", place, 0] = (min(sinks, usual) if place == here else 2.0) + noise[2, place]
            planted["size", place, 1] = (massive if place == here else 3.0) * np.exp(noise[3, place] / 50)
        return planted

    return numbers


def words(numbers: Any, text: str = "<s>", **options: Any) -> dict[str, str]:
    return planted.words(STUDY, numbers, layers=4, about={"first_tokens": [(0, text)]}, **{**SETTINGS, **options})


def test_the_papers_result_replicates():
    """In the first layer the sink is where BOS is, in later layers at position 0, with and without BOS."""
    twin = " (untrained too)"  # where nothing moves
    assert words(swaps()) == {
        "sink-first": "replicates",
        "activation-first": "replicates",
        "sink": f"replicates{twin}",
        "activation": f"replicates{twin}",
        "ordinary": f"confirmed{twin}",
    }


def test_a_sink_that_moves_along_with_its_token_differs():
    found = words(swaps(stays=False))
    assert found["sink"] == found["activation"] == found["ordinary"] == "moves"
