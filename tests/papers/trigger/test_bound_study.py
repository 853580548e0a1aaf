"""trigger/bound at a small size: what it stores and says, and that a layer below a bound would be found."""

from __future__ import annotations

import numpy as np
import pytest

from sinkjax.errors import SinkjaxError
from sinkjax.papers.trigger import _frontier as bound
from sinkjax.papers.trigger._bounds import Shape
from sinkjax.study.choice import Chosen
from sinkjax.tasks.trigger.config import Trigger
from tests.papers.trigger.conftest import Finished, config_of, finish, judged

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


def test_held_masses_are_held(finished: Finished):
    capped, free = finished.stores["capped"], finished.stores["free"]
    for found in (capped["bos"].values, capped["first"].values):
        np.testing.assert_allclose(found, np.repeat([[0.0], [0.9], [1.0]], 2, axis=1), atol=1e-5)
    np.testing.assert_allclose(free["held_bos"].values, [[0.0, 0.9, 1.0]], atol=1e-5)


def test_the_less_mass_the_more_loss(finished: Finished):
    capped, free = finished.stores["capped"], finished.stores["free"]
    assert (np.diff(capped["loss"].values.min(axis=1)) < 0).all()
    assert (np.diff(free["held_loss"].values[0]) < 0).all()
    shifted = free["shifted_loss"].values[0]
    assert free["loss"].values[0] < shifted[0] < shifted[1]
    assert free["bos"].values[0] > free["shifted_bos"].values[0, 0] > free["shifted_bos"].values[0, 1]


def test_a_layer_that_learns_with_its_mass_held_beats_one_that_is_held_afterwards(finished: Finished):
    best = finished.stores["capped"]["loss"].values.min(axis=1)
    assert (best < finished.stores["free"]["held_loss"].values[0])[:2].all()


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


@pytest.mark.parametrize(
    ("store", "name"),
    [("capped", "loss"), ("free", "loss"), ("free", "curve_loss"), ("free", "held_loss"), ("free", "shifted_loss")],
)
def test_one_kind_of_layer_below_a_bound_breaks_the_claim(finished: Finished, store, name):
    found = finished.stores[store]
    stores = {**finished.stores, store: found.assign({name: 1e-12 * found[name]})}
    assert judged("bound", SMALL, stores)["bounds"] == "fails"


def test_a_layer_below_a_bound_would_be_found():
    curves = bound.bounds(SHAPE, (0.9,))
    for name, first in ((bound.ANY_MEAN, np.nan), (bound.ANY_FIRST, 0.9)):
        at = np.array([[curves[name][0], 0.9, first]])
        assert bound.distances(SHAPE, KNOWN, at * [0.9, 1, 1])[0] == pytest.approx(0.9, rel=1e-6)
    assert bound.distances(SHAPE, KNOWN, np.array([[1e-9, 1.0, 1.0]]))[0] == np.inf


def test_the_section_has_a_row_for_each_mass_and_its_figures(finished: Finished):
    rows = {(row.condition, row.measure): row.value.mean for row in finished.section.rows}
    assert rows["BOS mass 0.9", "loss, mass held in training (millionths)"] == pytest.approx(
        1e6 * finished.stores["capped"]["loss"].values[1].mean()
    )
    assert rows["BOS mass 0.9", f"best loss over {bound.BLIND}"] == pytest.approx(
        finished.stores["capped"]["loss"].values[1].min() / bound.bounds(SHAPE, (0.9,))[bound.BLIND][0]
    )
    assert all(np.isfinite(value) for value in rows.values())
    assert sorted(path.name for path in (finished.folder / "figures").glob("*.png")) == ["bounds.png", "forced.png"]


def test_masses_that_do_not_rise_are_refused():
    with pytest.raises(SinkjaxError, match="caps must rise from 0 to 1"):
        config_of("bound", caps=(0.5, 0.2))
