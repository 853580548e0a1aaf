"""kiya/rope: scores and what a key would receive against their definitions, and the verdicts' rules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.base import Batch
from sinkjax.experiments.kiya import first_block, rope
from sinkjax.experiments.kiya.config import Rope
from sinkjax.studies import run
from tests.studies.tiny import study, write_both

SIZE = 16
NO_BATCH = Batch(np.zeros((1, 1), np.int32), np.ones(1, np.int32), {})
CONFIG = Rope(indices=SIZE, controls=5)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_both(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def model(files: Path):
    return sinkjax.load(str(files / "model"))


def rotation(index: int, head_dim: int, theta: float) -> np.ndarray:
    """The matrix R_index: each pair (p, p + head_dim / 2) turned by index * theta^(-2p / head_dim)."""
    matrix, half = np.zeros((head_dim, head_dim)), head_dim // 2
    for pair in range(half):
        angle = index * theta ** (-2 * pair / head_dim)
        block = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        matrix[np.ix_([pair, pair + half], [pair, pair + half])] = block
    return matrix


def test_scores_are_those_of_rotated_queries_and_keys(model):
    data = rope.compute(CONFIG, model, NO_BATCH)
    config, embed = model.config, np.asarray(model.params["embed"])
    vectors = np.stack([embed[0], embed[1:].mean(axis=0)])
    queries, keys = (np.asarray(x, np.float64) for x in first_block.project(model.params, vectors, config))
    for i, j, head in ((0, 0, 0), (9, 2, 1), (15, 15, config.heads - 1), (3, 12, 2)):
        turned = queries[1, head] @ rotation(i, config.head_dim, config.position.theta).T
        for row in (0, 1):
            key = rotation(j, config.head_dim, config.position.theta) @ keys[row, head // config.group]
            expected = turned @ key / np.sqrt(config.head_dim)
            assert float(data["score"][row, head, i, j]) == pytest.approx(expected, rel=1e-4, abs=1e-6)
    causal = np.tri(SIZE, dtype=bool)
    np.testing.assert_allclose(data["mean_score"], data["score"].values[..., causal].mean(axis=-1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [1.0, 60.0])
def test_what_a_key_would_receive_is_a_softmax_with_that_one_key_exchanged(rng, size):
    """Also where one key outweighs all others by far more than float32 resolves."""
    scores, others = (size * rng.standard_normal((2, 7, 7)).astype(np.float32) for _ in range(2))
    expected = np.zeros((2, 7))
    for head in range(2):
        for j in range(7):
            weights = []
            for i in range(j, 7):
                row = others[head, i, : i + 1].astype(np.float64)
                row[j] = scores[head, i, j]
                weights.append(np.exp(row - row.max())[j] / np.exp(row - row.max()).sum())
            expected[head, j] = np.mean(weights)
    np.testing.assert_allclose(rope.received(scores, others), expected, rtol=1e-4, atol=1e-7)


def test_even_attention_is_the_mean_of_one_over_the_number_of_keys():
    expected = [np.mean([1 / (i + 1) for i in range(j, 10)]) for j in range(10)]
    np.testing.assert_allclose(rope.uniform(10), expected)
    np.testing.assert_allclose(rope.received(np.zeros((1, 10, 10)), np.zeros((1, 10, 10)))[0], expected, rtol=1e-6)


def store(bos: np.ndarray, mean: np.ndarray) -> xarray.Dataset:
    """A store of scores [query, key] that are the same in two heads, with controls that score 0 everywhere."""
    scores = np.stack([np.stack([grid, grid]) for grid in (bos, mean)]).astype(np.float32)
    size, causal = len(bos), np.tri(len(bos), dtype=bool)
    return xarray.Dataset(
        {
            "score": (("vector", "head", "query", "key"), scores),
            "mean_score": (("vector", "head"), scores[..., causal].mean(axis=-1)),
            "received": (("vector", "head", "key"), np.stack([rope.received(grid, scores[1]) for grid in scores])),
            "control_mean_score": (("control", "head"), np.zeros((4, 2))),
            "control_received": (("control", "head", "key"), np.full((4, 2, size), 0.05)),
        },
        coords={"vector": [rope.BOS, rope.MEAN]},
    )


def first_index(value: float) -> np.ndarray:
    """Scores that are high towards index 0."""
    return value * (np.arange(SIZE) == 0) * np.ones((SIZE, 1))


@pytest.mark.parametrize(
    ("bos", "mean", "verdicts"),
    [
        (5 + np.zeros((SIZE, SIZE)), np.zeros((SIZE, SIZE)), ["confirmed", "confirmed"]),
        (5 + np.zeros((SIZE, SIZE)), first_index(9), ["not confirmed", "not confirmed"]),
        (np.zeros((SIZE, SIZE)), np.zeros((SIZE, SIZE)), ["not confirmed", "confirmed"]),
    ],
)
def test_verdicts_follow_the_scores(bos, mean, verdicts):
    data = store(bos, mean)
    assert [claim.verdict for claim in rope._claims(CONFIG, data, rope._rows(CONFIG, data))] == verdicts


def test_a_run_draws_both_keys_and_ranks_them_among_random_tokens(files, tmp_path):
    section = run.carry_out(study("kiya/rope", files, prompts=1, indices=SIZE, controls=5), tmp_path / "out")
    assert {drawing.name for drawing in section.drawings} == {
        "scores",
        "by-distance",
        "would-receive",
        "by-head-bos",
        "by-head-mean",
    }
    assert {row.controls for row in section.rows} == {5}
    drawn = xarray.open_zarr(tmp_path / "out" / "grid.zarr", chunks=None)["control"].values
    assert len(set(drawn)) == 5
    assert 0 not in drawn


def test_too_few_indices_are_refused():
    with pytest.raises(SinkjaxError, match="indices must be at least 16, not 8"):
        Rope(indices=8)
