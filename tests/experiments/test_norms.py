"""gu/norms: norms and ratios of the first token and of the others, and on SmolLM2 what training made of them."""

from __future__ import annotations

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.analysis.intervals import Interval
from sinkjax.experiments.gu import norms
from sinkjax.experiments.summary import Row
from sinkjax.model import params
from sinkjax.probes.probe import Probe
from sinkjax.studies import run
from tests.studies.tiny import LAYERS, study, write_both


def test_a_position_is_compared_with_the_others_but_never_with_itself_or_the_first(rng):
    values = rng.uniform(1, 9, (2, 3, 6))
    values[1, :, 5] = np.nan
    found = norms.measured(values, (0, 3))
    assert found.first.shape == (3, 2)
    np.testing.assert_allclose(found.first[2], values[:, 2, 0])
    np.testing.assert_allclose(found.others[1], [values[0, 1, 1:].mean(), values[1, 1, 1:5].mean()])
    np.testing.assert_allclose(found.ratios[1, 0, 1], values[0, 1, 3] / values[0, 1, [1, 2, 4, 5]].mean())
    np.testing.assert_allclose(found.ratios[1, 1, 1], values[1, 1, 3] / values[1, 1, [1, 2, 4]].mean())


def test_heads_are_averaged(rng):
    values = rng.uniform(1, 9, (2, 3, 4, 6))
    np.testing.assert_allclose(norms.measured(values, (0,)).first, values[..., 0].mean(2).T)


def test_the_embedding_is_no_layer_of_the_mean():
    ratios = np.array([9.0, 1, 2])[:, None, None] * np.ones((3, 2, 3))
    found = norms.Measured(ratios[..., 0], ratios[..., 0], ratios)
    rows = {(row.arm, row.measure): row for row in norms.summary(norms.HIDDEN, found, seed=0)}
    assert rows["hidden state, all layers", norms.RATIO].value.mean == 1.5
    assert rows["hidden state, depth 0", norms.RATIO].value.mean == 9
    others = {row.arm for row in norms.summary(norms.KEYS, found, seed=0)}
    assert others == {"keys, all layers", "keys, layer 0", "keys, layer 1", "keys, layer 2"}


def test_a_run_measures_every_layer(tmp_path):
    section = run.carry_out(study("gu/norms", write_both(tmp_path)), tmp_path / "out")
    stored = xarray.open_zarr(tmp_path / "out" / "norms.zarr", chunks=None)["key_norm"].values[0]
    (row,) = [row for row in section.rows if (row.arm, row.measure) == ("keys, layer 1", norms.FIRST)]
    assert row.value.mean == pytest.approx(stored[:, 1, :, 0].mean())
    assert len(section.rows) == 3 * (3 * (1 + LAYERS) + 1 + LAYERS + 1)
    assert len(section.claims) == 3
    assert {path.name for path in (tmp_path / "out" / "figures").iterdir()} >= {
        "hidden-state-norms.png",
        "query-key-value-norms.png",
    }


def table(hidden: Row, keys: Row, values: Row) -> dict:
    named = {norms.HIDDEN: hidden, norms.KEYS: keys, norms.VALUES: values}
    return {(f"{name}, all layers", norms.RATIO): row for name, row in named.items()}


def row(mean: float, percentile: float) -> Row:
    return Row("", "", "", Interval(mean, mean - 0.1, mean + 0.1, 9, 0, 0.95, "BCa"), percentile=percentile, controls=20)


@pytest.mark.parametrize(
    ("rows", "verdicts"),
    [
        ((row(60, 100), row(0.5, 0), row(0.3, 0)), ["confirmed"] * 3),
        ((row(2, 100), row(0.95, 0), row(0.8, 5)), ["not confirmed"] * 3),
    ],
)
def test_verdicts_follow_their_rule(rows, verdicts):
    assert [claim.verdict for claim in norms._claims(table(*rows))] == verdicts


def test_training_makes_the_first_hidden_state_large_and_its_key_and_value_small(smollm2):
    """Measured on 64 prompts: ratios 58.8 (hidden states), 0.45 (keys), 0.36 (values); with random weights 1.2, 1.0, 1.0."""
    text = "The river had risen in the night, and by morning the lower fields were under water as far as the mill and the road."
    tokens, lengths = sinkjax.encode(smollm2, [text], bos="none", length=24)
    drawn = params.init(smollm2.config, seed=0)
    probe, ratios = Probe.of(*norms.STATISTICS.values()), {}
    for name, weights in (("trained", smollm2.params), ("random", drawn)):
        record = sinkjax.forward(weights, tokens, smollm2.config, probe=probe, lengths=lengths, logits=False).record
        found = {kind: norms.measured(record[statistic], (0,)) for kind, statistic in norms.STATISTICS.items()}
        ratios[name] = {kind: entry.ratios[1:].mean() for kind, entry in found.items()}
    trained, random = ratios["trained"], ratios["random"]
    assert trained[norms.HIDDEN] > 20
    assert max(trained[norms.KEYS], trained[norms.VALUES]) < 0.7
    assert random[norms.HIDDEN] < 3
    assert 0.7 < random[norms.KEYS] < 1.3
