"""The scan of tokens alone: it says what isolation shows in a text, and its scores are the model's own."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax.checkpoints.model import Model
from sinkjax.model import params
from sinkjax.model.attention_bias import SinkToken
from sinkjax.model.config import NoPosition
from sinkjax.model.normalisers import NAMED
from sinkjax.model.rotary import LayerRopes, Rope, YarnScaling

pytestmark = pytest.mark.usefixtures("x64")
P = 5
KINDS = {
    "rope": {},
    "yarn": {"position": Rope(10_000.0, YarnScaling(4.0, 8))},
    "ropes by layer": {"position": LayerRopes((Rope(10_000.0), Rope(500.0)), (0, None, 1)), "score_scale": (0.2, 0.3, 0.5)},
    "window": {"windows": (3, None, 5)},
    "sink token": {"kv_bias": SinkToken(), "position": NoPosition()},
    "sigmoid": {"normaliser": NAMED["sigmoid"]},
}


def model_of(tiny: Model, **changes: object) -> Model:
    config = dataclasses.replace(tiny.config, **changes)
    drawn, treedef = jax.tree.flatten(params.init(config, seed=0))
    noise = np.random.default_rng(0)
    leaves = [jnp.asarray(leaf + 0.1 * noise.standard_normal(leaf.shape)) for leaf in drawn]
    return Model(config, jax.tree.unflatten(treedef, leaves), None, {"kind": "arrays", "name": "tiny"})


@pytest.fixture(scope="module")
def text(tiny: Model) -> np.ndarray:
    return np.random.default_rng(1).integers(0, tiny.config.vocab_size, (4, 12))


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_alone_is_what_isolation_in_a_text_shows(tiny, text, kind):
    model = model_of(tiny, **KINDS[kind])
    found = sinkjax.scan(model, text[:, P], text=text)
    probe = sinkjax.Probe(resid_max=True)
    isolated = sinkjax.forward(model, text, edits=sinkjax.attend_self(P), probe=probe).record["resid_max"][..., P]
    np.testing.assert_allclose(found["largest"], np.asarray(isolated)[:, 1:], rtol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_the_score_is_the_models_score_of_a_first_token(tiny, text, kind):
    """In a text of two tokens the mean later query is the second token's, and the first token sees only itself."""
    model, pair = model_of(tiny, **KINDS[kind]), text[:1, :2]
    found = sinkjax.scan(model, pair[0, :1], text=pair, distance=1, eps=-1.0)
    capture = sinkjax.Capture(sinkjax.Site.LOGITS, name="scores")
    record = sinkjax.forward(model, pair, probe=sinkjax.Probe(capture=(capture,))).record
    scores = np.asarray(record["scores"])[0][..., 1, 0]
    by_head = found["score"].values.reshape(scores.shape)
    np.testing.assert_allclose(by_head, scores, rtol=1e-10)
    np.testing.assert_allclose(found["first_score"].values, found["score"].values[0], rtol=1e-10)
    others = found["other_score"].values.reshape(scores.shape)[0]
    np.testing.assert_allclose(others, second_key(model, pair)[0], rtol=1e-10)  # in layer 0, as the shift changes later ones


def second_key(model: Model, pair: np.ndarray) -> np.ndarray:
    """Scores of the second token's key by its own query, at a distance of 1: the query's index moved by one."""
    capture = sinkjax.Capture(sinkjax.Site.LOGITS, name="scores")
    edits = sinkjax.shift_positions(query=np.array([0, 1])) if model.config.ropes else ()
    record = sinkjax.forward(model, pair, edits=edits, probe=sinkjax.Probe(capture=(capture,))).record
    return np.asarray(record["scores"])[0][..., 1, 1]


def test_the_first_tokens_of_the_text_are_what_a_token_is_compared_with(tiny, text):
    found = sinkjax.scan(tiny, text[:1, 0], text=text[:1])
    np.testing.assert_allclose(found["cosine"], 1, rtol=1e-12)
    np.testing.assert_allclose(found["largest"][0], found["first_largest"], rtol=1e-12)
    sizes = np.asarray(sinkjax.forward(tiny, text[:1], probe=sinkjax.Probe(resid_max=True)).record["resid_max"])[0, 1:]
    np.testing.assert_allclose(found["other_largest"], np.median(sizes[:, 1:], axis=1), rtol=1e-12)
    other = sinkjax.scan(tiny, text[:1, 0], text=text[1:])
    assert (other["cosine"] < 0.999).any()
