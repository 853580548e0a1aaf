"""Kernels of queries and keys: what a few lines of numpy give, behind the rotation, and what is measured of signed weights."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import Config, Probe
from sinkjax.model import params, rope
from sinkjax.model.normalisers import NAMED
from sinkjax.model.rotary import Rope
from tests.model.variants import bare, draw

T = 9
SHAPE = {"layers": 1, "heads": 4, "kv_heads": 2, "head_dim": 6, "position": Rope(100.0), "score_scale": None, "residual": False}


def elu_plus_one(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def by_numpy(weights: dict, x: np.ndarray, config: Config, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Weights [H, T, T] and the output [T, d] of one layer."""
    w = jax.tree.map(lambda leaf: leaf[0], weights["layers"])
    q, k, v = (np.einsum("td,dhn->thn", x, w[part]) for part in "qkv")
    tables = rope.tables(np.arange(T)[None], *rope.frequencies(config.position, config.head_dim, np.array([T]), np.float64))
    q, k = (np.asarray(rope.rotate(part[None], *tables))[0] for part in (q, k))
    if name.startswith("elu"):
        q, k = elu_plus_one(q), elu_plus_one(k)
    if name.startswith("mlp"):
        q, k = (np.maximum(part @ w["normaliser"]["inner"], 0) @ w["normaliser"]["outer"] for part in (q, k))
    k, v = (np.repeat(part, config.group, axis=1) for part in (k, v))
    raw = np.tril(np.einsum("qhn,khn->hqk", q, k) / 6**0.5)
    total = raw.sum(-1, keepdims=True)
    raw = raw / {"sum": total + 1e-8, "max": np.maximum(np.abs(total), 1)}.get(name.rsplit("-")[-1], 1)
    return raw, np.einsum("hqk,khn,hnd->qd", raw, v, w["o"])


@pytest.mark.parametrize("name", ["identity", "identity-max", "elu-kernel", "elu-kernel-sum", "mlp-kernel", "mlp-kernel-max"])
def test_weights_shares_and_outputs_are_those_of_numpy(name: str, rng: np.random.Generator) -> None:
    config = bare(**SHAPE, normaliser=NAMED[name])
    weights, x = draw(config), rng.standard_normal((1, T, 7)) * 2
    probe = Probe(attention=(0,), attention_received=True, attention_share=True, attention_received_bias=True)

    def loss(weights: dict) -> tuple:
        out = sinkjax.forward(weights, x, config, (), probe)
        return (out.output**2).sum(), out

    with jax.enable_x64(True):
        map_, want = by_numpy(weights, x[0], config, name)
        slopes, out = jax.grad(loss, has_aux=True)(weights)
    np.testing.assert_allclose(out.output[0], want, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.nan_to_num(out.record["attention"][0, 0]), map_, rtol=1e-9, atol=1e-9)
    assert all(np.isfinite(leaf).all() and np.asarray(leaf).any() for leaf in jax.tree.leaves(slopes))
    share = np.abs(map_) / (np.abs(map_).sum(-1, keepdims=True) + 1e-8)
    for statistic, entry in (("attention_received", map_), ("attention_share", share)):
        column = np.stack([entry[:, key:, key].mean(axis=-1) for key in range(T)], axis=-1)
        np.testing.assert_allclose(out.record[statistic][0, 0], column, rtol=1e-8, atol=1e-9)
    assert not np.asarray(out.record["attention_received_bias"]).any()
    if name.startswith(("identity", "mlp")):
        assert (map_ < 0).any()
    if name == "elu-kernel-sum":
        np.testing.assert_allclose(map_.sum(-1), 1, rtol=1e-6)


def test_one_mlp_serves_queries_keys_and_all_heads_of_a_layer() -> None:
    drawn = params.init(bare(**SHAPE | {"layers": 3}, normaliser=NAMED["mlp-kernel-max"]), seed=0)["layers"]["normaliser"]
    assert {name: leaf.shape for name, leaf in drawn.items()} == {"inner": (3, 6, 6), "outer": (3, 6, 6)}
    assert float(drawn["inner"].std()) == pytest.approx(6**-0.5, rel=0.2)


def test_masked_keys_have_no_weight_and_leave_the_others_alone(rng: np.random.Generator) -> None:
    config = bare(**SHAPE, normaliser=NAMED["elu-kernel"])
    weights, x = draw(config, "float32"), rng.standard_normal((1, T, 7)).astype(np.float32)
    plain, masked = (
        np.asarray(sinkjax.forward(weights, x, config, edit, Probe(attention=(0,))).record["attention"])[0, 0]
        for edit in ((), sinkjax.mask_key(0))
    )
    assert not masked[:, 1:, 0].any()
    np.testing.assert_array_equal(masked[:, :, 1:], plain[:, :, 1:])
