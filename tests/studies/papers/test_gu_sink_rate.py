"""gu/sink-rate: rates and ranks from stored attention, verdicts at their bounds, control positions and refusals."""

from __future__ import annotations

import numpy as np
import pytest
import xarray

from sinkjax.errors import SinkjaxError
from sinkjax.studies.papers.gu._first_token import positions
from sinkjax.studies.papers.gu.sink_rate import KINDS, NORM, STUDY, SinkRate, measure
from sinkjax.studies.results import Results
from tests.studies.planted import Planted, row

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
        assert made.percentile == pytest.approx(100 * np.mean([(o < rates[0]) + (o == rates[0]) / 2 for o in others]))
        assert made.controls == 3
        assert found[kind, NORM].value.mean == 5
        assert found[kind, NORM].percentile is None


@pytest.mark.parametrize(
    ("text", "random", "repeat", "verdicts"),
    [
        ((70, 100), (60, 100), (-1, 50), ["supported", "supported", "supported"]),
        ((11, 100), (12, 100), (-0.1, 50), ["supported", "supported", "supported"]),
        ((70, 100), (34, 100), (0, 100), ["supported", "inconclusive", "inconclusive"]),
        ((70, 100), (60, 95), (5, 100), ["supported", "inconclusive", "inconclusive"]),
        ((70, 95), (60, 100), (0, 50), ["inconclusive", "not applicable", "not applicable"]),
        ((10.9, 100), (60, 100), (0, 50), ["inconclusive", "not applicable", "not applicable"]),
    ],
)
def test_verdicts_follow_their_rule(text, random, repeat, verdicts):
    rates = zip(KINDS.values(), (text, random, repeat), strict=True)
    rows = {(kind, measure(0.3)): row(kind, measure(0.3), mean, percentile=rank) for kind, (mean, rank) in rates}
    assert Planted("gu/sink-rate", CONFIG, rows=rows).verdicts() == verdicts


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
        ({"other_eps": (0.3,)}, "other_eps must lie between 0 and 1 and differ from eps, and holds 0.3"),
        ({"length": 7}, "length must be at least 8"),
        ({"published": ({"model": "M"},)}, "an entry of published needs model, inputs, eps, rate, source"),
        ({"published": ({**PUBLISHED[0], "inputs": "prose"},)}, "must be one of text, random, repeat, not prose"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(fields, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        SinkRate(**fields)
