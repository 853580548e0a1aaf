"""Every normaliser, over random scores and visibility: what all share, the laws of each, and a numpy loop's numbers."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import sinkjax
from sinkjax import Probe
from sinkjax.model.names import NormaliserName
from sinkjax.model.normalisers import (
    NAMED,
    ClippedSoftmax,
    Normaliser,
    PNorm,
    Sigmoid,
)
from sinkjax.model.rotary import Rope
from tests.model.variants import WEIGHTS, bare, by_numpy, draw

H, Q, S = 2, 3, 4
SINK = np.array([0.7, -1.3])
RECORDS = NAMED | {"sigmoid-shift": Sigmoid(-2.0), "clipped-both": ClippedSoftmax(1.2, -0.1)}
RECORDS |= {"softmax-third": PNorm("softmax", 1 / 3), "softmax-4": PNorm("softmax", 4.0), "sigmoid-half": PNorm("sigmoid", 0.5)}
SIGNED = ("identity", "identity-max", "elu-kernel", "elu-kernel-sum", "mlp-kernel", "mlp-kernel-max")  # of any scores
SUMS_TO_ONE_WITH_BIAS = ("softmax", "sink-logit", "off-by-one")

scores = arrays(np.float64, (H, Q, S), elements=st.floats(-30, 30))
visibility = arrays(bool, (H, Q, S))
names = pytest.mark.parametrize("name", RECORDS)


@pytest.fixture(scope="module", autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def learned(entry: Normaliser) -> dict[str, np.ndarray]:
    return of_heads(entry) | {"rows": np.arange(2, 2 + Q)}


def of_heads(entry: Normaliser) -> dict[str, np.ndarray]:
    return {name: SINK for name, axes in entry.learned().items() if axes == ("heads",)}


@functools.cache
def function(name: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    entry = RECORDS[name]
    return jax.jit(lambda s, seen: entry.weights(s, seen, learned(entry)))


@functools.cache
def gradient(name: str) -> Callable[..., Any]:
    """Of a sum with uneven factors, with respect to scores and to what is learned."""
    entry = RECORDS[name]

    def total(s: Any, params: Any, seen: Any) -> Any:
        weights = entry.weights(s, seen, params | {"rows": np.arange(2, 2 + Q)})
        return (weights * jnp.sin(1.0 + jnp.arange(weights.size).reshape(weights.shape))).sum()

    return jax.jit(jax.grad(total, argnums=(0, 1)))


@names
@settings(max_examples=60, deadline=None)
@given(s=scores, seen=visibility)
def test_weights_are_those_of_a_loop_and_hidden_ones_are_exactly_0(name: str, s: np.ndarray, seen: np.ndarray) -> None:
    weights = np.asarray(function(name)(s, seen))
    assert (weights[~seen] == 0).all()
    assert name in SIGNED or (weights >= 0).all()
    for head, query in itertools.product(range(H), range(Q)):
        kept = seen[head, query]
        if kept.any():
            want = WEIGHTS[name](s[head, query, kept], query + 2, SINK[head])
            np.testing.assert_allclose(weights[head, query, kept], want, rtol=1e-9, atol=1e-13)


@names
@settings(max_examples=60, deadline=None)
@given(s=scores, seen=visibility, hidden=st.sampled_from([np.inf, -np.inf, np.nan, 1e300]))
def test_gradients_are_finite_and_blind_to_hidden_scores(name: str, s: np.ndarray, seen: np.ndarray, hidden: float) -> None:
    params = of_heads(RECORDS[name])
    whole = gradient(name)(s, params, seen)
    poisoned = gradient(name)(np.where(seen, s, hidden), params, seen)
    for first, second in zip(jax.tree.leaves(whole), jax.tree.leaves(poisoned), strict=True):
        assert np.isfinite(first).all()
        np.testing.assert_array_equal(first, second)
    assert (np.asarray(whole[0])[~seen] == 0).all()
    np.testing.assert_array_equal(function(name)(np.where(seen, s, hidden), seen), function(name)(s, seen))


@names
def test_gradients_are_those_of_differences(name: str, rng: np.random.Generator) -> None:
    s, seen = rng.normal(size=(H, Q, S)), rng.random((H, Q, S)) < 0.8
    params = of_heads(RECORDS[name])
    wave = np.sin(1.0 + np.arange(s.size).reshape(s.shape))
    slopes = np.zeros_like(s)
    for place in np.ndindex(s.shape):
        step = np.zeros_like(s)
        step[place] = 1e-6
        up, down = (np.asarray(function(name)(s + sign * step, seen)) for sign in (1, -1))
        slopes[place] = ((up - down) * wave).sum() / 2e-6
    np.testing.assert_allclose(gradient(name)(s, params, seen)[0], slopes, rtol=1e-5, atol=1e-8)


def test_the_names_in_configs_are_those_of_the_table() -> None:
    assert get_args(NormaliserName) == tuple(NAMED)


T = 9
SHAPE = {"layers": 1, "heads": 4, "kv_heads": 2, "head_dim": 6, "position": Rope(100.0), "score_scale": None, "residual": False}


@pytest.mark.parametrize("name", ["identity", "identity-max", "elu-kernel", "elu-kernel-sum", "mlp-kernel", "mlp-kernel-max"])
def test_weights_shares_and_outputs_are_those_of_numpy(name: str, rng: np.random.Generator) -> None:
    config = bare(**SHAPE, normaliser=NAMED[name])
    weights, x = draw(config), rng.standard_normal((1, T, 7)) * 2
    probe = Probe(attention=(0,), attention_received=True, attention_share=True, attention_received_bias=True)

    def loss(weights: dict) -> tuple:
        out = sinkjax.forward(weights, x, config, (), probe)
        return (out.output**2).sum(), out

    with jax.enable_x64(True):
        want, maps = by_numpy(weights, x[0], config)
        slopes, out = jax.grad(loss, has_aux=True)(weights)
    map_ = maps[0, ..., 1:]
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
