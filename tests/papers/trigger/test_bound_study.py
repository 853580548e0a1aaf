"""trigger/bound at a small size: what it stores and says, and that a layer below a bound would be found."""

from __future__ import annotations

import pytest

from sinkjax.papers.trigger import bound
from sinkjax.papers.trigger._bounds import Shape
from sinkjax.study.registry import Chosen
from sinkjax.tasks.trigger.config import Trigger
from tests.papers.trigger.conftest import Finished, config_of, finish

SMALL = config_of(
    "bound",
    seeds=1,
    steps=600,
    rate=5e-3,
    tolerance=0.02,
    batch=64,
    width=9,
    length=6,
    evaluate_every=200,
    sequences=1500,
    caps=(0.0, 0.9, 1.0),
    cap_seeds=2,
    cap_steps=600,
    shifts=(-1.0, -20.0),
    trigger_position=4,
    moves=(3,),
)
SHAPE = Shape.of(Trigger(width=9, length=6))
KNOWN = (0.0, 0.9, *bound.MORE)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return finish(Chosen("trigger/bound", SMALL), tmp_path_factory.mktemp("bound") / "out")


def test_no_layer_lies_below_the_bounds_and_the_claim_says_so(finished: Finished):
    found = finished.section.verdicts[0]
    assert (found.word, found.kind) == ("holds", "identity")
    layers = bound.points(finished.stores["free"], finished.stores["capped"])
    assert {kind: len(each) for kind, each in layers.items()} == {
        "mass held in training": 6,
        "free to sink": 1,
        "while learning": len(finished.stores["free"]["curve_step"][0]),
        "mass held after training": 3,
        "logit shifted after training": 2,
    }
    for each in layers.values():
        assert (bound.distances(SHAPE, KNOWN, each) > 1).all()
