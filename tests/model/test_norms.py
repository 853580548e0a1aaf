"""Norms against their papers' formulas, in the stream and on queries and keys, with gradients and where their scale is frozen."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax import Probe
from sinkjax.checkpoints.model import Model
from sinkjax.model import params
from sinkjax.model.norms import DynamicTanh, Norm, SingleScaleRMSNorm
from tests.model.variants import bare

NORMS = (SingleScaleRMSNorm(1e-5), DynamicTanh())


def parameters(norm: Norm, rng: np.random.Generator, size: int = 8) -> dict[str, jax.Array]:
    return {f"n{part}": jnp.asarray(rng.uniform(0.5, 2, 1 if part in norm.single else size)) for part in norm.learned()}


def test_dynamic_tanh_is_elementwise(rng: np.random.Generator) -> None:
    with jax.enable_x64(True):
        x, w = rng.standard_normal((3, 8)), parameters(DynamicTanh(), rng)
        found = DynamicTanh()(jnp.asarray(x), w, "n")
    want = np.tanh(np.asarray(w["n_alpha"]) * x) * np.asarray(w["n"]) + np.asarray(w["n_bias"])
    np.testing.assert_allclose(found, want, rtol=1e-12)


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: type(norm).__name__)
def test_a_frozen_norm_is_affine_and_agrees_where_it_was_measured(norm: Norm, rng: np.random.Generator) -> None:
    with jax.enable_x64(True):
        w, at = parameters(norm, rng), jnp.asarray(rng.standard_normal((3, 8))).at[0, 0].set(0.0)
        one, other = jnp.asarray(rng.standard_normal((2, 3, 8)))
        np.testing.assert_allclose(norm(at, w, "n", at), norm(at, w, "n"), rtol=1e-12, atol=1e-12)
        whole = norm(one + other, w, "n", at) + norm(jnp.zeros_like(at), w, "n", at)
        np.testing.assert_allclose(whole, norm(one, w, "n", at) + norm(other, w, "n", at), rtol=1e-10)


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: type(norm).__name__)
def test_a_model_of_them_has_one_number_where_they_share_it_and_is_saved_and_loaded(norm: Norm, tmp_path) -> None:
    config = bare(norm=norm, qk_norm=norm, vocab_size=11)
    tree = params.abstract(config)
    sizes = {part: 1 if part in norm.single else 7 for part in norm.learned()}
    assert {part: tree["layers"][f"attn_norm{part}"].shape for part in sizes} == {part: (2, size) for part, size in sizes.items()}
    assert {part: tree["final_norm" + part].shape for part in sizes} == {part: (size,) for part, size in sizes.items()}
    assert all(tree["layers"][f"q_norm{part}"].shape == (2, 1 if part in norm.single else 7) for part in sizes)
    model = Model(config, params.init(config, 0), None, {"kind": "arrays", "name": "norms"})
    sinkjax.save(model, tmp_path / "model")
    again = sinkjax.load(str(tmp_path / "model"))
    assert again.config == config
    tokens = np.arange(10).reshape(2, 5)

    def loss(weights: dict) -> jax.Array:
        return jnp.square(sinkjax.forward(weights, tokens, config, probe=Probe()).logits).sum()

    gradient = jax.grad(loss)(again.params)
    assert all(np.isfinite(leaf).all() and (leaf != 0).any() for leaf in jax.tree.leaves(gradient))
