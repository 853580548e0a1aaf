"""kiya/embedding: norms and cosines against their definitions in float64, ranks among the vocabulary, and the rules."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.analysis.claims import judge
from sinkjax.analysis.summary import Rank
from sinkjax.errors import SinkjaxError
from sinkjax.studies.papers.kiya import _first_block as first_block
from sinkjax.studies.papers.kiya import embedding as study
from sinkjax.studies.papers.kiya.embedding import BOS, COSINES, LLAMA_3B, MEAN, NORMS, PAPER_BOS, STORE, STUDY, Embedding
from sinkjax.studies.results import Results
from sinkjax.studies.study import Batch
from tests.studies.tiny import write_both

NO_BATCH = Batch(np.zeros((1, 1), np.int32), np.ones(1, np.int32), {})
TOKENS = 101  # of a planted vocabulary; token 0 is the BOS


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """With biases, which some models have."""
    folder: Path = write_both(tmp_path_factory.mktemp("tiny"))
    loaded = sinkjax.load(str(folder / "model"))
    config = dataclasses.replace(loaded.config, qkv_bias=True)
    rng = np.random.default_rng(0)
    biases = {
        f"{name}_bias": 0.3 * rng.standard_normal((config.layers, heads, config.head_dim)).astype(np.float32)
        for name, heads in (("q", config.heads), ("k", config.kv_heads), ("v", config.kv_heads))
    }
    return dataclasses.replace(loaded, config=config, params=loaded.params | {"layers": loaded.params["layers"] | biases})


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


def by_definition(model: Any, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Queries [H, D] and keys [K, D] of the first block for one vector, in float64."""
    first = {name: np.asarray(leaf[0], np.float64) for name, leaf in model.params["layers"].items()}
    x = vector / np.sqrt((vector**2).mean() + model.config.norm.eps) * first["attn_norm"]
    return np.einsum("d,dhk->hk", x, first["q"]) + first["q_bias"], np.einsum("d,dhk->hk", x, first["k"]) + first["k_bias"]


def test_norms_and_cosines_are_those_of_their_definitions(model):
    data = study.compute(Embedding(), model, NO_BATCH)
    table = np.asarray(model.params["embed"], np.float64)
    mean = np.delete(table, 0, axis=0).mean(axis=0)  # token 0 is the BOS, and the only special one
    query, k_avg = by_definition(model, mean)
    for row, keys in enumerate((by_definition(model, table[0])[1], k_avg)):
        repeated = np.stack([keys[head // model.config.group] for head in range(model.config.heads)])
        pooled = query.reshape(model.config.kv_heads, model.config.group, -1).mean(axis=1)
        heads = [cosine(q, k) for q, k in zip(query, repeated, strict=True)]
        expected = {
            "key_norm": np.linalg.norm(keys),
            "cosine_kv": cosine(pooled.ravel(), keys.ravel()),
            "cosine_repeated": cosine(query.ravel(), repeated.ravel()),
            "cosine_heads": np.mean(heads),
        }
        for name, value in expected.items():
            assert float(data[name][row]) == pytest.approx(value, rel=1e-5, abs=1e-6), name
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
        study.compute(Embedding(), bare, NO_BATCH)
    assert study.compute(Embedding(bos=9), bare, NO_BATCH).attrs["bos"] == 9
    with pytest.raises(SinkjaxError, match="bos is the token id 257, but the model's vocabulary has 257 tokens"):
        study.compute(Embedding(bos=257), bare, NO_BATCH)


def results(
    planted: dict[str, tuple[float, float]] | None = None, config: Embedding | None = None, text: str = "<s>", **sizes: int
) -> Results:
    """Planted numbers of BOS and of the mean embedding, among tokens whose numbers are 0 to 0.99."""
    values = {"key_norm": (0.2, 0.3)} | dict.fromkeys(COSINES.values(), (0.955, 0.1)) | (planted or {})
    tokens = np.concatenate([[9.0], np.arange(TOKENS - 1) / 100])
    variables: dict[str, Any] = {name: ("vector", np.array(pair)) for name, pair in values.items()}
    variables |= {f"token_{name}": ("token", tokens) for name in values}
    variables |= {"ordinary": ("token", np.ones(TOKENS, bool)), "averaged": ("token", np.ones(TOKENS, bool))}
    variables["head_cosine"] = (("vector", "head"), np.array([[0.5, -0.5], [0.1, 0.1]]))
    attributes = {"bos": 0, "bos_text": text, "sweep": {"config": LLAMA_3B | {"layers": 2} | sizes}}
    return Results(STUDY, config or Embedding(), {STORE: xarray.Dataset(variables, {"vector": [BOS, MEAN]}, attributes)})


@pytest.mark.parametrize(
    ("planted", "expected"),
    [
        ({}, ["supported", "supported"]),  # four of 100 tokens lie above
        ({"cosine_heads": (0.945, 0.1)}, ["inconclusive", "supported"]),
        ({"cosine_kv": (0.955, 0.955)}, ["contradicted", "supported"]),
        ({"key_norm": (0.3, 0.3)}, ["supported", "contradicted"]),
    ],
)
def test_each_claim_needs_every_convention(planted, expected):
    assert verdicts(results(planted)) == expected


def verdicts(found: Results) -> list[str]:
    return [judge(claim, found).verdict for claim in STUDY.claims(found.config, found.architecture)]


def test_a_chat_marker_is_no_bos_unless_the_config_names_it():
    assert verdicts(results(text="<|im_start|>")) == ["not applicable"] * 2
    assert verdicts(results(config=Embedding(bos=0), text="<|im_start|>")) == ["supported"] * 2


def test_the_bos_is_ranked_among_the_other_ordinary_tokens():
    first, repeated = (results().own[BOS, name] for name in NORMS)
    assert (first.value.mean, first.value.low, first.rank) == (0.2, None, Rank(20, 1, TOKENS - 1))
    assert repeated.value.mean == pytest.approx(0.2 * 3**0.5)
    assert repeated.rank.percentile == 20.5


def test_the_papers_numbers_stand_beside_those_of_its_own_architecture_only():
    assert not [row for row in study.rows(results()) if row.series == "paper"]
    config = Embedding(published=(0.2 * 3**0.5, 0.3 * 3**0.5, 0.955, 0.1))
    found = results({"cosine_repeated": (0.9, 0.1), "cosine_heads": (0.9, 0.1)}, config, layers=LLAMA_3B["layers"])
    assert {row.value.mean for row in study.rows(found) if row.condition == PAPER_BOS} == set(config.published[::2])
    norms, cosines = [quantity(found).name for quantity in STUDY.findings(config, found.architecture)][-2:]
    assert norms.endswith("(“||k||, repeated to query heads”)")
    assert cosines.endswith("(“cosine with q_avg, key-value heads joined”)")


def test_the_config_holds_the_papers_four_numbers():
    assert Embedding().published == (26.155, 100.611, 0.521, 0.010)
    with pytest.raises(SinkjaxError, match="published takes four numbers, not 3"):
        Embedding(published=(1.0, 2.0, 3.0))
