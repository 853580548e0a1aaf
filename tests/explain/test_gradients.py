"""Gradient norms by position, against finite differences of the loss, and their ratio to the others'."""

from __future__ import annotations

import numpy as np
import pytest

import sinkjax
from sinkjax import Probe
from sinkjax.checkpoints.model import Model

pytestmark = pytest.mark.usefixtures("x64")
LENGTHS = np.array([8, 5])


@pytest.fixture(scope="module")
def tokens(tiny: Model) -> np.ndarray:
    return np.random.default_rng(0).integers(0, tiny.config.vocab_size, (2, 8))


@pytest.mark.parametrize("site", ["attn_in", "resid", "value"])
def test_a_norm_is_that_of_finite_differences(tiny: Model, tokens: np.ndarray, site: str) -> None:
    """Of the mean loss of prompt 1, moved at one layer and position, one dim after the other."""
    found = sinkjax.gradient_norms(tiny, tokens, site, LENGTHS)
    layer, position, step = 1, 2, 1e-5
    head = {"kv_heads": 0} if site == "value" else {}
    size = tiny.config.head_dim if site == "value" else tiny.config.width

    def loss(dim: int, change: float) -> float:
        selector = "keys" if site == "value" else "queries"
        moved = sinkjax.edit(site, "add", change, layers=layer, dims=dim, **{selector: position}, **head)
        nll = sinkjax.forward(tiny.params, tokens, tiny.config, moved, Probe(nll=True), LENGTHS, logits=False).record["nll"]
        return float(np.nanmean(np.asarray(nll)[1]))

    slopes = [(loss(dim, step) - loss(dim, -step)) / (2 * step) for dim in range(size)]
    place = {"prompt": 1, "layer": layer, "position": position} | ({"kv_head": 0} if head else {})
    assert float(found["gradient_norm"].isel(place)) == pytest.approx(np.linalg.norm(slopes), rel=1e-6)


def test_the_ratio_is_to_the_mean_of_the_others_that_predict_a_token(tiny: Model, tokens: np.ndarray) -> None:
    found = sinkjax.gradient_norms(tiny, tokens, lengths=LENGTHS)
    assert found["gradient_norm"].dims == ("prompt", "layer", "position")
    for prompt, length in enumerate(LENGTHS):
        norms = found["gradient_norm"].values[prompt]
        assert (np.isfinite(norms) == (np.arange(8) < length - 1)).all()
        want = norms[:, 0] / norms[:, 1 : length - 1].mean(axis=1)
        np.testing.assert_allclose(found["ratio"].values[prompt, :, 0], want, rtol=1e-12)
