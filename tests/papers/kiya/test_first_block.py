"""kiya/embedding and kiya/rope: norms, cosines and scores of the first block against their definitions, and ranks."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.model.config import Multipliers
from sinkjax.model.norms import OffsetRMSNorm
from sinkjax.model.params import init
from sinkjax.model.rotary import LayerRopes, Rope
from sinkjax.papers.kiya import _first_block as first_block
from sinkjax.study.lab import Study
from sinkjax.study.numbers import Numbers
from sinkjax.study.registry import find
from sinkjax.study.work import Batch
from tests.study.tiny import write_both

EMBEDDING, ROPE = find("kiya/embedding"), find("kiya/rope")
SIZE = 16
NO_BATCH = Batch(np.zeros((1, 1), np.int32), np.ones(1, np.int32), {})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_both(tmp_path_factory.mktemp("tiny")) / "model")


@pytest.fixture(scope="module")
def model(folder) -> Any:
    """With biases, which some models have."""
    loaded = sinkjax.load(folder)
    config = dataclasses.replace(loaded.config, qkv_bias=True)
    rng = np.random.default_rng(0)
    biases = {
        f"{name}_bias": 0.3 * rng.standard_normal((config.layers, heads, config.head_dim)).astype(np.float32)
        for name, heads in (("q", config.heads), ("k", config.kv_heads), ("v", config.kv_heads))
    }
    return dataclasses.replace(loaded, config=config, params=loaded.params | {"layers": loaded.params["layers"] | biases})


def computed(study: Study, name: str, folder: str, model: Any, **settings: Any) -> xarray.Dataset:
    """A computation of a study on a model, as the study carries it out."""
    calculation = study.trace(study.settings(model=folder, **settings), model.config).calculations[name]
    found = calculation.compute(model, NO_BATCH)
    assert set(found.data_vars) == set(calculation.variables)
    return found


@pytest.fixture(scope="module")
def keys(folder, model) -> xarray.Dataset:
    return computed(EMBEDDING, "keys", folder, model)


@pytest.fixture(scope="module")
def scores(folder, model) -> xarray.Dataset:
    return computed(ROPE, "scores", folder, model, indices=SIZE, tokens=5)


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


def by_definition(model: Any, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Queries [H, D] and keys [K, D] of the first block for one vector, in float64."""
    first = {name: np.asarray(leaf[0], np.float64) for name, leaf in model.params["layers"].items()}
    x = vector / np.sqrt((vector**2).mean() + model.config.norm.eps) * first["attn_norm"]
    return np.einsum("d,dhk->hk", x, first["q"]) + first["q_bias"], np.einsum("d,dhk->hk", x, first["k"]) + first["k_bias"]


def pair_by_definition(model: Any) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Queries and keys of BOS, token 0, which is the only special one, and of the mean of the others."""
    table = np.asarray(model.params["embed"], np.float64)
    return by_definition(model, table[0]), by_definition(model, np.delete(table, 0, axis=0).mean(axis=0))


def test_norms_and_cosines_are_those_of_their_definitions(model, keys):
    (_, k_bos), (query, k_avg) = pair_by_definition(model)
    for row, vector in enumerate((k_bos, k_avg)):
        repeated = np.stack([vector[head // model.config.group] for head in range(model.config.heads)])
        pooled = query.reshape(model.config.kv_heads, model.config.group, -1).mean(axis=1)
        heads = [cosine(q, k) for q, k in zip(query, repeated, strict=True)]
        expected = {
            "key_norm": np.linalg.norm(vector),
            "cosine_kv": cosine(pooled.ravel(), vector.ravel()),
            "cosine_repeated": cosine(query.ravel(), repeated.ravel()),
            "cosine_heads": np.mean(heads),
        }
        for name, value in expected.items():
            assert float(keys[name][row]) == pytest.approx(value, rel=1e-5, abs=1e-6), name
        np.testing.assert_allclose(keys["head_cosine"][row], heads, rtol=1e-5, atol=1e-6)
    of_seven = by_definition(model, np.asarray(model.params["embed"][7], np.float64))[1]
    assert float(keys["token_key_norm"][7]) == pytest.approx(np.linalg.norm(of_seven), rel=1e-5)


def test_a_key_repeated_to_query_heads_is_longer_by_the_root_of_their_number(folder, model, keys):
    lab = EMBEDDING.trace(EMBEDDING.settings(model=folder), model.config)
    rows: Any = lab.claims["size"].of(Numbers(lab.settings, model.config, {"keys": keys}))
    assert rows[1].value.mean == pytest.approx(rows[0].value.mean * model.config.group**0.5)


def test_the_first_block_of_a_gemma_is_that_of_its_forward(model):
    """Keys and scores with a factor on the embedding, sandwich norms, normed keys and two rotary bases."""
    local, everywhere = Rope(100.0), Rope(1e6)
    config = dataclasses.replace(
        model.config,
        norm_place="sandwich",
        qk_norm=OffsetRMSNorm(1e-6),
        norm=OffsetRMSNorm(1e-6),
        multipliers=Multipliers(embedding=3.0),
        position=LayerRopes((everywhere, local), (1,) + (0,) * (model.config.layers - 1)),
        qkv_bias=False,
    )
    params = init(config, 0)
    tokens = np.array([[0, *range(20, 20 + SIZE - 1)]])
    capture = tuple(sinkjax.Capture(site, layers=(0,), name=site) for site in ("query", "key", "logits"))
    record = sinkjax.forward(params, tokens, config, probe=sinkjax.Probe(capture=capture)).record
    queries, keys = first_block.project(params, params["embed"][tokens[0]], config)
    np.testing.assert_allclose(queries, record["query"][0, 0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(keys, record["key"][0, 0], rtol=1e-5, atol=1e-5)
    scores = first_block.grid(queries[SIZE - 1], keys[:3], config, SIZE)[0]
    found = np.stack([scores[key][:, SIZE - 1, key] for key in (0, 1)], axis=-1)
    np.testing.assert_allclose(found, record["logits"][0, 0][:, SIZE - 1, :2], rtol=1e-4, atol=1e-5)


# Scores.


def rotation(index: int, head_dim: int, theta: float) -> np.ndarray:
    """The matrix R_index: each pair (p, p + head_dim / 2) turned by index * theta^(-2p / head_dim)."""
    matrix, half = np.zeros((head_dim, head_dim)), head_dim // 2
    for pair in range(half):
        angle = index * theta ** (-2 * pair / head_dim)
        block = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        matrix[np.ix_([pair, pair + half], [pair, pair + half])] = block
    return matrix


def test_scores_are_those_of_rotated_queries_and_keys(model, scores):
    config = model.config
    (_, k_bos), (query, k_avg) = pair_by_definition(model)
    for i, j, head in ((0, 0, 0), (9, 2, 1), (15, 15, config.heads - 1), (3, 12, 2)):
        turned = rotation(i, config.head_dim, config.position.theta) @ query[head]
        for row, vector in enumerate((k_bos, k_avg)):
            key = rotation(j, config.head_dim, config.position.theta) @ vector[head // config.group]
            expected = turned @ key / np.sqrt(config.head_dim)
            assert float(scores["score"][row, head, i, j]) == pytest.approx(expected, rel=1e-4, abs=1e-6)
    causal = np.tri(SIZE, dtype=bool)
    np.testing.assert_allclose(scores["mean_score"], scores["score"].values[..., causal].mean(axis=-1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(scores["received"][0], received(*scores["score"].values), rtol=1e-4, atol=1e-6)


def received(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
    """What one key would receive at each index, the keys at all others being the others: a softmax for each query."""
    heads, size, _ = scores.shape
    found = np.zeros((heads, size))
    for head in range(heads):
        for j in range(size):
            weights = []
            for i in range(j, size):
                row = others[head, i, : i + 1].astype(np.float64)
                row[j] = scores[head, i, j]
                weights.append(np.exp(row - row.max())[j] / np.exp(row - row.max()).sum())
            found[head, j] = np.mean(weights)
    return found
