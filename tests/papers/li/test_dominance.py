"""li/dominance: ratios, singular directions and shares are those of their definitions."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.edits.site import Site
from sinkjax.model.norms import OffsetRMSNorm, RMSNorm, normed_heads
from sinkjax.model.ops import rms_norm
from sinkjax.papers.li import _lock_in, dominance
from sinkjax.study.contrasts import Parts
from sinkjax.study.numbers import Stored
from sinkjax.study.registry import program
from sinkjax.study.work import Batch
from tests.study.tiny import LAYERS, write_both

T = 10
STUDY = program("li/dominance")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory):
    return sinkjax.load(str(write_both(tmp_path_factory.mktemp("tiny")) / "model"))


@pytest.fixture(scope="module")
def batch(model) -> Batch:
    """Six prompts, more than one block, of which one is shorter."""
    tokens = np.random.default_rng(0).integers(1, model.config.vocab_size, (6, T)).astype(np.int32)
    return Batch(tokens, np.array([T, T, T, T, T, T - 3], np.int32), {})


@pytest.fixture(scope="module")
def record(model, batch):
    captured = tuple(sinkjax.Capture(Site(site)) for site in ("embed", "resid", "logits"))
    probe = sinkjax.Probe(capture=captured, extra=_lock_in.STATISTICS)
    return sinkjax.forward(model.params, batch.tokens, model.config, probe=probe, lengths=batch.lengths).record


@pytest.fixture(scope="module")
def data(model, batch):
    return _lock_in.measure(model, batch, [3, 7])


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


def test_norms_around_1_give_the_same_numbers(model, batch, data):
    gains = {"attn_norm": model.params["layers"]["attn_norm"] - 1, "mlp_norm": model.params["layers"]["mlp_norm"] - 1}
    params = {**model.params, "layers": {**model.params["layers"], **gains}, "final_norm": model.params["final_norm"] - 1}
    config = dataclasses.replace(model.config, norm=OffsetRMSNorm(model.config.norm.eps))
    found = _lock_in.measure(dataclasses.replace(model, params=params, config=config), batch, [3, 7])
    for name in ("before", "after", "top", "mean"):
        np.testing.assert_allclose(found[name], data[name], rtol=2e-4, err_msg=name)


def test_the_first_direction_is_the_singular_vector_that_the_mean_query_points_along():
    queries = np.random.default_rng(1).normal([3.0, 0, 0, 1], size=(50, 4))
    found = _lock_in.first_direction(queries.T @ queries, queries.sum(0))
    expected = np.linalg.svd(queries, full_matrices=False)[2][0]
    assert abs(found @ expected) == pytest.approx(1)
    assert found @ queries.mean(0) > 0


def test_scores_are_those_of_the_rotated_queries_and_keys(model, record, data):
    """Positive shares from the logits themselves; u_1 from the sums of the forward, checked through those logits."""
    scores = np.asarray(record["logits"])  # [prompt, layer, head, query, key]
    prompt, key = 5, 2
    later = scores[prompt, :, :, key + 1 : T - 3, key] > 0
    np.testing.assert_allclose(data["positive"].values[prompt, ..., key], later.mean(-1), rtol=1e-6)
    assert np.isnan(data["positive"].values[0, ..., T - 1]).all()
    keys = np.repeat(np.asarray(record["rotated_keys"])[:5], model.config.group, axis=2)
    gram = np.asarray(record["query_gram"])[:5]
    energy = np.einsum("BLHSD,BLHDE,BLHSE->BLHS", keys, gram, keys)[..., 0] / model.config.head_dim
    np.testing.assert_allclose(energy, (scores[:5, :, :, 1:, 0] ** 2).sum(-1), rtol=1e-3)


def test_alignment_is_the_cosine_with_the_first_key_and_with_ordinary_keys(model, record, data):
    sums = [np.asarray(record[name], np.float64).sum(0) for name in ("query_gram", "query_sum")]
    first = _lock_in.first_direction(*sums)
    keys = _lock_in.unit(np.repeat(np.asarray(record["rotated_keys"]), model.config.group, axis=2))  # [N, L, H, S, D]
    cosines = np.einsum("NLHSD,LHD->NLHS", keys, first)
    np.testing.assert_allclose(data["alignment"], cosines[..., 0], atol=1e-4)
    np.testing.assert_allclose(data["other_alignment"][:5], cosines[:5, ..., 1:6].mean(-1), atol=1e-4)
    np.testing.assert_allclose(data["key_alignment"][..., 0], cosines[..., 0].mean(0), atol=1e-4)


def test_rows_of_w_k_are_compared_with_the_first_key(model, record, data):
    key, rows = np.asarray(record["rotated_keys"])[4, 2, 1, 0], np.asarray(model.params["layers"]["k"])[2, :, 1]
    cosines = np.abs(rows @ key) / np.linalg.norm(key) / np.linalg.norm(rows, axis=-1)
    assert data["own_row"].values[4, 2, 1] == pytest.approx(cosines[data["dim"].values[4, 2]], rel=1e-3)
    np.testing.assert_allclose(data["other_rows"].values[:, 4, 2, 1], cosines[[3, 7]], rtol=1e-3)


def test_rows_of_w_k_have_the_gain_of_a_norm_of_keys(model):
    gain = np.random.default_rng(2).uniform(0.5, 2, (LAYERS, model.config.head_dim)).astype(np.float32)
    params = {**model.params, "layers": {**model.params["layers"], "k_norm": gain}}
    normed = dataclasses.replace(model, params=params, config=dataclasses.replace(model.config, qk_norm=RMSNorm(1e-6)))
    rows, layer, dim = _lock_in.key_rows(normed), 2, 4
    key = normed_heads(
        np.eye(model.config.width, dtype=np.float32)[dim] @ _lock_in.key_rows(model)[layer, 1],
        {"k_norm": gain[layer]},
        "k_norm",
        RMSNorm(1e-6),
    )
    assert _lock_in.unit(rows)[layer, 1, dim] @ _lock_in.unit(np.asarray(key)) == pytest.approx(1, rel=1e-5)


def planted(**changed: Any) -> xarray.Dataset:
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
        **changed,
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
    found: Parts = of(Stored(STUDY.settings(), architecture, {"dominance": data}))  # type: ignore[arg-type]
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


def test_a_layer_without_dominance_does_not_count():
    even = planted(before=np.full((4, 6, 9), 4.0))  # nowhere more than elsewhere: all layers count
    assert dominance.formed(even) == slice(0, None)
    assert dominance.formed(planted()) == slice(2, None)
    np.testing.assert_allclose(parts("row", even).contrast, (2 * 0.1 + 3 * 0.8) / 5)
