"""kiya/embedding: norms and cosines against their definitions in float64, by every convention, and whose numbers are shown."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.checkpoints.model import Model
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.base import Batch
from sinkjax.experiments.kiya import embedding, first_block
from sinkjax.experiments.kiya.config import Embedding
from sinkjax.studies import run
from sinkjax.studies.registry import choose
from tests.studies.tiny import study, write_both

NO_BATCH = Batch(np.zeros((1, 1), np.int32), np.ones(1, np.int32), {})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_both(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def model(files: Path) -> Model:
    """With biases, which some models have."""
    loaded = sinkjax.load(str(files / "model"))
    config = dataclasses.replace(loaded.config, qkv_bias=True)
    rng = np.random.default_rng(0)
    biases = {
        f"{name}_bias": 0.3 * rng.standard_normal((config.layers, heads, config.head_dim)).astype(np.float32)
        for name, heads in (("q", config.heads), ("k", config.kv_heads), ("v", config.kv_heads))
    }
    return dataclasses.replace(loaded, config=config, params=loaded.params | {"layers": loaded.params["layers"] | biases})


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


def by_definition(model: Model, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Queries [H, D] and keys [K, D] of the first block for one vector, in float64."""
    first = {name: np.asarray(leaf[0], np.float64) for name, leaf in model.params["layers"].items()}
    x = vector / np.sqrt((vector**2).mean() + model.config.norm.eps) * first["attn_norm"]
    return np.einsum("d,dhk->hk", x, first["q"]) + first["q_bias"], np.einsum("d,dhk->hk", x, first["k"]) + first["k_bias"]


def test_norms_and_cosines_are_those_of_their_definitions(model):
    data = embedding.compute(Embedding(), model, NO_BATCH)
    table = np.asarray(model.params["embed"], np.float64)
    mean = np.delete(table, 0, axis=0).mean(axis=0)  # token 0 is the BOS, and the only special one
    query, k_avg = by_definition(model, mean)
    for row, keys in enumerate((by_definition(model, table[0])[1], k_avg)):
        repeated = np.stack([keys[head // model.config.group] for head in range(model.config.heads)])
        pooled = query.reshape(model.config.kv_heads, model.config.group, -1).mean(axis=1)
        expected = {
            "key_norm": np.linalg.norm(keys),
            "cosine_kv": cosine(pooled.ravel(), keys.ravel()),
            "cosine_repeated": cosine(query.ravel(), repeated.ravel()),
            "cosine_heads": np.mean([cosine(q, k) for q, k in zip(query, repeated, strict=True)]),
        }
        for name, value in expected.items():
            assert float(data[name][row]) == pytest.approx(value, rel=1e-5, abs=1e-6), name
        heads = [cosine(q, k) for q, k in zip(query, repeated, strict=True)]
        np.testing.assert_allclose(data["head_cosine"][row], heads, rtol=1e-5, atol=1e-6)
    keys = by_definition(model, table[7])[1]
    assert float(data["token_key_norm"][7]) == pytest.approx(np.linalg.norm(keys), rel=1e-5)


def test_special_tokens_enter_the_mean_only_if_asked_for_and_the_bos_never(model):
    assert first_block.averaged(model, 5, special=False).tolist() == [False] + [True] * 4 + [False] + [True] * 251
    assert first_block.averaged(model, 5, special=True).tolist() == [True] * 5 + [False] + [True] * 251
    assert first_block.averaged(model, 0, special=True).tolist() == [False] + [True] * 256


def test_a_model_without_a_bos_needs_a_token_id(model):
    bare = dataclasses.replace(model, tokenizer=dataclasses.replace(model.tokenizer, bos=None))
    with pytest.raises(SinkjaxError, match=r"the files of .* name no BOS token; give a token id as bos"):
        embedding.compute(Embedding(), bare, NO_BATCH)
    assert embedding.compute(Embedding(bos=9), bare, NO_BATCH).attrs["bos"] == 9
    with pytest.raises(SinkjaxError, match="bos is the token id 257, but the model's vocabulary has 257 tokens"):
        embedding.compute(Embedding(bos=257), bare, NO_BATCH)


def test_the_run_ranks_the_bos_among_all_ordinary_tokens(files, tmp_path):
    section = run.carry_out(study("kiya/embedding", files, prompts=1), tmp_path / "out")
    data = xarray.open_zarr(tmp_path / "out" / "embeddings.zarr", chunks=None)
    name = "cosine with q_avg, repeated to query heads"
    (row,) = [row for row in section.rows if (row.arm, row.measure) == (embedding.BOS, name)]
    assert row.controls == 256
    below = data["token_cosine_repeated"].values[1:] < float(data["cosine_repeated"][0])
    assert row.percentile == pytest.approx(100 * below.mean())
    assert row.value.low is None
    assert {drawing.name for drawing in section.drawings} == {"vocabulary", "by-head"}
    assert not [row for row in section.rows if row.group == "paper"]


def test_the_papers_numbers_stand_beside_those_of_its_own_architecture(files, tmp_path):
    chosen = study("kiya/embedding", files, prompts=1)
    run.carry_out(chosen, tmp_path / "out")
    data = xarray.open_zarr(tmp_path / "out" / "embeddings.zarr", chunks=None).load()
    data.attrs["sweep"]["config"] |= embedding.LLAMA_3B
    factor = 3**0.5  # query heads over key-value heads are 24 / 8
    norms = [float(data["key_norm"][row]) * factor for row in (0, 1)]
    cosines = [float(data["cosine_kv"][row]) for row in (0, 1)]
    config = dataclasses.replace(chosen.config, published=(*norms, *cosines))
    section = embedding.section(config, {"embeddings": data})
    paper = {row.measure: row.value.mean for row in section.rows if row.arm == embedding.PAPER_BOS}
    assert paper["||k||, repeated to query heads"] == norms[0]
    assert "norms come from “||k||, repeated to query heads”" in section.findings[-1]
    assert "cosines from “cosine with q_avg, key-value heads joined”" in section.findings[-1]


def test_the_shipped_config_holds_the_papers_four_numbers():
    assert choose("kiya/embedding").config.published == (26.155, 100.611, 0.521, 0.010)
    with pytest.raises(SinkjaxError, match="published takes four numbers, not 3"):
        Embedding(published=(1.0, 2.0, 3.0))


def test_a_store_is_taken_for_llama_3b_by_its_architecture_alone():
    store = xarray.Dataset(attrs={"sweep": {"config": {**embedding.LLAMA_3B, "context": 1}}})
    assert embedding.is_llama_3b(store)
    store.attrs = json.loads(json.dumps(store.attrs))
    store.attrs["sweep"]["config"]["layers"] = 27
    assert not embedding.is_llama_3b(store)


def test_on_smollm2_the_bos_attracts_neither_by_direction_nor_by_a_short_key(smollm2):
    """Measured: cosine 0.179 at percentile 67 of the ordinary tokens; ||k_bos|| 20.9 and ||k_avg|| 19.9."""
    data = embedding.compute(Embedding(), smollm2, NO_BATCH)
    ordinary = data["token_cosine_repeated"].values[data["ordinary"].values]
    assert 50 < 100 * (ordinary < float(data["cosine_repeated"][0])).mean() < 85
    assert 1.0 < float(data["key_norm"][0] / data["key_norm"][1]) < 1.2
