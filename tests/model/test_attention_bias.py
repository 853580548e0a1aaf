"""Keys and values of no token: what numpy gives with one more column, and a model that sees one more vector."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax import Probe
from sinkjax.model.attention_bias import KeyBias, KeyValueBias, SinkToken, ValueBias
from sinkjax.model.config import RMSNorm
from sinkjax.model.normalisers import NAMED
from sinkjax.model.rotary import Rope
from tests.model.variants import bare, by_numpy, draw

T = 9
STATISTICS = ("attention_received", "attention_share", "attention_received_bias", "attention_share_bias")
SHAPE: dict[str, Any] = {"heads": 4, "kv_heads": 2, "head_dim": 6, "position": Rope(100.0), "score_scale": None}
OPTIONS: dict[str, dict[str, Any]] = {
    "key": {"kv_bias": KeyBias()},
    "shared key": {"kv_bias": KeyBias(shared=True)},
    "key of two dims": {"kv_bias": KeyBias(dims=2)},
    "shared key of one dim": {"kv_bias": KeyBias(dims=1, shared=True)},
    "key with 5 v'": {"kv_bias": KeyBias(value="unit", value_scale=5.0)},
    "key with v''": {"kv_bias": KeyBias(value="ones")},
    "key and value": {"kv_bias": KeyValueBias()},
    "shared key and value": {"kv_bias": KeyValueBias(shared=True)},
    "value": {"kv_bias": ValueBias()},
    "shared value": {"kv_bias": ValueBias(shared=True)},
    "key and value of sigmoid": {"kv_bias": KeyValueBias(), "normaliser": NAMED["sigmoid"]},
    "key and value of a kernel": {"kv_bias": KeyValueBias(), "normaliser": NAMED["elu-kernel-sum"]},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_bias_is_one_more_column_that_is_measured_apart(name: str, rng: np.random.Generator) -> None:
    config = bare(**SHAPE, **OPTIONS[name])
    weights, x = draw(config), rng.standard_normal((2, T, 7))
    probe = dataclasses.replace(Probe.of(*STATISTICS), attention=(0, 1))

    def loss(weights: dict) -> tuple:
        out = sinkjax.forward(weights, x, config, sinkjax.add_logit(0, 0.0), probe, [T, 5])
        return (out.output[0] ** 2).sum(), out

    with jax.enable_x64(True):
        slopes, out = jax.grad(loss, has_aux=True)(weights)
        for prompt, length in enumerate((T, 5)):
            want, maps = by_numpy(weights, x[prompt, :length], config)
            np.testing.assert_allclose(out.output[prompt, :length], want, rtol=1e-7, atol=1e-7)
            found = np.nan_to_num(out.record["attention"][prompt, ..., :length, :length])
            np.testing.assert_allclose(found, maps[..., 1:], rtol=1e-7, atol=1e-7)
            shares = np.abs(maps) / (np.abs(maps).sum(axis=-1, keepdims=True) + 1e-8)
            for statistic, entry in zip(STATISTICS, (maps, shares, maps, shares), strict=True):
                column = out.record[statistic][prompt]
                column, key = (column, 0) if statistic.endswith("bias") else (column[..., 0], 1)
                np.testing.assert_allclose(column, entry[..., key].mean(axis=-1), rtol=1e-7, atol=1e-7)
    assert all(np.isfinite(leaf).all() and np.asarray(leaf).any() for leaf in jax.tree.leaves(slopes))


@pytest.mark.parametrize("normaliser", ["softmax", "sigmoid"])
def test_a_sink_token_is_a_vector_before_the_first_that_has_no_column(normaliser: str, rng: np.random.Generator) -> None:
    more = {"mlp_width": 11, "norm": RMSNorm(1e-5), "normaliser": NAMED[normaliser], "qk_norm": RMSNorm(1e-5)}
    config = bare(**SHAPE | {"layers": 3}, **more, kv_bias=SinkToken())
    weights, x = draw(config), rng.standard_normal((2, T, 7))
    plain = dataclasses.replace(config, kv_bias=None)
    longer = np.concatenate([np.broadcast_to(weights["sink_token"], (2, 1, 7)), x], axis=1)
    probe = Probe(attention=(0, 1, 2), attention_received_bias=True, resid_norm=True)

    def loss(weights: dict) -> tuple:
        out = sinkjax.forward(weights, x, config, probe=probe)
        return (out.output**2).sum(), out

    def by_one_more(weights: dict, vector: jax.Array) -> tuple:
        inside = {name: leaf for name, leaf in weights.items() if name != "sink_token"}
        out = sinkjax.forward(inside, jnp.asarray(longer).at[:, 0].set(vector), plain, probe=probe)
        return (out.output[:, 1:] ** 2).sum(), out

    with jax.enable_x64(True):
        slopes, ours = jax.grad(loss, has_aux=True)(weights)
        want, theirs = jax.grad(by_one_more, argnums=(0, 1), has_aux=True)(weights, weights["sink_token"])
    np.testing.assert_allclose(ours.output, theirs.output[:, 1:], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.record["resid_norm"], theirs.record["resid_norm"][..., 1:], rtol=1e-9)
    np.testing.assert_allclose(ours.record["attention"], theirs.record["attention"][..., 1:, 1:], rtol=1e-8, atol=1e-12)
    first = np.asarray(theirs.record["attention"])[..., 1:, 0]
    np.testing.assert_allclose(ours.record["attention_received_bias"], first.mean(axis=-1), rtol=1e-8)
    np.testing.assert_allclose(slopes["sink_token"], want[1], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(slopes["layers"]["k"], want[0]["layers"]["k"], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("more", [{"embed_width": 7}, {"unembed_bias": True}], ids=str)
def test_a_sink_token_enters_the_stream_whatever_the_embedding_is(more: dict[str, Any]) -> None:
    config = bare(**SHAPE, vocab_size=5, kv_bias=SinkToken())
    wider = dataclasses.replace(config, **more)
    still = {"embed_in": np.eye(7), "embed_out": np.eye(7), "unembed_bias": np.zeros(5)}
    plain = draw(config)
    same = plain | {name: still[name] for name in draw(wider) if name in still}
    with jax.enable_x64(True):
        found, want = (sinkjax.forward(weights, [[0, 3, 1]], of) for weights, of in ((same, wider), (plain, config)))
    np.testing.assert_allclose(found.logits, want.logits, rtol=1e-12)
