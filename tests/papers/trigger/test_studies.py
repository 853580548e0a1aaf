"""trigger/assumptions, heads and sizes: which models they train, how they count, judge and report, without training them."""

from __future__ import annotations

import numpy as np
import pytest

from sinkjax.papers.trigger import _outcomes as outcomes
from sinkjax.papers.trigger import assumptions
from sinkjax.papers.trigger._outcomes import OTHERS
from sinkjax.study.registry import choose, find
from sinkjax.study.results import assemble
from sinkjax.study.trained import specs
from tests.papers.trigger.conftest import config_of, judged, seeds, spread

LABELS = [name for group in assumptions.GROUPS.values() for name in group]
SMALL = {"map_sequences": 200}


def set_mass(data, mass: float) -> None:
    """Make every head of a store put this mass on BOS in the other rows."""
    for name in ("weight", "share"):
        data[name].loc[{"rows": OTHERS, "target": "bos"}] = mass + spread(data)


def trainings(study: str, **settings) -> dict:
    config = config_of(study, **settings) if settings else choose(f"trigger/{study}").config
    return {spec.name: spec.training for spec in specs(find(f"trigger/{study}").trace(config, None), config)}


def table(study: str, config, stores) -> dict:
    section = assemble(find(f"trigger/{study}").trace(config, None), stores)
    assert all(drawing.png for drawing in section.drawings)
    return {(row.condition, row.measure): row.value for row in section.rows}


@pytest.fixture
def assumed(one_layer):
    """Stores in which all normalisers of the last group are ReLU and all else is softmax."""
    return {name: seeds(one_layer.stores["relu" if name in assumptions.NORMALISERS else "softmax"]) for name in LABELS}


def test_words_on_assumptions_follow_the_numbers(assumed):
    def words():
        return judged("assumptions", config_of("assumptions", **SMALL), assumed)

    for name in assumptions.ESCAPES:  # another seed each, so that their differences have a spread
        assumed[name]["weight"] = assumed[name]["weight"].copy(data=np.roll(assumed[name]["weight"].values, 1, axis=0))
    # here every softmax model solves its task with a sink, also without a BOS, and every ReLU model without one
    found = words()
    assert found["softmax"] == "confirmed"
    assert {found[f"{name}-sinks"] for name in assumptions.ESCAPES} == {"absent"}
    rng = np.random.default_rng(0)  # seeds differ, so no two numbers are in the same ratio in all of them
    for name, data in assumed.items():
        part = 0.5 if name in ("no-bos", "relu-none") else 0.005
        data["loss"][...] = part * (data["null_loss"] * rng.uniform(0.8, 1.2, 8))
    set_mass(assumed["gate"], 0.01)
    found = words()
    solved = [f"{name}-solves" for name in assumptions.ESCAPES]
    assert {found[name] for name in ("needs-bos", "divisor", "gate-sinks", *solved)} == {"confirmed"}
    assumed["relu-index"]["loss"][:1] = assumed["relu-index"]["null_loss"][:1]
    assert words()["softmax"] == "not applicable"  # seven runs that solve the task are too few


def test_words_on_escapes_follow_what_is_left_on_bos(one_layer):
    stores = {name: seeds(one_layer.stores["softmax"]) for name in trainings("escapes")}
    set_mass(stores["off-by-one-penalty-1e-4"], 0.1)
    stores["gate-start-4"] = stores["gate-start-4"].assign(
        gate=(("run", "rows", "layer", "head"), np.tile(np.array([0.8, 0.2]).reshape(1, 2, 1, 1), (8, 1, 1, 1)))
    )
    stores["sink-logit-start-4"]["loss"][...] = stores["sink-logit-start-4"]["null_loss"]
    charged = stores["softmax-penalty-1e-4"]
    charged["loss"][...] = np.linspace(0.4, 0.6, 8)[:, None] * charged["null_loss"].values[:, None]
    config = config_of("escapes", **SMALL)
    words = judged("escapes", config, stores)
    assert words["off-by-one-penalty"] == words["softmax-penalty"] == "confirmed"
    assert words["sink-logit-start"] == "not applicable"  # no run solves the task
    assert words["gate-penalty"] != "confirmed"
    found = table("escapes", config, stores)
    share = "weight of other rows that goes to the escape"
    assert found["gated heads: escape starts at 4", share].mean == pytest.approx(0.75)
    assert found["softmax off by one: BOS costs 1e-4", share].mean == pytest.approx(0.9, abs=0.01)


def test_a_weight_in_whole_rows_does_not_change_with_its_scale_and_is_none_without_a_row(one_layer):
    data = seeds(one_layer.stores["relu"].isel(layer=[0, 0], head=[0, 0]))  # every head of a larger model is the trained one
    set_mass(data, 9.0)
    before = outcomes.by_head(data, "part")
    data["weight"] *= 0.01
    np.testing.assert_allclose(outcomes.by_head(data, "part"), before, rtol=1e-4)
    assert before.min() > 0.4
    data["weight"] *= 0
    assert (outcomes.by_head(data, "part") == 0).all()
