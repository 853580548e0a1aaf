"""trigger/one-layer: the outcomes that the paper states, on one seed; what edits do; resumable and rebuilt from its stores."""

from __future__ import annotations

import csv
import re
from typing import Any, cast

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.papers.trigger import _measure as measure
from sinkjax.papers.trigger._outcomes import IDENTITY, OTHERS, TRIGGER
from sinkjax.papers.trigger._task import train
from sinkjax.study import Lab, run, trained, training
from sinkjax.study.assemble import assemble
from sinkjax.study.choice import Chosen, choose
from sinkjax.study.registry import find
from sinkjax.study.trained import specs
from sinkjax.study.work import NO_EDIT
from sinkjax.tasks import load_runs
from sinkjax.tasks.trigger.task import model
from tests.papers.trigger.conftest import config_of, judged, seeds

J = 7  # where the trigger of the maps stands
MASKED, VALUE_OFF = "BOS's key masked", "BOS's value removed"
WEIGHT_OFF, RENORMALISED = "BOS's weight removed", "BOS's weight removed, rows renormalised"


def test_softmax_puts_everything_on_bos_but_at_the_trigger_where_it_is_uniform(one_layer):
    data = one_layer.stores["softmax"]
    assert data["outcome"].values.tolist() == ["converged"]
    assert float(data["weight"].sel(rows=OTHERS, target="bos").min()) >= 0.99
    own = data["map_mean"].values[0, 0, 0, J]
    np.testing.assert_allclose(own[1 : J + 1], 1 / J, atol=2e-3)
    assert own[0] < 1e-3
    assert (own[J + 1 :] == 0).all()
    assert float(data["uneven"].max()) < 5e-3
    assert float(data["map_std"].max()) < 0.02


def test_relu_solves_the_task_without_a_sink(one_layer):
    data = one_layer.stores["relu"]
    assert data["outcome"].values.tolist() == ["converged"]
    assert float(data["weight"].sel(rows=OTHERS).sum("target").max()) < 1e-3
    own = data["map_mean"].values[0, 0, 0, J]
    assert own[1 : J + 1].min() > 0.1
    np.testing.assert_allclose(own[1 : J + 1], own[1 : J + 1].mean(), atol=5e-3)


def test_both_solve_the_task_on_held_out_sequences(one_layer):
    for data in one_layer.stores.values():
        assert float(data["loss"].sel(error_rows="every")[0]) < 1e-6 < 1e-3 < float(data["null_loss"][0])
        assert float(data["largest_error"][0]) < 0.02
        assert 200 < int(data["steps"][0]) < 3000


def losses(data, rows):
    return {str(name): float(data["edited_loss"].sel(edit=name, error_rows=rows)[0]) for name in data["edit"].values}


def test_softmax_needs_bos_to_be_seen_and_not_to_be_read(one_layer):
    others, own = (losses(one_layer.stores["softmax"], rows) for rows in (OTHERS, TRIGGER))
    assert others[IDENTITY] == others[NO_EDIT] < 1e-6
    assert others[MASKED] > 0.05
    assert others[RENORMALISED] == pytest.approx(others[MASKED], rel=1e-3)
    assert max(others[WEIGHT_OFF], others[VALUE_OFF]) < 1e-6
    assert others["BOS moved to position 4"] > 0.01  # rows before it see no BOS
    assert max(others[f"key {key} masked"] for key in (3, 12)) < 1e-6
    assert own[MASKED] < 1e-5
    assert own["key 3 masked"] > 1e-3


def test_relu_does_not_need_bos_in_other_rows(one_layer):
    others = losses(one_layer.stores["relu"], OTHERS)
    assert max(others[name] for name in (NO_EDIT, MASKED, WEIGHT_OFF, VALUE_OFF)) < 1e-6


def test_the_curves_are_those_of_the_log(one_layer):
    data = one_layer.stores["softmax"]
    steps, loss, bos = (data[name].values[0] for name in ("curve_step", "curve_loss", "curve_bos"))
    assert steps[:2].tolist() == [0, one_layer.chosen.config.evaluate_every]
    assert steps[-1] == data["steps"][0]
    assert loss[0] > 1e-3 > loss[-1]
    assert bos[0] < 0.3 < 0.99 < bos[-1]


def test_the_page_has_its_figures(one_layer):
    names = {path.name for path in (one_layer.folder / "figures").glob("*.png")}
    assert names == {"maps.png", "learning.png", "interventions.png"}
    assert "stopping rule" in (one_layer.folder / "report.html").read_text(encoding="utf-8")


def test_the_summary_holds_models_runs_and_edits(one_layer):
    lines = list(csv.DictReader((one_layer.folder / "summary.csv").open()))
    groups = {line["group"] for line in lines}
    assert groups == {trained.MODELS, trained.RUNS, "edits"}
    (steps,) = [line for line in lines if (line["model"], line["measure"]) == ("softmax, seed 0", "steps until then")]
    assert float(steps["mean"]) == int(one_layer.stores["softmax"]["steps"][0])


def test_a_trained_model_is_one_for_the_one_forward(one_layer):
    loaded = load_runs(one_layer.folder / "softmax")
    x, y, _ = measure.held_out(loaded.config.data, 50, seed=9)
    out = sinkjax.forward(loaded.of(0), x, model(loaded.config), logits=False)
    assert float(np.abs(out.output - y).max()) < 0.02


def test_a_finished_run_is_rebuilt_from_its_folder_and_not_trained_again(one_layer, monkeypatch):
    before = (one_layer.folder / "summary.csv").read_bytes()
    monkeypatch.setattr(training, "train", None)
    run.carry_out(choose(str(one_layer.folder)), one_layer.folder)
    assert (one_layer.folder / "summary.csv").read_bytes() == before


def words(one_layer, softmax="softmax", **changes):
    """On eight seeds like the one that was trained, after changes of softmax's store: variable -> value."""
    stores = {name: seeds(one_layer.stores[of]) for name, of in (("softmax", softmax), ("relu", "relu"))}
    for name, value in changes.items():
        stores["softmax"][name] = xarray.full_like(stores["softmax"][name], value)
    return judged("one-layer", one_layer.chosen.config, stores)


def test_eight_seeds_like_the_papers_replicate_it(one_layer):
    assert words(one_layer) == {"softmax": "replicates", "edits": "described", "neutral": "holds"}


def test_one_seed_decides_nothing(one_layer):
    (found, *_) = one_layer.section.verdicts
    assert found.word == "not applicable"
    assert re.search("1 seed of softmax and relu .* 8", found.judgement.reason)


def test_layers_without_a_sink_do_not_replicate_it_and_those_that_do_not_solve_the_task_do_not_count(one_layer):
    assert words(one_layer, softmax="relu")["softmax"] == "undecided"
    assert words(one_layer, loss=1.0)["softmax"] == "not applicable"


def test_an_edit_of_nothing_that_changes_a_loss_fails(one_layer):
    stores = {name: data.copy(deep=True) for name, data in one_layer.stores.items()}
    stores["relu"]["edited_loss"].loc[{"edit": IDENTITY, "error_rows": OTHERS}] += 1e-3
    assert judged("one-layer", one_layer.chosen.config, stores)["neutral"] == "fails"


def test_a_run_that_diverged_or_did_not_finish_is_named_by_its_seed(one_layer):
    changed = {name: data.copy(deep=True) for name, data in one_layer.stores.items()}
    changed["softmax"]["outcome"][...] = "going on"
    changed["relu"]["outcome"] = changed["relu"]["outcome"].astype("U16")
    changed["relu"]["outcome"][...] = "diverged"
    said = " ".join(assemble(find("trigger/one-layer").trace(one_layer.chosen.config, None), changed).findings)
    assert "oftmax: seed 0 going on" in said
    assert "ReLU / max(i, 1): seed 0 diverged" in said


def test_a_trigger_that_cannot_stand_where_it_should_is_refused():
    settings = config_of("one-layer", trigger_position=2)
    lab = Lab(cast(Any, None), settings, program=find("trigger/one-layer"))
    with pytest.raises(SinkjaxError, match=r"trigger position 2 .* 4 to 15"):
        train(lab, settings, "both", "both", {"second_anchor": True, "zero_token": True})
    with pytest.raises(SinkjaxError, match=r"trigger_position .* 2 to 15, not 16"):
        config_of("one-layer", trigger_position=16)


def test_only_some_trainings_can_be_asked_for():
    config = config_of("one-layer", only=("relu",))
    assert [(spec.name, spec.wanted) for spec in specs(find("trigger/one-layer").trace(config, None), config)] == [
        ("softmax", False),
        ("relu", True),
    ]
    with pytest.raises(SinkjaxError, match=r"training 'rely' .*'relu'"):
        specs(find("trigger/one-layer").trace(config, None), config_of("one-layer", only=("rely",)))


def test_a_plan_makes_nothing(tmp_path):
    chosen = Chosen("trigger/one-layer", config_of("one-layer"))
    ((softmax, architecture, _), (relu, _, _)) = run.work(chosen)
    assert (softmax.name, relu.name) == ("softmax", "relu")
    assert (architecture.layers, architecture.heads, architecture.mlp_width) == (1, 1, None)
