"""kiya/baseline: two runs of the same text, onsets as defined, ranks among the other positions, and verdicts by their rules."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import xarray

from sinkjax.analysis.claims import Claim, judge
from sinkjax.analysis.estimates import Absent, present
from sinkjax.checkpoints.load import open_checkpoint
from sinkjax.errors import SinkjaxError
from sinkjax.studies.assemble import standard_notes
from sinkjax.studies.papers.kiya import _bos, baseline
from sinkjax.studies.papers.kiya.baseline import STUDY, Baseline
from sinkjax.studies.results import Results
from sinkjax.studies.specs import ABSENT, specs
from tests.studies.tiny import LAYERS, study, write_both

T = 20
WHY = "the files of m name no BOS token; give a token id as bos"


def record(sink_from: int, massive_from: int, by_sun_from: int = 0, layers: int = 6, prompts: int = 16) -> xarray.Dataset:
    """A run whose key 0 is every head's sink from one layer on, and whose |h| at position 0 is 100 after another one, and 2,000
    after a third one, if that comes later."""
    received = np.full((1, prompts, layers, 2, T), 0.01)
    received[:, :, sink_from:, :, 0] = 0.9
    largest = np.ones((1, prompts, layers + 1, T))
    largest[:, :, massive_from + 1 :, 0] = 100
    largest[:, :, max(massive_from, by_sun_from) + 1 :, 0] = 2000
    return xarray.Dataset(
        {
            "attention_received": (("edit", "prompt", "layer", "head", "key"), received),
            "resid_max": (("edit", "prompt", "depth", "position"), largest),
            "resid_median": (("edit", "prompt", "depth", "position"), np.ones_like(largest)),
            "nll": (("edit", "prompt", "position"), np.ones((1, prompts, T))),
        },
        {"edit": ["no edit"]},
    )


def results(plain: xarray.Dataset, bos: xarray.Dataset | None = None, text: str = "<s>", setting: str | int = "none") -> Results:
    """Both runs; without `bos` the model has none. text: of the BOS. setting: `bos` of the config."""
    stores = {"plain": plain, "bos": xarray.Dataset(attrs={ABSENT: WHY}) if bos is None else bos}
    attributes = {"sweep": {"config": {"layers": plain.sizes["layer"]}, "model": {"name": "m"}, "dtype": "float32"}}
    attributes["study"] = {"first_tokens": [[1, text]], "text": "planted", "bos": "none"}
    return Results(
        STUDY, Baseline(length=T, bos=setting), {name: store.assign_attrs(attributes) for name, store in stores.items()}
    )


def claims(found: Results, run: str = "without BOS") -> list[Claim]:
    """The claims on one of the runs: the sink, the massive activation, depth, order."""
    return [claim for claim in STUDY.claims(found.config, found.architecture) if run in claim.statement]


def verdicts(found: Results, run: str = "without BOS") -> list[str]:
    return [judge(claim, found).verdict for claim in claims(found, run)]


@pytest.mark.parametrize(
    ("sink", "massive", "verdict"), [(3, 2, "supported"), (2, 2, "contradicted"), (4, 2, "contradicted"), (1, 3, "contradicted")]
)
def test_the_order_of_onsets_decides_the_claim_on_order(sink, massive, verdict):
    found = results(record(sink, massive))
    for what, layer in (("sink", sink), ("massive activation", massive)):
        row = found.own["without BOS", f"layer of the {what}'s onset"].value
        assert (row.mean, row.low, row.high) == (layer, layer, layer)
    assert verdicts(found) == ["supported", "supported", "supported", verdict]


def test_the_order_is_judged_by_the_definition_of_sun_et_al_and_the_other_stands_beside():
    later = results(record(3, 2, by_sun_from=4))
    assert verdicts(later) == ["supported", "supported", "supported", "contradicted"]
    *_, order = claims(later)
    layers = {entry.name: entry.mean for entry in judge(order, later).estimates if "layers" in entry.name}
    assert list(layers.values()) == [-1, 1]
    assert verdicts(results(record(3, 2, by_sun_from=6))) == ["supported", "contradicted", "supported", "not applicable"]


def test_the_order_is_that_of_each_prompt_and_prompts_without_one_are_left_out():
    data = record(3, 2)
    data["resid_max"][:, 3:, :, 0] = 1  # these have no massive activation
    data["resid_max"][:, 1, 1:, 0] = 2000  # and this one has it from the start
    found = results(data)
    *_, order = claims(found)
    judged = judge(order, found)
    share, gaps = (entry.value for entry in judged.estimates[:2])
    assert (share.mean, share.n, share.excluded) == (pytest.approx(2 / 3), 3, 13)
    assert (gaps.mean, gaps.n, gaps.excluded) == (pytest.approx(5 / 3), 3, 13)
    assert judged.verdict == "not applicable"  # three of 16 prompts have both
    assert "the share of prompts with a sink and a massive activation" in judged.reason


@pytest.mark.parametrize(
    ("leads", "verdict"),
    [
        ((1,) * 16, "supported"),
        ((1,) * 13 + (0, 2, 2), "supported"),
        ((1,) * 13 + (None,) * 3, "supported"),  # left out, not counted as another order
        ((0, 2) * 8, "contradicted"),  # one layer on average, in no prompt
        ((1,) * 10 + (2,) * 6, "inconclusive"),
        ((1,) * 9 + (None,) * 7, "inconclusive"),  # too few more than half have both
    ],
)
def test_the_activation_comes_one_layer_before_in_most_prompts_and_not_on_average(leads, verdict):
    data = record(3, 2)
    for prompt, layers in enumerate(leads):
        data["resid_max"][:, prompt, 1:, 0] = 1
        if layers is not None:
            data["resid_max"][:, prompt, 1 + 3 - layers :, 0] = 2000
    found = results(data)
    *_, order = claims(found)
    assert judge(order, found).verdict == verdict


def test_most_prompts_must_have_the_activation_somewhere_and_not_all_after_one_layer():
    data = record(3, 2, by_sun_from=6)
    for prompt in range(15):
        data["resid_max"][:, prompt, 1 + prompt % 6, 0] = 2000
    assert verdicts(results(data))[1] == "supported"


def test_without_sink_or_massive_activation_depth_and_order_are_no_question():
    expected = ["inconclusive", "contradicted", "not applicable", "not applicable"]
    assert verdicts(results(record(sink_from=6, massive_from=6))) == expected


@pytest.mark.parametrize(
    ("bos", "expected"),
    [
        (record(3, 4), ["supported", "supported", "supported", "contradicted"]),
        (record(6, 2), ["inconclusive", "supported", "not applicable", "not applicable"]),  # nor is there an order
        (record(3, 6), ["supported", "contradicted", "inconclusive", "not applicable"]),
        (record(0, 0), ["supported", "supported", "contradicted", "contradicted"]),
    ],
)
def test_each_run_has_its_own_verdicts(bos, expected):
    found = results(record(3, 2), bos)
    assert verdicts(found) == ["supported"] * 4
    assert verdicts(found, "with BOS") == expected


@pytest.mark.parametrize(
    ("text", "setting", "plain", "bos"),
    [
        ("<s>", "none", "supported", "supported"),
        ("<s>", "model", "not applicable", "supported"),  # it learned with its BOS in front of every block
        ("<|im_start|>", "none", "supported", "not applicable"),  # which opens a turn of a chat
        ("<|im_start|>", 1, "supported", "supported"),  # the config vouches for it
    ],
)
def test_prompts_that_the_model_did_not_meet_in_training_decide_nothing(text, setting, plain, bos):
    found = results(record(3, 2), record(3, 2), text, setting)
    assert verdicts(found) == [plain] * 4
    assert verdicts(found, "with BOS") == [bos] * 4


def test_the_papers_readout_is_reported_at_half_depth_and_in_the_first_layers():
    found = results(record(1, 2))
    assert found.own["without BOS", "attention to key 0 at half depth, mean over heads (%)"].value.mean == pytest.approx(90)
    numbers = {each.name: each.mean for each in present(STUDY.findings(found.config, found.architecture), found)}
    seen = [value for name, value in numbers.items() if name.startswith("attention to key 0 in layer")]
    assert seen == pytest.approx([1, 90, 90])


def test_a_second_massive_position_does_not_hide_the_first():
    data = record(3, 2)
    data["resid_max"][:, :, 1:, 5] = 90
    np.testing.assert_allclose(_bos.prominence(data, 0)[0, :, -1], 2000)


def test_position_0_is_ranked_among_all_other_positions_that_enough_queries_see():
    plain, bos = record(3, 2), record(4, 2)
    bos["resid_max"][..., 3:6] = 5000
    found = results(plain, bos)
    row = found.own["with BOS", "largest |h| at position 0"]
    assert (row.series, row.rank.controls) == ("no edit", T - 8)
    assert row.rank.percentile == pytest.approx(100 * (T - 8 - 3) / (T - 8))
    assert row.effect.mean == 0
    sinks = found.own["with BOS", "heads that sink on key 0 (%)"]
    assert sinks.effect.mean == pytest.approx(100 * (2 - 3) / 6)
    assert found.own["with BOS", "loss (nats per token)"].rank is None
    assert [row.condition for row in baseline.rows(found)] == ["without BOS"] * 9 + ["with BOS"] * 9


def test_a_model_without_bos_runs_without_one_and_says_so():
    found = results(record(3, 2))
    assert {row.condition for row in found.own.values()} == {"without BOS"}
    assert verdicts(found, "with BOS") == ["not applicable"] * 4
    assert f"Some runs are missing: {WHY}." in standard_notes(found)
    figures = present(STUDY.figures(found.config, found.architecture), found)
    assert [figure and figure.name for figure in figures] == ["by-layer", None, None, "largest-activation"]  # there are no maps


def test_a_line_along_runs_that_did_not_take_place_is_absent():
    """So that a figure leaves it out, and does not call its labels unknown."""
    found = results(record(3, 2))
    with pytest.raises(Absent, match=WHY):
        found.line("sinks", baseline.measures(found.config)[0], ["with BOS: no edit"])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_both(tmp_path_factory.mktemp("tiny"))


def inputs(folder: Path, **fields: object) -> dict[str, object]:
    config = study("kiya/baseline", folder, length=T, **fields).config
    return {spec.name: spec.inputs.bos for spec in specs(STUDY, config, open_checkpoint(config.model).config)}


def test_the_second_run_has_the_models_bos_or_the_token_id_that_is_asked_for(files):
    expected = {"plain": "none", "bos": 0, "maps": "none", "maps-bos": 0}
    assert inputs(files) == expected
    assert inputs(files, bos=7) == expected | {"bos": 7, "maps-bos": 7}


def test_the_store_of_a_run_without_a_bos_says_why(files, tmp_path):
    (tmp_path / "model").mkdir()
    for file in (files / "model").iterdir():
        (tmp_path / "model" / file.name).write_bytes(file.read_bytes())
    (tmp_path / "model" / "tokenizer_config.json").write_text(json.dumps({"bos_token": None}))
    assert inputs(tmp_path) == {"plain": "none", "bos": "none", "maps": "none"}
    config = study("kiya/baseline", tmp_path, length=T).config
    (reason,) = (spec for spec in specs(STUDY, config, open_checkpoint(config.model).config) if spec.name == "bos")
    assert "name no BOS token; give a token id as bos" in reason.compute(None, None).attrs[ABSENT]


def test_a_layer_that_the_model_lacks_is_refused(files):
    architecture = open_checkpoint(str(files / "model")).config
    for layer, sentence in ((LAYERS, f"the model has {LAYERS}, 0 to {LAYERS - 1}"), (-1, "negative layer -1")):
        with pytest.raises(SinkjaxError, match=sentence):
            specs(STUDY, dataclasses.replace(study("kiya/baseline", files, length=T).config, map_layers=(layer,)), architecture)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"massive": 1.0}, "massive must be above 1"),
        ({"onset": 1.0}, "onset must lie between 0 and 1"),
        ({"length": 8}, "length"),
    ],
)
def test_wrong_settings_are_refused(fields, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        Baseline(**fields)
