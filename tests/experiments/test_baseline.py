"""kiya/baseline: two runs of the same text, onsets as defined, verdicts by their rules, and SmolLM2's order of events."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.kiya import baseline, bos
from sinkjax.experiments.kiya.config import Baseline
from sinkjax.studies import run
from sinkjax.studies.run import plans
from tests.experiments.test_mask import TEXTS
from tests.studies.tiny import LAYERS, study, write_both

T = 20


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_both(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def finished(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "baseline"
    run.carry_out(study("kiya/baseline", files, length=T, map_layers=[0, 2]), out)
    return out


def record(
    sink_from: int, massive_from: int, by_sun_from: int = 0, layers: int = 6, prompts: int = 3, length: int = T
) -> xarray.Dataset:
    """A run whose key 0 is every head's sink from one layer on, and whose |h| at position 0 is 100 after another one, and 2,000
    after a third one, if that comes later."""
    received = np.full((1, prompts, layers, 2, length), 0.01)
    received[:, :, sink_from:, :, 0] = 0.9
    largest = np.ones((1, prompts, layers + 1, length))
    largest[:, :, massive_from + 1 :, 0] = 100
    largest[:, :, max(massive_from, by_sun_from) + 1 :, 0] = 2000
    return xarray.Dataset(
        {
            "attention_received": (("edit", "prompt", "layer", "head", "key"), received),
            "resid_max": (("edit", "prompt", "depth", "position"), largest),
            "resid_median": (("edit", "prompt", "depth", "position"), np.ones_like(largest)),
        }
    )


def test_the_run_with_bos_reads_the_same_text_after_it(finished):
    plain, with_bos = (xarray.open_zarr(finished / f"{name}.zarr", chunks=None)["tokens"].values for name in ("plain", "bos"))
    assert (with_bos[:, 0] == 0).all()
    np.testing.assert_array_equal(with_bos[:, 1:], plain[:, :-1])
    assert not (plain == 0).any()


def test_a_model_without_bos_runs_without_one_and_says_so(files, finished, tmp_path):
    (tmp_path / "model").mkdir()
    for file in (files / "model").iterdir():
        (tmp_path / "model" / file.name).write_bytes(file.read_bytes())
    (tmp_path / "model" / "tokenizer_config.json").write_text(json.dumps({"bos_token": None}))
    (tmp_path / "text.txt").write_bytes((files / "text.txt").read_bytes())
    section = run.carry_out(study("kiya/baseline", tmp_path, length=T, map_layers=[0]), tmp_path / "out")
    assert section.featured == (bos.WITHOUT,)
    assert "names no BOS" in section.findings[-1] or "name no BOS" in section.findings[-1]
    both = run.build(study("kiya/baseline", files, length=T, map_layers=[0, 2]), finished)
    assert both.featured == (bos.WITHOUT, bos.WITH)
    alone = {row.measure: row.value for row in section.rows}
    assert all(alone[row.measure] == row.value for row in both.rows if row.arm == bos.WITHOUT)


def test_a_token_id_can_be_the_bos(files):
    chosen = study("kiya/baseline", files, length=T, map_layers=[0], bos=7)
    inputs = [job.inputs.bos for job, _, _ in plans(chosen)]
    assert inputs == ["none", 7, "none", 7, "none", 7]


def test_position_0_is_ranked_among_all_other_positions_that_enough_queries_see(finished):
    section = run.build(study("kiya/baseline", Path(), length=T, map_layers=[0, 2]), finished)
    (row,) = [row for row in section.rows if row.arm == bos.WITH and row.measure == "largest |h| at position 0"]
    largest = xarray.open_zarr(finished / "bos.zarr", chunks=None)["resid_max"].values[0].max(axis=1).mean(axis=0)
    assert row.controls == T - 8
    assert row.percentile == pytest.approx(100 * (largest[1 : T - 7] < largest[0]).mean())


@pytest.mark.parametrize(("sink", "massive", "verdict"), [(3, 2, "confirmed"), (2, 2, "not confirmed"), (1, 3, "not confirmed")])
def test_the_order_of_onsets_decides_the_claim_on_order(sink, massive, verdict):
    data = record(sink, massive)
    assert baseline.sink_onset(Baseline(), data).tolist() == [sink] * 3
    assert baseline.massive_onset(Baseline(), data).tolist() == [massive] * 3
    claims = baseline._claims(Baseline(), {bos.WITHOUT: data})
    assert [claim.verdict for claim in claims] == ["confirmed", "confirmed", "confirmed", verdict]


def test_both_definitions_of_massive_are_asked_for_the_order_and_for_the_activation():
    later = baseline._claims(Baseline(), {bos.WITHOUT: record(3, 2, by_sun_from=4)})
    assert [claim.verdict for claim in later] == ["confirmed", "confirmed", "confirmed", "not confirmed"]
    assert "+1.00 layers" in later[3].evidence
    assert "by Sun et al.: -1.00 layers" in later[3].evidence
    never = baseline._claims(Baseline(), {bos.WITHOUT: record(3, 2, by_sun_from=6)})
    assert [claim.verdict for claim in never] == ["confirmed", "not confirmed", "confirmed", "confirmed"]


def test_without_sink_or_massive_activation_nothing_is_confirmed_and_their_order_is_no_question():
    claims = baseline._claims(Baseline(), {bos.WITHOUT: record(sink_from=6, massive_from=6)})
    assert [claim.verdict for claim in claims] == ["not confirmed"] * 3 + ["not applicable"]


def test_a_rule_must_hold_in_every_run():
    runs = {bos.WITHOUT: record(3, 2), bos.WITH: record(3, 4)}
    assert [claim.verdict for claim in baseline._claims(Baseline(), runs)][-1] == "not confirmed"


def test_a_second_massive_position_does_not_hide_the_first():
    data = record(3, 2)
    data["resid_max"][:, :, 1:, 5] = 90
    np.testing.assert_allclose(bos.prominence(data, 0)[0, :, -1], 2000)


def test_a_layer_that_the_model_lacks_is_refused(files):
    with pytest.raises(SinkjaxError, match=f"map_layers has layer {LAYERS}, but the model has {LAYERS}, 0 to {LAYERS - 1}"):
        list(plans(study("kiya/baseline", files, length=T, map_layers=[LAYERS])))
    with pytest.raises(SinkjaxError, match="negative layer -1"):
        Baseline(map_layers=(-1,))


def test_figures_and_page_name_both_runs(finished):
    names = {path.stem for path in (finished / "figures").iterdir()}
    assert names == {"by-layer", "attention-without-bos", "attention-with-bos", "largest-activation"}
    page = (finished / "report.html").read_text(encoding="utf-8")
    assert "with BOS" in page


def test_on_smollm2_the_first_token_has_both_and_the_massive_activation_comes_first(smollm2):
    """Measured on these texts: massive after layer 1 or 2, most heads sink from layer 3 or 12 on; 56 to 73 % of heads; 280 x."""
    config = Baseline(prompts=len(TEXTS))
    texts = [" ".join(TEXTS[number:] + TEXTS[:number]) for number in range(len(TEXTS))]
    tokens, lengths = sinkjax.encode(smollm2, texts, bos="none", length=config.length)
    probe = sinkjax.Probe(attention_received=True, resid_max=True)
    found = sinkjax.forward(smollm2.params, tokens, smollm2.config, probe=probe, lengths=lengths, logits=False).record
    data = sinkjax.to_dataset(found, {}).expand_dims("edit")
    rates = bos.sink_rates(data, config.eps)[:, 0]
    assert (rates[0] > 45).all()
    assert (rates[1:] < 30).all()
    assert (bos.prominence(data, 0)[0].max(axis=-1) > 100).all()
    assert (baseline.massive_onset(config, data) <= 2).all()
    assert (baseline.sink_onset(config, data) >= 3).all()
