"""Norms and gates of heads: a few lines of numpy, Qwen3 of transformers, and what each means at the sites."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import Probe
from sinkjax.model.config import RMSNorm
from sinkjax.model.heads import ConstantGate, ElementGate, HeadGate, HeadNorm, NonSparseGate, SharedGate, ValueGate, ValueScale
from tests.model.variants import bare, by_numpy, draw

SHAPE = {"heads": 4, "kv_heads": 2, "head_dim": 5}
OPTIONS: dict[str, dict[str, Any]] = {
    "head norm": {"head_norm": HeadNorm()},
    "a gain for each head": {"head_norm": HeadNorm(gain="head", eps=1e-3)},
    "a gain and an offset for each head": {"head_norm": HeadNorm(gain="head", offset=True)},
    "a shared gain and offset": {"head_norm": HeadNorm(offset=True)},
    "QK-norm": {"qk_norm": RMSNorm(1e-5)},
    "head gate": {"gate": HeadGate()},
    "element gate": {"gate": ElementGate()},
    "value gate": {"gate": ValueGate()},
    "shared gate": {"gate": SharedGate()},
    "constant gate": {"gate": ConstantGate()},
    "non-sparse gate": {"gate": NonSparseGate()},
    "value scale": {"gate": ValueScale()},
    "a shared gate on summed heads": {"gate": SharedGate(), "summed_heads": True},
    "norms and a gate": {"head_norm": HeadNorm(), "qk_norm": RMSNorm(1e-6), "gate": ElementGate()},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_norms_and_gates_give_what_numpy_gives_and_finite_gradients(name: str, rng: np.random.Generator) -> None:
    config = bare(**SHAPE, **OPTIONS[name])
    weights, x = draw(config), rng.standard_normal((2, 9, 7))

    def loss(weights: dict) -> tuple:
        output = sinkjax.forward(weights, x, config, sinkjax.edit("weights", "scale", 1.0), Probe(), [9, 5]).output
        return (output[0] ** 2).sum(), output

    with jax.enable_x64(True):
        slopes, output = jax.jit(jax.grad(loss, has_aux=True))(weights)
    for prompt, length in enumerate((9, 5)):
        want = by_numpy(weights, x[prompt, :length], config)[0]
        np.testing.assert_allclose(output[prompt, :length], want, rtol=1e-11, atol=1e-11)
    leaves = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(slopes)}
    assert all(np.isfinite(leaf).all() and leaf.any() for leaf in leaves.values()), leaves
