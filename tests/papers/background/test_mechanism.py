"""background/mechanism: each intervention against plain loops over a small GPT-2, and its readout."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from scipy.special import erf

import sinkjax
from sinkjax.model import params
from sinkjax.model.config import Config
from sinkjax.model.norms import LayerNorm
from sinkjax.model.positions import Learned
from sinkjax.papers.background import mechanism as own
from sinkjax.study import ALL
from sinkjax.study.lab import Lab, Unedited
from sinkjax.study.measures import read_measure
from sinkjax.study.registry import find
from sinkjax.study.work import Batch

T, L, H, D, EPS = 10, 5, 4, 8, 1e-5
WIDTH = H * D
TOKENS = np.random.default_rng(3).integers(0, 50, (2, T))
STUDY = find("background/mechanism")
WAYS = (
    *("no query bias", "first position vector replaced", "effective vectors exchanged", "position vectors exchanged"),
    *("no first token", "no MLP", "no position vectors"),
)


@pytest.fixture(scope="module")
def model(tiny_config) -> sinkjax.Model:
    """GPT-2's block: LayerNorm, learned positions, biases, an MLP of two matrices; its parameters are all unlike."""
    changes = {"layers": L, "heads": H, "kv_heads": H, "head_dim": D, "norm": LayerNorm(EPS), "position": Learned()}
    biases = {"qkv_bias": True, "out_bias": True, "mlp_bias": True, "gated_mlp": False, "activation": "gelu"}
    config: Config = dataclasses.replace(tiny_config, width=WIDTH, **changes, **biases)
    drawn, tree = jax.tree.flatten(params.init(config, seed=0))
    noise = np.random.default_rng(1)
    leaves = [np.asarray(leaf) + 0.1 * noise.standard_normal(leaf.shape).astype(np.float32) for leaf in drawn]
    return sinkjax.Model(config, jax.tree.map(jax.numpy.asarray, jax.tree.unflatten(tree, leaves)), None, {})


@pytest.fixture(scope="module")
def lab(model) -> Lab:
    """The study, traced with the model."""
    batch = Batch(TOKENS, np.array([T, T]), {})
    return STUDY.trace(STUDY.settings(length=T, prompts=2), model.config, unedited=Unedited(model, batch))


def layer_norm(x, gain, bias):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + EPS) * gain + bias


def mlp(x, w, layer):
    hidden = x @ w["up"][layer] + w["up_bias"][layer]
    return hidden * (1 + erf(hidden / np.sqrt(2))) / 2 @ w["down"][layer] + w["down_bias"][layer]


def by_hand(model, prompt: int, way: str, dims=()) -> np.ndarray:
    """Attention maps [layer, head, query, key] of one prompt, as the paper's code computes them."""
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), model.params)
    w, vectors = p["layers"], p["positions"][:T].copy()
    tokens = p["embed"][TOKENS[prompt]].copy()
    effective = vectors + mlp(vectors, w, 0)
    pair = {"effective vectors exchanged": effective, "position vectors exchanged": vectors.copy()}.get(way)
    if way == "first position vector replaced":
        vectors[0] = vectors[1]
    if way == "no first token":
        tokens[0] = 0
    h = tokens if way == "no position vectors" else tokens + vectors
    maps = []
    for layer in range(L):
        x = layer_norm(h, w["attn_norm"][layer], w["attn_norm_bias"][layer])
        wk = w["k"][layer].copy()
        wk[list(dims)] = 0
        bias = 0 if way == "no query bias" else w["q_bias"][layer]
        q, k, v = (
            np.einsum("td,dhe->hte", x, one) + np.reshape(b, (H, 1, D) if np.ndim(b) else ())
            for one, b in ((w["q"][layer], bias), (wk, w["k_bias"][layer]), (w["v"][layer], w["v_bias"][layer]))
        )
        scores = np.where(np.tril(np.ones((T, T))) == 1, q @ k.transpose(0, 2, 1) / np.sqrt(D), -np.inf)
        a = np.exp(scores - scores.max(axis=-1, keepdims=True))
        a /= a.sum(axis=-1, keepdims=True)
        maps.append(a)
        h = h + np.einsum("hte,hed->td", a @ v, w["o"][layer]) + w["o_bias"][layer]
        if way == "no MLP":
            continue
        made = mlp(layer_norm(h, w["mlp_norm"][layer], w["mlp_norm_bias"][layer]), w, layer)
        if layer == 0 and pair is not None:
            one, other = (vector / np.linalg.norm(vector) for vector in pair[:2])
            alpha = made[0] @ one
            made[0] += alpha * (other - one)
            made[1] += alpha * (one - other)
        h = h + made
    return np.array(maps)


def maps_of(model, edit) -> np.ndarray:
    return np.asarray(
        sinkjax.forward(model, TOKENS, edits=edit, probe=sinkjax.Probe(attention=True), logits=False).record["attention"]
    )


@pytest.mark.parametrize("way", WAYS)
def test_an_intervention_is_the_papers(model, lab, way):
    sweep = lab.sweeps["edited"]
    assert [case["way"] for case in sweep.edits] == [*WAYS]
    found = maps_of(model, sweep.edits[ALL.at(way=way)])
    for prompt in range(2):
        np.testing.assert_allclose(found[prompt], by_hand(model, prompt, way), atol=2e-5)
        assert np.abs(found[prompt] - by_hand(model, prompt, "none")).max() > 1e-3


def test_the_readout_is_a_mean_over_the_second_half_and_the_middle_layers(model):
    lengths, measure = np.array([T, 7]), own.second_half_attention_to(0, own.middle(L))
    data = sinkjax.sweep(model, TOKENS, [sinkjax.compose()], probe=measure.asks, lengths=lengths, progress=False)
    probe = sinkjax.Probe(attention=True)
    maps = np.asarray(sinkjax.forward(model, TOKENS, probe=probe, lengths=lengths, logits=False).record["attention"])
    want = [100 * maps[0, 3, :, 5:, 0].mean(), 100 * maps[1, 3, :, 3:7, 0].mean()]
    np.testing.assert_allclose(read_measure(measure, data)[0], want, rtol=1e-4)
