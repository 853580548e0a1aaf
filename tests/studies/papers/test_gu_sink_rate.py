"""gu/sink-rate: rates and ranks from stored attention, verdicts at their bounds, control positions and refusals."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import xarray

from sinkjax.analysis.claims import judge
from sinkjax.errors import SinkjaxError
from sinkjax.studies.papers.gu._first_token import positions
from sinkjax.studies.papers.gu.sink_rate import KINDS, NORM, STUDY, SinkRate, measure
from sinkjax.studies.results import Results

PUBLISHED = ({"model": "M", "inputs": "random", "eps": 0.3, "rate": 75, "source": "paper"},)
CONFIG = SinkRate(length=8, controls=3, published=PUBLISHED)


def stored(received: np.ndarray) -> xarray.Dataset:
    """An unedited run. received: float[prompt, layer, head, key]."""
    norms = np.ones((1, received.shape[0], 3, received.shape[-1]))
    norms[..., 0] = 5
    arrays = {
        "attention_received": (("edit", "prompt", "layer", "head", "key"), received[None]),
        "resid_norm": (("edit", "prompt", "depth", "position"), norms),
    }
    return xarray.Dataset(arrays, {"edit": ["no edit"]}, {"sweep": {"config": {"layers": received.shape[1]}}})


def test_the_rates_are_those_of_the_stored_attention(rng):
    runs = {store: rng.uniform(0, 1, (4, 2, 4, 8)) for store in KINDS}
    found = Results(STUDY, CONFIG, {store: stored(received) for store, received in runs.items()}).own
    for store, kind in KINDS.items():
        rates = 100 * (runs[store] > 0.2).mean(axis=(0, 1, 2))
        made = found[kind, measure(0.2)]
        others = [rates[position] for position in positions(CONFIG)[1:]]
        assert made.value.mean == pytest.approx(rates[0])
        assert made.rank.percentile == pytest.approx(100 * np.mean([(o < rates[0]) + (o == rates[0]) / 2 for o in others]))
        assert made.rank.controls == 3
        assert found[kind, NORM].value.mean == 5
        assert found[kind, NORM].rank is None


LONG = SinkRate(length=64)
HEADS = 40


def planted(text: float = 70, random: float = 60, repeat: float = 0, others: float = 0, **config: Any) -> list[str]:
    """Verdicts where these shares of heads sink on key 0, in per cent and two heads more or less, and on every other key."""
    runs = {}
    for store, rate in (("text", text), ("random", random), ("repeat", repeat)):
        sinks = round(HEADS * rate / 100) + np.array([-2, 2, 0, 0] * 4 if store != "repeat" else [0] * 16)
        received = np.zeros((16, 1, HEADS, 64))
        received[..., 0] = (np.arange(HEADS) < sinks[:, None])[:, None]
        received[..., 1:] = (np.arange(HEADS) < HEADS * others / 100)[:, None]
        runs[store] = stored(received)
    results = Results(STUDY, dataclasses.replace(LONG, **config), runs)
    return [judge(claim, results).verdict for claim in STUDY.claims(results.config, results.architecture)]


@pytest.mark.parametrize(
    ("changed", "verdicts"),
    [
        ({}, ["supported", "supported", "supported"]),
        ({"text": 15, "random": 15}, ["supported", "supported", "supported"]),
        ({"random": 35}, ["supported", "inconclusive", "supported"]),
        ({"random": 20}, ["supported", "contradicted", "supported"]),
        ({"others": 75}, ["inconclusive", "inconclusive", "supported"]),
        ({"text": 10}, ["inconclusive", "inconclusive", "supported"]),
        ({"text": 5}, ["contradicted", "not applicable", "supported"]),
        ({"repeat": 5}, ["supported", "supported", "contradicted"]),
        ({"repeat": 5, "bos": "model"}, ["supported", "not applicable", "not applicable"]),
        ({"repeat": 5, "random": 20, "bos": 0}, ["supported", "not applicable", "not applicable"]),
    ],
)
def test_verdicts_follow_their_rule(changed, verdicts):
    assert planted(**changed) == verdicts


def test_only_text_is_clustered_by_its_documents(rng):
    """Random and repeated tokens have no documents, so each of their prompts is a sample."""
    runs = {store: stored(rng.uniform(0, 1, (8, 2, 4, 8))) for store in KINDS}
    runs["text"].attrs["study"] = {"documents": ["a", "b"] * 4}
    results = Results(STUDY, CONFIG, runs)
    _, _, repeat = STUDY.claims(CONFIG, results.architecture)
    assert repeat.rule(results).estimates[0].value.clusters is None
    assert results.own[KINDS["text"], measure(0.3)].value.clusters is not None


def test_a_claim_has_the_papers_numbers_of_its_inputs_and_threshold():
    assert [claim.paper for claim in STUDY.claims(CONFIG, None)] == ["", "M 75.00 %", ""]
    assert CONFIG.published_at("random", 0.2) == []


def test_control_positions_are_others_of_the_first_half():
    drawn = [positions(SinkRate(length=64, controls=20, seed=seed)) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0][0] == 0
    assert len(set(drawn[0])) == 21
    assert set(drawn[0][1:]) <= set(range(1, 33))
    assert positions(SinkRate(length=8)) == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"other_eps": (0.3,)}, "other_eps must lie between 0 and 1 and differ from eps, but contains 0.3"),
        ({"length": 7}, "length must be at least 8"),
        ({"published": ({"model": "M"},)}, "an entry of published needs model, inputs, eps, rate, source"),
        ({"published": ({**PUBLISHED[0], "inputs": "prose"},)}, "must be one of text, random, repeat, not prose"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(fields, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        SinkRate(**fields)
