"""A planted super weight is found by its spikes and by what its removal costs; a model without one has none."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import sinkjax

LAYER, ROW, COL = 1, 9, 4


@pytest.fixture(scope="module")
def tokens(tiny_config) -> np.ndarray:
    return np.random.default_rng(0).integers(0, tiny_config.vocab_size, (4, 16))


def planted(model: sinkjax.Model) -> sinkjax.Model:
    """The model with one large entry from an active neuron to one dim."""
    layers = dict(model.params["layers"])
    layers["down"] = layers["down"].at[LAYER, ROW, COL].set(60.0)
    layers["up"] = layers["up"].at[LAYER, :, ROW].multiply(60.0)
    return dataclasses.replace(model, params={**model.params, "layers": layers})


@pytest.fixture(scope="module")
def model(tiny_config, tiny_params) -> sinkjax.Model:
    return sinkjax.Model(
        tiny_config, {**tiny_params, "layers": dict(tiny_params["layers"])}, None, {"name": "tiny", "dtype": "float32"}
    )


def test_the_candidate_is_the_entry_that_carries_the_spike(model, tokens):
    found = sinkjax.super_weights(planted(model), tokens, most=1, controls=5, progress=False)
    assert [int(found[name][0]) for name in ("layer", "row", "col")] == [LAYER, ROW, COL]
    assert float(found["weight"][0]) == 60.0
    assert found["control"].shape == (1, 5, 4)
    removed = sinkjax.edit_weights("down", "set", 0.0, layers=LAYER, rows=ROW, cols=COL)
    plain, without = (
        sinkjax.forward(planted(model), tokens, edits=edits, probe=sinkjax.Probe(nll=True)).record["nll"]
        for edits in ((), removed)
    )
    effect = np.nanmean(np.asarray(without) - np.asarray(plain), axis=1)
    np.testing.assert_allclose(found["effect"][0], effect, atol=1e-5)


def says(model: sinkjax.Model, edits=()) -> np.ndarray:
    """Texts that the model itself finds likeliest, token by token, under some edits."""
    starts = [[start, start + 1] for start in (3, 11, 20, 37)]
    return np.array([[*start, *sinkjax.generate(model, start, edits=edits, max_new_tokens=14)] for start in starts])


def test_an_entry_on_which_the_texts_rest_is_super_and_the_search_goes_on(model):
    spiked = planted(model)
    found = sinkjax.super_weights(spiked, says(spiked), most=2, controls=8, progress=False)
    assert [int(found[name][0]) for name in ("layer", "row", "col")] == [LAYER, ROW, COL]
    assert bool(found["super"][0])
    assert len(found["candidate"]) == 2
    second = [int(found[name][1]) for name in ("layer", "row", "col")]
    assert second != [LAYER, ROW, COL]


def test_a_spike_that_the_texts_do_without_is_none_and_ends_the_search(model):
    spiked = planted(model)
    removed = sinkjax.edit_weights("down", "set", 0.0, layers=LAYER, rows=ROW, cols=COL)
    found = sinkjax.super_weights(spiked, says(spiked, removed), most=2, controls=8, progress=False)
    assert [int(found[name][0]) for name in ("layer", "row", "col")] == [LAYER, ROW, COL]
    assert not bool(found["super"][0])
    assert float(found["effect"][0].mean()) < 0
    assert len(found["candidate"]) == 1
