"""Fused attention gives the numbers of the forward's own, edited and measured, and is refused where it cannot."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax import Probe
from sinkjax.probes.statistics import sinking_heads
from sinkjax.transformer import fused
from tests.model.variants import draw

TOKENS, LENGTHS = np.random.default_rng(3).integers(0, 61, (3, 20)), np.array([20, 7, 13])
PROBE = Probe(attention_received=True, resid_norm=True, nll=True, extra=(sinking_heads(0.1),))
EDITS = {
    "none": (),
    "mask": sinkjax.mask_key(0, layers=1),
    "constant": sinkjax.add_logit(2, 0.7, heads=[0, 1]),
    "elsewhere": [
        sinkjax.swap_embeddings(0, 3),
        sinkjax.shift_positions(key=2),
        sinkjax.edit("head_out", "scale", 0.5, layers=0),
    ],
}


def cudnn_stand_in(q: jax.Array, k: jax.Array, v: jax.Array, scale: float) -> jax.Array:
    """The same operator of JAX, by the implementation that needs no GPU."""
    return jax.nn.dot_product_attention(q, k, v, scale=scale, is_causal=True, implementation="xla")


@pytest.mark.parametrize("edits", EDITS)
@pytest.mark.parametrize("by_cudnn", [False, True])
def test_numbers_are_those_of_the_forward_itself(edits, by_cudnn, tiny_config, monkeypatch) -> None:
    """Logits, statistics and counts of cells; where one operator stands for cuDNN, a second pass measures."""
    if by_cudnn:
        monkeypatch.setattr(fused, "by_cudnn", cudnn_stand_in)
    with jax.enable_x64(True):
        params = draw(tiny_config)
        run = lambda how: sinkjax.forward(  # noqa: E731
            params, TOKENS, tiny_config, EDITS[edits], PROBE, LENGTHS, attention_impl=how
        )
        jax.clear_caches()
        own, other = run("sinkjax"), run("fused")
        jax.clear_caches()
        close = {"rtol": 1e-5, "atol": 1e-6} if by_cudnn and edits in ("none", "elsewhere") else {"rtol": 1e-12, "atol": 1e-12}
        for b, length in enumerate(LENGTHS):  # the stand-in takes its softmax in float32
            np.testing.assert_allclose(other.logits[b, :length], own.logits[b, :length], **close)
        assert set(own.record) == set(other.record)
        for name, values in own.record.items():
            np.testing.assert_allclose(other.record[name], values, **close, err_msg=name)


def test_gradients(tiny_config) -> None:
    with jax.enable_x64(True):
        params = draw(tiny_config)

        def loss(params: dict, how: str) -> jax.Array:
            out = sinkjax.forward(params, TOKENS, tiny_config, EDITS["mask"], Probe(), LENGTHS, attention_impl=how)
            return (out.logits[0] ** 2).mean()

        own, other = (jax.jit(jax.grad(loss), static_argnums=1)(params, how) for how in ("sinkjax", "fused"))
        for mine, want in zip(jax.tree.leaves(other), jax.tree.leaves(own), strict=True):
            np.testing.assert_allclose(mine, want, rtol=1e-11, atol=1e-12)


def test_cudnn_is_for_16_bits_on_a_gpu_alone(monkeypatch) -> None:
    q, k, v = (jnp.ones((1, 8, heads, 16), jnp.bfloat16) for heads in (4, 2, 2))
    assert fused.by_cudnn(q, k, v, 0.25) is None
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert fused.by_cudnn(q.astype(jnp.float32), k.astype(jnp.float32), v.astype(jnp.float32), 0.25) is None
    called = {}
    monkeypatch.setattr(jax.nn, "dot_product_attention", lambda q, k, v, **how: called.update(how) or q)
    fused.by_cudnn(q, k, v, 0.25)
    assert called == {"scale": 0.25, "is_causal": True, "implementation": "cudnn"}
