"""A planted super weight is found by its spikes and by what its removal costs; a model without one has none."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax.explain.super_weights import PUBLISHED

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


def test_it_is_super_only_if_its_removal_costs_more_than_that_of_any_control(model, tokens):
    spiked = planted(model)
    params = dict(spiked.params)
    head = params["unembed"]
    for sign in (1.0, -1.0):  # the spike helps with one sign of what reads it, and harms with the other
        tilt = jnp.zeros(head.shape[-1]).at[tokens.ravel()].set(sign * 3.0)
        read = dataclasses.replace(spiked, params={**params, "unembed": head.at[COL].add(tilt)})
        found = sinkjax.super_weights(read, tokens, most=2, controls=8, progress=False)
        effect, control = float(found["effect"][0].mean()), float(found["control"][0].mean("prompt").max())
        assert bool(found["super"][0]) == (effect > control)
        assert len(found["candidate"]) == (2 if bool(found["super"][0]) else 1)


def test_bad_input_is_refused(model, tokens):
    with pytest.raises(sinkjax.SinkjaxError, match="most must be a whole number of at least 1, not 0"):
        sinkjax.super_weights(model, tokens, most=0)
    bare = dataclasses.replace(model, config=dataclasses.replace(model.config, mlp_width=None))
    with pytest.raises(sinkjax.SinkjaxError, match="no super weights to search: this model has no MLP"):
        sinkjax.super_weights(bare, tokens)


def test_the_published_coordinates_are_three_numbers_each():
    assert all(len(place) == 3 for places in PUBLISHED.values() for place in places)
