"""Causal attention: which key-value head a query head reads, what a window hides, and blocks of queries."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax import Capture, Probe, Site, add_logit, attend_self, compose, edit, mask_key, per_prompt, scale_head_output
from sinkjax.model.normalisers import softmax
from sinkjax.transformer import attention

ALL_OF = Probe(
    attention_received=True,
    attention_share=True,
    row_entropy=True,
    query_key_cosine=True,
    resid_norm=True,
    nll=True,
    attention=(1,),
    capture=(Capture(Site.LOGITS, layers=(0, 2), positions=(3, 255, 256, 290)), Capture(Site.HEAD_OUT, layers=(2,))),
)


@pytest.fixture(scope="module", autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def params64(x64, tiny_params):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tiny_params)


def expanded(params: dict, order: np.ndarray) -> dict:
    """Multi-head parameters in which query head h owns a copy of key-value head order[h]."""
    layers = params["layers"]
    return params | {"layers": layers | {name: layers[name][:, :, order] for name in ("k", "v")}}


def test_query_head_h_reads_key_value_head_h_over_group(params64, tiny_config) -> None:
    tokens = np.arange(12)[None]
    grouped = sinkjax.forward(params64, tokens, tiny_config).logits
    all_heads = dataclasses.replace(tiny_config, kv_heads=6)
    blocked = sinkjax.forward(expanded(params64, np.arange(6) // 3), tokens, all_heads).logits
    interleaved = sinkjax.forward(expanded(params64, np.arange(6) % 2), tokens, all_heads).logits
    np.testing.assert_allclose(grouped, blocked, rtol=1e-12, atol=1e-13)
    assert np.abs(np.asarray(grouped - interleaved)).max() > 1e-2


def test_a_window_sees_its_last_keys(params64, tiny_config) -> None:
    windowed = dataclasses.replace(tiny_config, windows=(None, 4, 1))
    weights = np.asarray(
        sinkjax.forward(params64, np.arange(9)[None], windowed, probe=Probe(attention=range(3))).record["attention"]
    )
    back = np.arange(9)[:, None] - np.arange(9)[None, :]
    for layer, window in enumerate((9, 4, 1)):
        np.testing.assert_array_equal((weights[0, layer] > 0).all(axis=0), (back >= 0) & (back < window))
    np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-12)


@pytest.mark.parametrize(("T", "windows"), [(300, None), (512, (None, 100, 7))], ids=["full", "windows"])
def test_blocks_of_queries_give_the_numbers_of_one_block(params64, tiny_config, monkeypatch, T: int, windows) -> None:
    """Logits, statistics over keys and over queries, captures across the seam, and edits with their counts."""
    config = dataclasses.replace(tiny_config, windows=windows, context=512)
    tokens = np.random.default_rng(2).integers(0, 61, (2, T))
    edits = compose(
        mask_key(per_prompt([1, 250]), layers=1, heads=[0, 4]),
        attend_self([2, 270], layers=2),
        add_logit(200, 0.7, layers=0),
        edit("weights", "scale", 0.5, keys=[3, 260], queries=slice(100, 290), renormalise=True),
        scale_head_output([5, 280], 1.5, centre="positions"),
    )

    def out(block: int) -> sinkjax.forward:
        monkeypatch.setattr(attention, "QUERY_TILE", block)
        monkeypatch.setattr(attention, "GROUPED_FROM", T + 1)  # groups have tests of their own
        jax.clear_caches()
        return sinkjax.forward(params64, tokens, config, edits, ALL_OF, lengths=np.array([T, 290]))

    blocked, whole = out(256), out(T)
    jax.clear_caches()
    np.testing.assert_allclose(blocked.logits, whole.logits, rtol=1e-11, atol=1e-12)
    assert blocked.record.keys() == whole.record.keys()
    for name, array in whole.record.items():
        np.testing.assert_allclose(blocked.record[name], array, rtol=1e-10, atol=1e-12, err_msg=name)
    assert (np.asarray(whole.record["cells_changed"]) > 0).all()


def test_the_block_is_smaller_than_what_the_tests_run() -> None:
    assert attention.QUERY_TILE < 300


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_softmax_over_visible_keys_only(dtype: str) -> None:
    scores = jnp.array([[0.0, 1.0, 2.0], [1e30, -1e30, 5.0], [3.0, 3.0, 3.0], [-800.0, -801.0, 900.0]], dtype)
    visible = jnp.array([[1, 1, 0], [1, 1, 1], [0, 0, 0], [1, 1, 0]], bool)
    weights = softmax(scores, visible)
    odds = np.array([1.0, np.e]) / (1 + np.e)
    np.testing.assert_allclose(weights, [[*odds, 0], [1, 0, 0], [0, 0, 0], [*odds[::-1], 0]], rtol=1e-6)
    assert weights[0, 2] == 0
    assert weights.dtype == dtype


def test_gradient_of_softmax_is_finite_and_right_with_hidden_keys() -> None:
    scores = jnp.array([[0.3, jnp.inf, -0.2], [1.0, 2.0, 3.0], [5.0, 1.0, 0.0]])
    visible = jnp.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]], bool)
    jacobian = np.asarray(jax.jacrev(softmax)(jnp.where(visible, scores, 0), visible))
    p = float(softmax(scores, visible)[0, 0])
    np.testing.assert_allclose(jacobian[0, 0, 0], [p * (1 - p), 0, -p * (1 - p)], rtol=1e-12)
    assert np.isfinite(np.asarray(jax.jacrev(softmax)(scores, visible))).all()
    assert not jacobian[1:].any()
