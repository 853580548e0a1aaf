"""SmolLM2-135M in float32 against transformers' own reading of the same file."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import Capture, Probe, Site
from tests.model import reference
from tests.model.families import observe
from tests.model.prose import PASSAGES


@pytest.fixture(scope="module")
def tokens(smollm2) -> np.ndarray:
    tokens, lengths = sinkjax.encode(smollm2, PASSAGES, bos="none", length=64)
    assert (np.asarray(lengths) == 64).all()
    return np.asarray(tokens)


@pytest.fixture(scope="module")
def ours(smollm2, tokens: np.ndarray) -> sinkjax.forward:
    layers = range(smollm2.config.layers)
    probe = Probe(attention=layers, nll=True, capture=(Capture(Site.EMBED), Capture(Site.RESID)))
    return sinkjax.forward(smollm2.params, tokens, smollm2.config, probe=probe)


@pytest.fixture(scope="module")
def theirs(tokens: np.ndarray) -> dict[str, np.ndarray]:
    return observe(reference.smollm2(), tokens)


def test_logits(ours, theirs) -> None:
    assert np.abs(np.asarray(ours.logits) - theirs["logits"]).max() <= 1e-3


def test_hidden_states_of_every_layer(ours, theirs) -> None:
    ours = np.concatenate([np.asarray(ours.record["embed"])[:, None], ours.record["resid"]], axis=1)
    largest = np.abs(theirs["hidden"]).max(axis=(0, 2, 3))
    error = np.abs(ours - theirs["hidden"]).max(axis=(0, 2, 3))
    assert largest.max() > 1e4  # the massive activations are there, so this is a hard case for float32
    assert error.max() <= 1e-5 * largest.max()
    assert (error <= 3e-5 * largest).all()  # depth 11, just below the massive activations, has 1e-5: half is transformers' own


def test_attention_maps(ours, theirs) -> None:
    error = np.abs(np.asarray(ours.record["attention"]) - theirs["attention"]).max()
    assert error <= 3e-5  # below 1e-5 on CPUs with AVX-512, 1.2e-5 on one without


def test_bfloat16_stays_near_float32(smollm2, tokens: np.ndarray, ours) -> None:
    params = jax.tree.map(lambda leaf: leaf.astype("bfloat16"), smollm2.params)
    probe = Probe(nll=True, resid_max=True, attention_received=True)
    rounded = sinkjax.forward(params, tokens, smollm2.config, probe=probe, logits=False).record
    assert {name: array.dtype for name, array in rounded.items()} == dict.fromkeys(rounded, np.float32) | {"non_finite": np.int32}
    assert abs(np.nanmean(rounded["nll"]) - np.nanmean(ours.record["nll"])) < 0.05
    received = np.asarray(ours.record["attention"]).sum(axis=3) / np.arange(64, 0, -1)
    assert np.abs(received - np.asarray(rounded["attention_received"])).mean() < 0.01
