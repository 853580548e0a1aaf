"""li/dominance: ratios, singular directions and shares are those of their definitions."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.model.norms import RMSNorm, normed_heads
from sinkjax.model.ops import rms_norm
from sinkjax.model.site import Site
from sinkjax.papers.li import dominance
from sinkjax.study.contrasts import Parts
from sinkjax.study.numbers import Numbers
from sinkjax.study.registry import find
from sinkjax.study.work import Batch
from tests.study.tiny import LAYERS

T = 10
STUDY = find("li/dominance")


@pytest.fixture(scope="module")
def batch(model) -> Batch:
    """Six prompts, more than one block, of which one is shorter."""
    tokens = np.random.default_rng(0).integers(1, model.config.vocab_size, (6, T)).astype(np.int32)
    return Batch(tokens, np.array([T, T, T, T, T, T - 3], np.int32), {})


@pytest.fixture(scope="module")
def record(model, batch):
    captured = tuple(sinkjax.Capture(Site(site)) for site in ("embed", "resid", "logits"))
    probe = sinkjax.Probe(capture=captured, extra=dominance.STATISTICS)
    return sinkjax.forward(model.params, batch.tokens, model.config, probe=probe, lengths=batch.lengths).record


@pytest.fixture(scope="module")
def data(model, batch):
    return dominance.measure(model, batch, [3, 7])


def test_dominance_is_the_largest_over_the_mean(model, record, data):
    state = np.asarray(record["resid"])[:, 0]  # depth 1, which layer 1 reads
    normed = np.asarray(rms_norm(state, model.params["layers"]["attn_norm"][1], model.config.norm.eps))
    for name, x in (("before", state), ("after", normed)):
        expected = np.abs(x).max(-1) / np.abs(x).mean(-1)
        found = data[name].values[:, 1]
        np.testing.assert_allclose(found[:5], expected[:5], rtol=1e-5)
        np.testing.assert_allclose(found[5, : T - 3], expected[5, : T - 3], rtol=1e-5)
        assert np.isnan(found[5, T - 3 :]).all()
    first = np.abs(normed[:, 0])
    np.testing.assert_array_equal(data["dim"].values[:, 1], first.argmax(-1))
    np.testing.assert_allclose(data["top"].values[:, 1] / data["mean"].values[:, 1], data["after"].values[:, 1, 0], rtol=1e-5)
    assert data.sizes["depth"] == LAYERS + 1


def test_rows_of_w_k_have_the_gain_of_a_norm_of_keys(model):
    gain = np.random.default_rng(2).uniform(0.5, 2, (LAYERS, model.config.head_dim)).astype(np.float32)
    params = {**model.params, "layers": {**model.params["layers"], "k_norm": gain}}
    normed = dataclasses.replace(model, params=params, config=dataclasses.replace(model.config, qk_norm=RMSNorm(1e-6)))
    rows, layer, dim = dominance.key_rows(normed), 2, 4
    key = normed_heads(
        np.eye(model.config.width, dtype=np.float32)[dim] @ dominance.key_rows(model)[layer, 1],
        {"k_norm": gain[layer]},
        "k_norm",
        RMSNorm(1e-6),
    )
    assert dominance.unit(rows)[layer, 1, dim] @ dominance.unit(np.asarray(key)) == pytest.approx(1, rel=1e-5)


def planted() -> xarray.Dataset:
    """Four prompts of 9 tokens in 5 layers: key 0 dominates by 100 from layer 2 on, where heads of group 0 lock in on it."""
    N, L, H, S = 4, 5, 2, 9
    before = np.full((N, L + 1, S), 4.0)
    before[:, 2:, 0] = 100
    positive, alignment = np.full((N, L, H, S), 0.5), np.zeros((N, L, H))
    positive[:, 2:, 0, 0], alignment[:, 2:, 0] = 1, 0.9
    key_alignment = np.zeros((L, H, S))
    key_alignment[2:, 0, 0] = 0.9
    arrays: dict[str, Any] = {
        "before": before,
        "after": np.sqrt(before),
        "alignment": alignment,
        "other_alignment": np.full((N, L, H), -0.1),
        "key_alignment": key_alignment,
        "positive": positive,
        "own_row": np.repeat([0.1, 0.1, 0.8, 0.8, 0.8], N).reshape(L, N).T[..., None],
        "other_rows": np.full((3, N, L, 1), 0.2),
    }
    axes = {
        **dict.fromkeys(("before", "after"), ("prompt", "depth", "position")),
        **dict.fromkeys(("alignment", "other_alignment"), ("prompt", "layer", "head")),
        "key_alignment": ("layer", "head", "key"),
        "positive": ("prompt", "layer", "head", "key"),
        "own_row": ("prompt", "layer", "kv_head"),
        "other_rows": ("control", "prompt", "layer", "kv_head"),
    }
    return xarray.Dataset({name: (axes[name], values) for name, values in arrays.items()})


def parts(claim: str, data: xarray.Dataset) -> Parts:
    """What a claim computes, in a model of width 400."""
    architecture = SimpleNamespace(layers=5, width=400)
    of: Any = STUDY.trace(STUDY.settings(), architecture).claims[claim].of  # type: ignore[arg-type]
    found: Parts = of(Numbers(STUDY.settings(), architecture, {"dominance": data}))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(
    ("claim", "contrast", "whole"),
    [
        ("ratio", np.log(25), np.log(100)),  # 100 of 400 against 4
        ("norm", np.log(5), np.log(25)),
        ("row", 0.8, 1),
        ("lock-in", 0.45 + 0.1, 1.1),  # one of two heads
        ("positive", 50, 50),
    ],
)
def test_contrasts_compare_the_first_token_with_ordinary_ones(claim, contrast, whole):
    found = parts(claim, planted())
    np.testing.assert_allclose(found.contrast, contrast)
    np.testing.assert_allclose(found.whole, whole)
