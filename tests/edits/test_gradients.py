"""Strengths are differentiable and batchable at every site, and masks never put an infinity into a gradient."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax import Probe, Site, add_logit, attend_self, compose, edit, mask_key
from tests.edits.cases import CONTINUOUS, STRENGTH, at, at_all
from tests.edits.conftest import LENGTHS

PROBE = Probe(attention_received=True, resid_norm=True, nll=True)
SHOWING, NEUTRAL = np.array([STRENGTH[site][1:] for site in CONTINUOUS], float).T


@pytest.fixture(scope="module")
def metric(run):
    """A number that weighs what the model does everywhere: the sink, the norms and the loss."""

    def metric(edits) -> jax.Array:
        record = run(edits, PROBE).record
        return (
            jnp.nansum(record["attention_received"][..., 0])
            + jnp.nanmean(record["resid_norm"] * jnp.arange(10))
            + jnp.nanmean(record["nll"])
        )

    return metric


def test_gradient_of_a_metric_equals_finite_differences(metric) -> None:
    value_and_slope = jax.jit(jax.value_and_grad(lambda strengths: metric(at_all(4, strengths))))
    for strengths in (SHOWING, NEUTRAL):
        _, slope = value_and_slope(strengths)
        for i, site in enumerate(CONTINUOUS):
            step = np.zeros(len(CONTINUOUS))
            step[i] = 1e-5
            difference = (value_and_slope(strengths + step)[0] - value_and_slope(strengths - step)[0]) / 2e-5
            assert float(slope[i]) == pytest.approx(float(difference), rel=1e-6, abs=1e-9), site
            assert abs(difference) > 1e-6, site


def test_no_earlier_logit_has_a_derivative_in_a_strength(run) -> None:
    slopes = jax.jit(jax.jacfwd(lambda strengths: run(at_all(4, strengths)).logits))(SHOWING)
    for i, site in enumerate(CONTINUOUS):
        assert not np.asarray(slopes[:, :4, :, i]).any(), site
        assert np.asarray(slopes[:, 4, :, i]).all(), site
        assert np.asarray(slopes[0, 4:, :, i]).any(axis=-1).all(), site


MASKS = {
    "a key": mask_key(0),
    "all keys but one": attend_self(slice(None)),
    "a row and a key": compose(attend_self(3), mask_key([0, 1], heads=[0, 2])),
}


@pytest.mark.parametrize("name", MASKS)
def test_gradients_through_masks_are_finite(params64, tiny_config, tokens, name: str) -> None:
    """With respect to every weight and to strengths at 0, with query 0 seeing one key in any case."""

    def loss(params, strengths) -> jax.Array:
        more = (add_logit(1, strengths[0]), edit("weights", "scale", strengths[1], keys=0, relation="others", renormalise=True))
        edits = compose(MASKS[name], *more)
        record = sinkjax.forward(params, tokens, tiny_config, edits, Probe(nll=True, resid_norm=True), LENGTHS).record
        return jnp.nanmean(record["nll"]) + jnp.where(jnp.isnan(record["resid_norm"]), 0, record["resid_norm"]).mean()

    slopes = jax.jit(jax.grad(loss, argnums=(0, 1)))(params64, jnp.zeros(2))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))
    assert all(np.any(leaf) for leaf in jax.tree.leaves(slopes[0]["layers"]["v"]))


def test_a_masked_key_has_no_influence_on_others(run) -> None:
    """mask_key removes one column: later logits no longer depend on that embedding; its own, and those of the rest, still do."""

    def influence(edits, position: int) -> np.ndarray:
        push = lambda value: run(compose(*edits, at(Site.EMBED, position, value))).logits[0]  # noqa: E731
        return np.abs(jax.jvp(push, (jnp.asarray(0.1),), (1.0,))[1]).max(axis=-1)

    masked = influence([mask_key(2)], 2)
    assert masked[2] > 0
    assert not masked[3:].any()
    assert (influence([mask_key(2)], 1)[1:] > 0).all()
    assert (influence([], 2)[2:] > 0).all()
