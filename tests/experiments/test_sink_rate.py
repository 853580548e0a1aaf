"""gu/sink-rate: rates, controls and verdicts, and on SmolLM2 a sink that repetition removes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.analysis.intervals import Interval
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.gu import sink_rate
from sinkjax.experiments.gu.config import SinkRate
from sinkjax.experiments.gu.first_token import control_positions, ranked, stretches
from sinkjax.experiments.gu.rates import measure
from sinkjax.experiments.summary import Row
from sinkjax.studies import run
from sinkjax.studies.inputs import drawn
from tests.studies.tiny import study, write_both

PUBLISHED = ({"model": "M", "inputs": "random", "eps": 0.3, "rate": 75, "source": "paper"},)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sink-rate")
    run.carry_out(study("gu/sink-rate", write_both(folder), published=PUBLISHED), folder / "out")
    return folder / "out"


def test_the_rates_are_those_of_the_stored_attention(finished):
    config = study("gu/sink-rate", finished.parent)
    section = run.build(config, finished)
    assert section.featured == ("natural text", "random tokens", "one token repeated")
    received = xarray.open_zarr(finished / "random.zarr", chunks=None)["attention_received"].values[0, ..., 0]
    (row,) = [row for row in section.rows if (row.arm, row.measure) == ("random tokens", measure(0.2))]
    assert row.value.mean == pytest.approx(100 * (received > 0.2).mean())
    assert row.controls == 6


def test_one_token_repeated_is_one_token_a_prompt(finished):
    texts = {name: xarray.open_zarr(finished / f"{name}.zarr").attrs["study"]["token_texts"] for name in ("random", "repeat")}
    assert {len(set(prompt)) for prompt in texts["repeat"]} == {1}
    assert min(len(set(prompt)) for prompt in texts["random"]) > 1


def test_every_claim_has_its_numbers_and_the_papers(finished):
    config = study("gu/sink-rate", finished.parent, published=PUBLISHED)
    text, random, repeat = run.build(config, finished).claims
    assert {claim.verdict for claim in (text, random, repeat)} <= {"confirmed", "not confirmed", "not applicable"}
    assert random.paper == "M 75.00 %"
    assert text.paper == ""


def row(mean: float, percentile: float) -> Row:
    return Row("", "", "", Interval(mean, mean - 1, mean + 1, 9, 0, 0.95, "BCa"), percentile=percentile, controls=20)


@pytest.mark.parametrize(
    ("text", "random", "repeat", "verdicts"),
    [
        (row(70, 100), row(60, 100), row(-1, 50), ["confirmed", "confirmed", "confirmed"]),
        (row(70, 100), row(20, 100), row(5, 100), ["confirmed", "not confirmed", "not confirmed"]),
        (row(70, 95), row(60, 100), row(0, 50), ["not confirmed", "not applicable", "not applicable"]),
        (row(10, 100), row(60, 100), row(0, 50), ["not confirmed", "not applicable", "not applicable"]),
    ],
)
def test_verdicts_follow_their_rule(text, random, repeat, verdicts):
    rows = zip(("natural text", "random tokens", "one token repeated"), (text, random, repeat), strict=True)
    claims = sink_rate._claims(SinkRate(), {(kind, measure(0.3)): row for kind, row in rows})
    assert [claim.verdict for claim in claims] == verdicts


def test_control_positions_are_others_of_the_first_half():
    drawn = [control_positions(64, 20, seed) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == 20
    assert set(drawn[0]) <= set(range(1, 33))
    assert control_positions(8, 20, 0) == (1, 2, 3, 4)


def test_a_rank_counts_the_control_positions_below_the_first():
    values = np.array([[[3.0, 1, 2, 5, 4], [3, 1, 2, 5, np.nan]], [[0, 0, 0, 0, 0], [1, 0, 0, 0, 0]]])
    first, second = ranked(("a", "b"), "group", "measure", values, seed=0)
    assert (first.value.mean, first.percentile, first.controls) == (3, 50, 4)
    assert (second.value.mean, second.percentile) == (0.5, 100)


def test_numbers_that_follow_each_other_are_said_as_a_stretch():
    assert stretches([2, 3, 4, 9, 11, 12]) == "2 to 4, 9, 11 to 12"
    assert stretches([]) == ""


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"other_eps": (0.3,)}, "other_eps must lie between 0 and 1 and differ from eps, and holds 0.3"),
        ({"length": 7}, "length must be at least 8"),
        ({"published": ({"model": "M"},)}, "an entry of published needs model, inputs, eps, rate, source"),
        ({"published": ({**PUBLISHED[0], "inputs": "prose"},)}, "must be one of text, random, repeat, not prose"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(fields, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        SinkRate(**fields)


def test_on_smollm2_random_tokens_sink_and_one_token_repeated_does_not(smollm2):
    """Measured on 100 sequences of 64 tokens: 77 % of heads on random tokens, none with one token repeated."""
    probe = sinkjax.Probe(attention_received=True)
    rates = {}
    for kind in ("random", "repeat"):
        tokens = drawn(kind, smollm2.tokenizer, "none", 6, 48, smollm2.config.vocab_size, seed=0)
        out = sinkjax.forward(smollm2.params, tokens, smollm2.config, probe=probe, logits=False)
        rates[kind] = sinkjax.analysis.metrics.sink_rate(out.record, 0, 0.3).mean()
    assert rates["random"] > 0.5
    assert rates["repeat"] == 0
