"""trigger/assumptions, heads and sizes: which models they train, how they count, judge and report, without training them."""

from __future__ import annotations

import numpy as np
import pytest

from sinkjax.errors import SinkjaxError
from sinkjax.model.heads import HeadGate
from sinkjax.studies.assemble import assemble
from sinkjax.studies.papers.trigger import _lab as lab
from sinkjax.studies.papers.trigger import assumptions, heads, sizes
from sinkjax.studies.papers.trigger._lab import OTHERS
from sinkjax.studies.papers.trigger.assumptions import Assumptions
from sinkjax.studies.papers.trigger.heads import Heads
from sinkjax.studies.papers.trigger.sizes import Sizes
from sinkjax.studies.registry import choose
from sinkjax.tasks.trigger.task import model
from tests.studies.papers.trigger.conftest import seeds

SMALL = {"seeds": 1, "map_sequences": 200}


def like(data, layers: int, heads: int):
    """A store of a larger model: every head is the trained one."""
    return data.isel(layer=[0] * layers, head=[0] * heads)


def stored(data):
    """A store whose numbers can be changed."""
    return data.copy(deep=True)


def set_mass(data, weight: float, share: float | None = None) -> None:
    """Make every head of a store put this mass on BOS in the other rows."""
    for name, value in (("weight", weight), ("share", weight if share is None else share)):
        data[name].loc[{"rows": OTHERS, "target": "bos"}] = value


def trainings(module, config) -> dict:
    return {spec.name: spec.training for spec in module.STUDY.trainings(config)}


def test_each_assumption_changes_one_thing_of_the_papers_model():
    found = trainings(assumptions, Assumptions())
    assert set(found) == set(assumptions.LABELS)
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
    last = {form.name for form in assumptions.GROUPS[assumptions.NORMALISERS]}
    return {name: seeds(one_layer.stores["relu" if name in last else "softmax"]) for name in assumptions.LABELS}


def test_the_table_says_who_sinks_and_who_solves(assumed):
    config = Assumptions(**SMALL)
    assumed["no-bos"]["loss"][...] = 0.5 * assumed["no-bos"]["null_loss"]
    set_mass(assumed["no-bos"], 0.2)
    set_mass(assumed["sigmoid"], 0.01, share=0.9)
    section = assemble(assumptions.STUDY, config, assumed)
    table = {(row.condition, row.measure): row.value.mean for row in section.rows}
    verdicts = {measure: [] for measure in (assumptions.SOLVING, assumptions.SINKING, assumptions.SHARING)}
    for measure, values in verdicts.items():
        values += [table[label, measure] for label in ("softmax, as in the paper", "no BOS", "sigmoid", "ReLU")]
    assert verdicts[assumptions.SOLVING] == [100, 0, 100, 100]
    assert verdicts[assumptions.SINKING] == [100, 0, 0, 0]
    assert verdicts[assumptions.SHARING] == [100, 0, 100, 0]
    assert section.featured == tuple(assumptions.LABELS.values())
    assert {drawing.name for drawing in section.drawings} == {"attention", "loss", "maps"}
    assert all(drawing.png for drawing in section.drawings)


def test_verdicts_on_assumptions_follow_the_numbers(assumed):
    config = Assumptions(**SMALL)

    def verdicts():
        return [claim.verdict for claim in assemble(assumptions.STUDY, config, assumed).claims]

    # here every softmax model solves its task with a sink, also those without a BOS, and every ReLU without one
    yes, no, idle = "supported", "contradicted", "not applicable"
    assert verdicts() == [yes, no, yes, yes, no, yes, yes, yes, no]
    set_mass(assumed["paper"], 0.2)
    assumed["relu-index"]["written"][...] = 0.9
    set_mass(assumed["relu-count"], 9.0)  # of trigger rows of three
    assert verdicts() == [no, no, yes, yes, no, yes, no, no, no]
    for data in assumed.values():
        data["loss"][...] = 0.5 * data["null_loss"]
    assert verdicts() == [idle, yes, no, no, no, no, idle, no, yes]


def test_eight_runs_of_eight_are_a_majority_and_seven_are_not_shown_to_be(assumed):
    for failed, verdict in ((0, "supported"), (1, "inconclusive")):
        assumed["relu-index"]["loss"][:failed] = 0.5 * assumed["relu-index"]["null_loss"][:failed]
        assert assemble(assumptions.STUDY, Assumptions(**SMALL), assumed).claims[5].verdict == verdict


def test_a_size_is_layers_and_heads_of_a_residual_model():
    found = trainings(heads, Heads(sizes=("2x3",)))
    assert set(found) == {"softmax-2x3", "relu-2x3"}
    for training in found.values():
        assert (training.layers, training.heads, training.with_residual) == (2, 3, True)
        assert training.learning_rates == (1e-4,)
    assert trainings(heads, choose("trigger/heads").config)["relu-4x4"].normalisers == ("relu-index",)


@pytest.fixture
def headed(one_layer):
    """Eight seeds of 2x2 heads: all of softmax's sink in seven, all but one in the last; none of ReLU's."""
    stores = {}
    for name in ("softmax", "relu"):
        data = seeds(like(one_layer.stores[name], 2, 2))
        set_mass(data, 0.9 if name == "softmax" else 0.0)
        stores[f"{name}-2x2"] = data
    for name in ("weight", "share"):
        stores["softmax-2x2"][name].loc[{"rows": OTHERS, "target": "bos", "run": 7, "layer": 1, "head": 0}] = 0.1
    return stores


CONFIG = Heads(sizes=("2x2",), seeds=8, map_sequences=200, moves=(4,))


def head_claims(stores):
    return assemble(heads.STUDY, CONFIG, stores).claims


def test_sinking_heads_are_counted_for_each_seed(headed):
    assert heads.counts(headed["softmax-2x2"], "share", 0.5).tolist() == [4] * 7 + [3]
    assert heads.counts(headed["relu-2x2"], "part", 0.5).tolist() == [0] * 8
    section = assemble(heads.STUDY, CONFIG, headed)
    rows = {(row.condition, row.measure): row.value for row in section.rows}
    count = rows["softmax 2x2", heads.counted("share", CONFIG)]
    assert count.mean == 31 / 8
    assert count.low < count.mean < count.high
    assert rows["softmax 2x2, seed 7", heads.counted("share", CONFIG)].mean == 3
    assert rows["softmax 2x2, layer 1 head 0", lab.BOS_SHARE].mean == pytest.approx(0.8)
    assert [claim.verdict for claim in section.claims] == ["supported"] * 3
    assert {drawing.name for drawing in section.drawings} == {
        "sinking-heads",
        "bos-by-head",
        "heads-softmax-2x2",
        "heads-relu-2x2",
        "learning",
        "interventions",
    }
    assert all(drawing.png for drawing in section.drawings)


def test_a_model_without_sinks_contradicts_theorem_2_and_an_unsolved_run_counts_nowhere(headed):
    set_mass(headed["softmax-2x2"], 0.1)
    headed["relu-2x2"]["written"][...] = 0.8
    assert [claim.verdict for claim in head_claims(headed)] == ["contradicted"] * 3
    for data in headed.values():
        data["loss"].loc[{"run": 0}] = 1.0
    one = head_claims(headed)[0]
    assert (one.verdict, one.estimates[0].value.n) == ("inconclusive", 7)  # fewer than eight decide nothing
    for data in headed.values():
        data["loss"][...] = 1.0
    assert [claim.verdict for claim in head_claims(headed)] == ["not applicable"] * 3
    headed["softmax-2x2"]["share"].loc[{"run": 0}] = np.nan
    counts = heads.counts(headed["softmax-2x2"], "share", 0.5)
    assert np.isnan(counts[0])
    assert counts[1] == 0


def test_a_number_of_heads_is_about_the_published_one_if_its_interval_lies_within_one_of_it(headed):
    for gone, verdict in ((4, "inconclusive"), (8, "contradicted")):
        for name in ("weight", "share"):
            few = {"rows": OTHERS, "target": "bos", "run": slice(0, gone - 1), "layer": 1}
            headed["softmax-2x2"][name].loc[few] = 0.1
        assert head_claims(headed)[1].verdict == verdict


def test_a_weight_in_whole_rows_does_not_change_with_its_scale_and_is_none_without_a_row(headed):
    data = headed["relu-2x2"]
    set_mass(data, 9.0)
    before = lab.on_bos(data, "part")
    data["weight"] *= 0.01
    np.testing.assert_allclose(lab.on_bos(data, "part"), before, rtol=1e-4)
    assert before.min() > 0.4
    assert [claim.verdict for claim in head_claims(headed)][2] == "contradicted"
    data["weight"] *= 0
    assert (lab.on_bos(data, "part") == 0).all()


def test_stores_of_before_it_was_measured_have_nothing_written(headed):
    old = {name: data.drop_vars("written") for name, data in headed.items()}
    assert np.isnan(lab.values(old["relu-2x2"], lab.WRITTEN)).all()
    assert [claim.verdict for claim in head_claims(old)] == ["supported", "supported", "inconclusive"]


def test_each_size_changes_one_thing():
    config = Sizes()
    found = trainings(sizes, config)
    assert len(found) == 2 * (1 + 3 + 2 + 2 + 2 + 2)
    base = found["softmax-base"]
    assert (base.layers, base.heads, base.with_residual, base.scaled, base.bos) == (1, 1, False, False, "flag")
    assert found["softmax-1-layers"].with_residual
    assert found["relu-4-layers"].learning_rates == (config.deep_rate,)
    assert (found["relu-width-32"].width, found["relu-width-32"].length) == (32, 16)
    assert found["softmax-length-8"].length == 8
    assert model(found["softmax-scaled"]).score_scale is None
    assert found["relu-no-bos"].bos == "none"


def test_sizes_report_every_model(one_layer):
    config = Sizes(layers=(2,), heads=(2,), widths=(8,), lengths=(8,), **SMALL)
    stores = {form.name: stored(one_layer.stores[form.name.partition("-")[0]]) for form in sizes.models(config)}
    section = assemble(sizes.STUDY, config, stores)
    assert len(section.featured) == 2 * 7
    table = {(row.condition, row.measure): row.value.mean for row in section.rows}
    assert table["softmax: n = 8", lab.BOS] == pytest.approx(1, abs=0.01)
    assert all(drawing.png for drawing in section.drawings)


def test_a_position_that_a_shorter_sequence_lacks_is_refused():
    with pytest.raises(SinkjaxError, match="lengths must be at least 8, but contains 6"):
        Sizes(lengths=(6,))
