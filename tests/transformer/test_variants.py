"""Models with less in them: no norm, no rotation, no MLP, no sum; other normalisers; a gate. The one forward runs them.

A naive loop in numpy is the oracle.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax import Probe
from sinkjax.model.config import RMSNorm
from sinkjax.model.heads import HeadGate
from sinkjax.model.normalisers import NAMED, ReLU, Softmax
from tests.model.variants import bare, by_numpy, draw

ONE = {"layers": 1, "residual": False}


@pytest.fixture
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((2, 9, 7))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"residual": False, "layers": 1, "heads": 1, "kv_heads": 1},
        {"score_scale": None},
        {"normaliser": ReLU("index")},
        {"normaliser": NAMED["sink-logit"]},
        {"gate": HeadGate()},
        {"gate": HeadGate(), "normaliser": ReLU("index"), "residual": False},
    ],
    ids=str,
)
def test_attention_alone_gives_what_a_loop_gives(changes: dict) -> None:
    config = bare(**changes)
    weights, x = draw(config), np.random.default_rng(1).standard_normal((3, 9, 7))
    with jax.enable_x64(True):
        out = sinkjax.forward(weights, x, config, lengths=[9, 5, 9])
    assert out.logits is None
    for prompt, length in enumerate((9, 5, 9)):
        np.testing.assert_allclose(
            out.output[prompt, :length], by_numpy(weights, x[prompt, :length], config)[0], rtol=1e-12, atol=1e-12
        )


def test_unrolled_blocks_give_the_numbers_of_the_loop() -> None:
    config, x = bare(layers=3), np.random.default_rng(1).standard_normal((2, 9, 7))
    probe = Probe(attention=(0, 2), resid_norm=True)

    def both(weights: dict, unroll: bool) -> tuple:
        out = sinkjax.forward(weights, x, config, sinkjax.mask_key(0, layers=1), probe, unroll=unroll)
        return (out.output**2).mean(), dict(out.record)

    with jax.enable_x64(True):
        one, other = (jax.value_and_grad(both, has_aux=True)(draw(config), unroll) for unroll in (False, True))
        for first, second in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(first, second, rtol=1e-12, atol=1e-12)


def test_stored_results_of_earlier_versions_know_their_model_and_probe(tiny_config) -> None:
    """What identifies a store is unchanged for what could be stated before, and tells variants apart."""
    before: dict = {"layers": 3, "width": 32, "heads": 6, "kv_heads": 2, "head_dim": 8}
    before |= {"mlp_width": 48, "vocab_size": 61, "context": 64}
    before |= {"norm": {"eps": 1e-5}, "position": {"theta": 10_000.0, "scaling": None}, "activation": "silu", "tied": False}
    before |= {"qkv_bias": False, "out_bias": False, "mlp_bias": False, "windows": None}
    assert json.dumps(tiny_config.identity()) == json.dumps(before)
    flags = ("attention_received", "attention_share", "row_entropy", "query_key_cosine", "resid_max", "resid_norm")
    flags += ("resid_median", "resid_argmax", "query_norm", "key_norm", "value_norm", "nll")
    shown = ", ".join(f"{name}={name == 'nll'}" for name in flags)
    assert repr(Probe(nll=True)) == f"Probe({shown}, attention=(), capture=(), extra=())"
    assert repr(Probe(attention_received_bias=True)) != repr(Probe())
    variants = [bare(normaliser=entry) for entry in NAMED.values()]
    variants += [bare(gate=HeadGate()), bare(residual=False), bare(norm=RMSNorm(0))]
    known = {json.dumps(config.identity()) for config in variants}
    assert len(known) == len(variants)
    assert "normaliser" not in bare(normaliser=Softmax()).identity()


@pytest.mark.parametrize(
    "changes",
    [{**ONE, "gate": HeadGate()}, {**ONE, "normaliser": ReLU("index"), "gate": HeadGate()}, {"normaliser": NAMED["sink-logit"]}],
    ids=str,
)
@pytest.mark.usefixtures("x64")
def test_gradients_are_those_of_differences_of_the_loop(x, changes: dict) -> None:
    """Of every leaf, the gate's and the sink's too, along a random direction."""
    config = bare(**changes)
    leaves, tree = jax.tree.flatten(draw(config))
    loss = jax.jit(lambda w: jnp.square(sinkjax.forward(w, x[:1], config, probe=Probe()).output).mean())
    slopes = jax.tree.leaves(jax.grad(loss)(jax.tree.unflatten(tree, leaves)))
    noise = np.random.default_rng(5)
    for number, leaf in enumerate(leaves):
        way = noise.standard_normal(leaf.shape)
        moved = ([*leaves[:number], leaf + step * way, *leaves[number + 1 :]] for step in (1e-5, -1e-5))
        up, down = (np.square(by_numpy(jax.tree.unflatten(tree, entry), x[0], config)[0]).mean() for entry in moved)
        assert float((slopes[number] * way).sum()) == pytest.approx((up - down) / 2e-5, rel=1e-5)


@pytest.mark.parametrize(("name", "T"), [("softmax", 9), ("sink-logit", 9), ("sink-logit", 300), ("off-by-one", 9)])
@pytest.mark.usefixtures("x64")
def test_what_goes_to_no_key_is_measured_apart(x, name: str, T: int) -> None:
    """Over the queries of each prompt, in one block of queries or two, whatever an edit does to the weights afterwards."""
    changes = {**ONE, "normaliser": NAMED[name], "context": 300}
    tokens = np.concatenate([x, np.random.default_rng(4).standard_normal((2, T - 9, 7))], axis=1)
    lengths = [T, 6]
    config = bare(**changes)
    probe, halve = Probe(attention_received_bias=True, row_entropy=True), sinkjax.edit("weights", "scale", 0.5)
    maps = np.asarray(sinkjax.forward(draw(config), tokens, config, (), Probe(attention=(0,)), lengths).record["attention"])[:, 0]
    for edits in ((), halve):
        found = sinkjax.forward(draw(config), tokens, config, edits, probe, lengths).record
        assert found.dims["attention_received_bias"] == ("prompt", "layer", "head")
        for prompt, length in enumerate(lengths):
            want = 1 - maps[prompt, :, :length, :length].sum(axis=-1).mean(axis=-1) if name in ("sink-logit", "off-by-one") else 0
            np.testing.assert_allclose(found["attention_received_bias"][prompt, 0], want, rtol=1e-9, atol=1e-12)
