"""background/massive: the definition, the dims that are set, and the premise of the claims."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.papers.background import _massive as definition
from sinkjax.study.registry import find
from tests.study.budget import Conditions

T = 10


@pytest.fixture
def stream(rng):
    """float[prompt, layer, dim]: dim 7 is largest after layer 1, dim 3 after layer 2."""
    found = rng.uniform(0.5, 1, (2, 3, 32)).astype(np.float32)
    found[:, 1, 7], found[:, 2, 3] = (-60, -40), 50
    return found


def edits(stream, tiny_config, **settings) -> Conditions:
    """The study with this stream, in place of a model's; the activation forms in layer 1."""
    study = find("background/massive")
    found = Conditions.__new__(Conditions)
    found.config = study.settings(length=T, prompts=2, controls=30, **settings)
    run = SimpleNamespace(model="any", data=lambda probe: {"stream": xarray.DataArray(stream[None, :, :, None])})
    found.lab = study.trace(found.config, tiny_config, values={"forms": 1}, unedited=run)
    return found


@pytest.mark.parametrize("to", ["zero", "mean"])
def test_edits_set_the_dims_as_set_residual_does(to, stream, tiny_config, tiny_params):
    study, forms = edits(stream, tiny_config), "the layer in which it forms"
    tokens = np.random.default_rng(0).integers(0, 61, (2, T))
    capture = sinkjax.Probe(capture=(sinkjax.Capture(sinkjax.Site.RESID, name="h"),))

    def assert_same(edit: sinkjax.Edit, expected: sinkjax.Edit) -> None:
        seen = [sinkjax.forward(tiny_params, tokens, tiny_config, one, capture).record["h"] for one in (edit, expected)]
        np.testing.assert_allclose(*seen, rtol=1e-5, atol=1e-5)

    overall = np.argsort(-np.abs(stream).mean(axis=0).max(axis=0))[:2].tolist()  # the largest after any layer
    assert_same(study.of("held")["all layers"].edit, sinkjax.set_residual(0, np.zeros(2), dims=overall))
    for edit, layer in ((study.of("set")[f"to {to} in {forms}"].edit, 1), (study.of(f"{to}-by-layer")["layer 2"].edit, 2)):
        dims = largest(stream, layer)
        value = stream.mean(axis=0)[layer, dims] if to == "mean" else np.zeros(2)
        assert_same(edit, sinkjax.set_residual(0, value, dims=dims, layers=layer))


def largest(stream, layer: int) -> list[int]:
    return np.argsort(-np.abs(stream).mean(axis=0)[layer])[:2].tolist()


def test_statistics_of_the_hidden_state_leave_pads_out(tiny_config, tiny_params):
    tokens = np.random.default_rng(0).integers(0, 61, (2, T))
    whole = sinkjax.forward(tiny_params, tokens, tiny_config, probe=definition.STATES, lengths=[T, 7]).record
    alone = sinkjax.forward(tiny_params, tokens[1:, :7], tiny_config, probe=definition.STATES).record
    for name in ("state_largest", "state_median"):
        np.testing.assert_allclose(whole[name][1], alone[name][0], rtol=1e-5)
