"""trigger/assumptions, heads and sizes: which models they train, how they count, judge and report, without training them."""

from __future__ import annotations

import numpy as np
import pytest

from sinkjax.model.heads import HeadGate
from sinkjax.papers.trigger import _outcomes as outcomes
from sinkjax.papers.trigger import assumptions, heads
from sinkjax.papers.trigger._outcomes import OTHERS
from sinkjax.study.assemble import assemble
from sinkjax.study.choice import choose
from sinkjax.study.registry import find
from sinkjax.study.trained import specs
from sinkjax.tasks.trigger.task import model
from tests.papers.trigger.conftest import config_of, judged, seeds, spread

LABELS = [name for group in assumptions.GROUPS.values() for name in group]
SMALL = {"map_sequences": 200}
SHARE, WEIGHT = (f"heads whose {kind} on BOS in other rows is at least 0.5 (%)" for kind in ("share", "weight"))
SOLVING = "runs that solve the task (%)"


def like(data, layers: int, heads: int):
    """A store of a larger model: every head is the trained one."""
    return data.isel(layer=[0] * layers, head=[0] * heads)


def set_mass(data, weight: float, share: float | None = None) -> None:
    """Make every head of a store put this mass on BOS in the other rows."""
    for name, value in (("weight", weight), ("share", weight if share is None else share)):
        data[name].loc[{"rows": OTHERS, "target": "bos"}] = value + spread(data)


def trainings(study: str, **settings) -> dict:
    config = config_of(study, **settings) if settings else choose(f"trigger/{study}").config
    return {spec.name: spec.training for spec in specs(find(f"trigger/{study}").trace(config, None), config)}


def table(study: str, config, stores) -> dict:
    section = assemble(find(f"trigger/{study}").trace(config, None), stores)
    assert all(drawing.png for drawing in section.drawings)
    return {(row.condition, row.measure): row.value for row in section.rows}


def test_each_assumption_changes_one_thing_of_the_papers_model():
    found = trainings("assumptions")
    assert set(found) == set(LABELS)
    plain = {"bos": "flag", "second_anchor": False, "zero_token": False, "gate": False, "normalisers": ("softmax",)}
    changed = {
        name: {field: getattr(training, field) for field, value in plain.items() if getattr(training, field) != value}
        for name, training in found.items()
    }
    assert changed["paper"] == {}
    assert changed["gate"] == {"gate": True}
    assert changed["sink-logit-no-bos"] == {"normalisers": ("sink-logit",), "bos": "none"}
    assert all(len(fields) == 1 + name.endswith("-no-bos") for name, fields in changed.items() if name not in ("paper", "no-bos"))
    assert model(found["gate"]).gate == HeadGate()
    assert not any(model(training).residual for training in found.values())
    assert {(training.seeds, training.steps) for training in found.values()} == {(8, 10_000)}


@pytest.fixture
def assumed(one_layer):
    """Stores in which all normalisers of the last group are ReLU and all else is softmax."""
    return {name: seeds(one_layer.stores["relu" if name in assumptions.NORMALISERS else "softmax"]) for name in LABELS}


def test_the_table_says_who_sinks_and_who_solves(assumed):
    assumed["no-bos"]["loss"][...] = 0.5 * assumed["no-bos"]["null_loss"]
    set_mass(assumed["no-bos"], 0.2)
    set_mass(assumed["sigmoid"], 0.01, share=0.9)
    found = table("assumptions", config_of("assumptions", **SMALL), assumed)
    shown = ("softmax, as in the paper", "no BOS", "sigmoid", "ReLU")
    assert [found[label, SOLVING].mean for label in shown] == [100, 0, 100, 100]
    assert [found[label, WEIGHT].mean for label in shown] == [100, 0, 0, 0]


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


def test_an_escape_is_varied_one_thing_at_a_time():
    found = trainings("escapes")
    assert len(found) == 35
    assert found["gate-start-4"].escape == 4
    assert found["off-by-one-rate-1e-4"].learning_rates == (1e-4,)
    assert {training.gate for name, training in found.items() if name.startswith("gate")} == {True}
    charged = [training for name, training in found.items() if "penalty" in name]
    assert sorted({training.penalty for training in charged}) == [0, 1e-5, 1e-4, 1e-3]
    assert {training.steps for training in charged} == {3000}
    assert {training.steps for training in found.values() if training not in charged} == {10_000}


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


def test_a_size_is_layers_and_heads_of_a_residual_model():
    found = trainings("heads")
    assert list(found) == ["softmax-2x2", "relu-2x2", "softmax-4x4", "relu-4x4"]
    assert {(training.layers, training.heads) for training in found.values()} == set(heads.SIZES.values())
    for training in found.values():
        assert training.with_residual
        assert training.learning_rates == (1e-4,)
    assert found["relu-4x4"].normalisers == ("relu-index",)


@pytest.fixture
def headed(one_layer):
    """Eight seeds of each size: all of softmax's heads sink in seven, all but one in the last; none of ReLU's."""
    stores = {}
    for size, shape in heads.SIZES.items():
        for name in ("softmax", "relu"):
            data = seeds(like(one_layer.stores[name], *shape))
            set_mass(data, 0.9 if name == "softmax" else 0.0)
            stores[f"{name}-{size}"] = data
    for name in ("weight", "share"):
        stores["softmax-2x2"][name].loc[{"rows": OTHERS, "target": "bos", "run": 7, "layer": 1, "head": 0}] = 0.1
    return stores


CONFIG = config_of("heads", seeds=8, map_sequences=200, moves=(4,))


def test_sinking_heads_are_counted_for_each_seed(headed):
    found = table("heads", CONFIG, headed)
    count = found["softmax 2x2", SHARE]
    assert count.mean == 100 * 31 / 32
    assert count.low < count.mean < count.high
    assert found["softmax 2x2, seed 7", SHARE].mean == 75
    section = assemble(find("trigger/heads").trace(CONFIG, None), headed)
    words = {verdict.name: verdict.word for verdict in section.verdicts}
    assert words == {"strongest-2x2": "replicates", "strongest-4x4": "replicates", "edits": "described", "neutral": "holds"}
    assert {drawing.name for drawing in section.drawings} == {
        *("sinking-heads", "bos-by-head", "learning", "interventions"),
        *(f"heads-{name}" for name in headed),
    }


def test_what_has_run_is_shown_while_the_rest_is_still_to_run(headed):
    some = {name: data for name, data in headed.items() if name.endswith("2x2")}
    section = assemble(find("trigger/heads").trace(CONFIG, None), some)
    words = {verdict.name: verdict.word for verdict in section.verdicts}
    assert (words["strongest-2x2"], words["strongest-4x4"]) == ("replicates", "not applicable")
    drawn = {drawing.name for drawing in section.drawings}
    assert {"heads-softmax-2x2", "sinking-heads"} <= drawn
    assert "heads-softmax-4x4" not in drawn
    one = assemble(find("trigger/heads").trace(CONFIG, None), {"relu-4x4": headed["relu-4x4"]})
    assert {drawing.name for drawing in one.drawings} == {"heads-relu-4x4", "bos-by-head", "learning", "interventions"}


def test_a_model_without_sinks_differs_and_an_unsolved_run_counts_nowhere(headed):
    set_mass(headed["softmax-2x2"], 0.1)
    set_mass(headed["relu-2x2"], 1.0)
    set_mass(headed["softmax-4x4"], 0.3)
    set_mass(headed["relu-4x4"], 0.0)
    words = judged("heads", CONFIG, headed)
    assert (words["strongest-2x2"], words["strongest-4x4"]) == ("opposite", "replicates")
    headed["softmax-4x4"]["loss"].loc[{"run": 0}] = 1.0
    assert judged("heads", CONFIG, headed)["strongest-4x4"] == "not applicable"


def test_a_weight_in_whole_rows_does_not_change_with_its_scale_and_is_none_without_a_row(headed):
    data = headed["relu-2x2"]
    set_mass(data, 9.0)
    before = outcomes.by_head(data, "part")
    data["weight"] *= 0.01
    np.testing.assert_allclose(outcomes.by_head(data, "part"), before, rtol=1e-4)
    assert before.min() > 0.4
    data["weight"] *= 0
    assert (outcomes.by_head(data, "part") == 0).all()


def test_each_size_changes_one_thing():
    found = trainings("sizes")
    assert len(found) == 2 * (1 + 3 + 2 + 2 + 2 + 2)
    base = found["softmax-base"]
    assert (base.layers, base.heads, base.with_residual, base.scaled, base.bos) == (1, 1, False, False, "flag")
    assert found["softmax-1-layers"].with_residual
    assert trainings("sizes", deep_rate=2e-4)["relu-4-layers"].learning_rates == (2e-4,)
    assert (found["relu-width-32"].width, found["relu-width-32"].length) == (32, 16)
    assert found["softmax-length-8"].length == 8
    assert model(found["softmax-scaled"]).score_scale is None
    assert found["relu-no-bos"].bos == "none"


def test_sizes_report_every_model(one_layer):
    stores = {name: one_layer.stores[name.partition("-")[0]].copy(deep=True) for name in trainings("sizes")}
    found = table("sizes", config_of("sizes", **SMALL), stores)
    assert found["softmax: n = 8", "weight on BOS in other rows"].mean == pytest.approx(1, abs=0.01)
