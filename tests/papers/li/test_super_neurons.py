"""li/super-neurons: neurons are ranked, described and set to 0 as stated."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import sinkjax
from sinkjax.papers.li import _neurons, super_neurons
from sinkjax.papers.li._neurons import Neuron
from sinkjax.study.numbers import Numbers
from sinkjax.study.registry import find
from sinkjax.study.work import Batch

STUDY = find("li/super-neurons")
PLANTED: Neuron = (1, 7)


@pytest.fixture(scope="module")
def planted(model):
    """The tiny model with one neuron whose vectors are ten times as long, and that writes to dim 5 only."""
    layers = dict(model.params["layers"])
    for name in ("gate", "up"):
        layers[name] = layers[name].at[PLANTED[0], :, PLANTED[1]].multiply(10)
    row = np.zeros(model.config.width, np.float32)
    row[5] = 40
    layers["down"] = layers["down"].at[PLANTED].set(row)
    return dataclasses.replace(model, params={**model.params, "layers": layers})


def test_a_planted_neuron_is_the_largest_feeds_the_massive_dim_and_is_compared(planted):
    tokens = np.random.default_rng(0).integers(1, planted.config.vocab_size, (3, 12)).astype(np.int32)
    settings = STUDY.settings(neurons=1, controls=4)
    lab = STUDY.trace(settings, planted.config)
    work = lab.calculations["neurons"]
    data = work.compute(planted, Batch(tokens, np.full(3, 12), {}))
    assert data.attrs["neurons"] == [list(PLANTED)]
    assert set(data.data_vars) == set(work.variables)
    gate, up = _neurons.sizes(planted)
    read: Any = Numbers(settings, planted.config, {"neurons": data})  # type: ignore[arg-type]
    found = {row.measure: row.value.mean for row in super_neurons.of_each(read, work, *super_neurons.COLUMNS)}
    assert found["size (medians of its layer)"] == pytest.approx((gate * up)[PLANTED])
    assert found["squared norm of W_down row in one dim (%)"] == pytest.approx(100)
    assert found["the dim that it feeds most"] == 5
    assert data["massive_dim"].values.tolist() == [5] * 3
    claims: Any = {name: claim.of for name, claim in lab.claims.items()}
    (share,) = claims["feeds"](read)
    assert share.value.mean == pytest.approx(100)
    assert (share.rank.below, share.rank.controls) == (4, 4)
    cosine = claims["gates"](read)
    np.testing.assert_allclose(cosine.contrast, (data["own_first"] - data["own_others"])[:, 0])
    np.testing.assert_allclose(cosine.controls[1], (data["own_first"] - data["own_others"])[:, 2])


def test_cosines_are_those_of_the_definition(planted, monkeypatch):
    tokens = np.random.default_rng(1).integers(1, planted.config.vocab_size, (2, 9)).astype(np.int32)
    monkeypatch.setattr(_neurons, "BLOCK", 1)
    data = _neurons.survey(planted, Batch(tokens, np.full(2, 9), {}), [(2, 3), PLANTED])
    probe = sinkjax.Probe(capture=tuple(sinkjax.Capture(site) for site in ("resid", "attn_out")))
    record = sinkjax.forward(planted.params, tokens, planted.config, probe=probe).record
    weights, layer = planted.params["layers"], 2
    state = np.asarray(record["resid"][:, layer - 1] + record["attn_out"][:, layer], np.float64)
    x = state / np.sqrt(np.square(state).mean(-1, keepdims=True) + planted.config.norm.eps)
    x *= np.asarray(weights["mlp_norm"][layer])
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    gate = np.asarray(weights["gate"][layer], np.float64)
    of_prompts = x @ (gate / np.linalg.norm(gate, axis=0))
    cosines = of_prompts.mean(0)
    np.testing.assert_allclose(data["cosine_first"][layer], cosines[0], atol=1e-5)
    np.testing.assert_allclose(data["cosine_others"][layer], cosines[1:].mean(0), atol=1e-5)
    np.testing.assert_allclose(data["own_first"][:, 0], of_prompts[:, 0, 3], atol=1e-5)
    np.testing.assert_allclose(data["own_others"][:, 0], of_prompts[:, 1:, 3].mean(1), atol=1e-5)
