"""kiya/rope: scores and what a key would receive against their definitions, and the verdicts' rules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.analysis.claims import judge, judge_all
from sinkjax.analysis.summary import Rank
from sinkjax.errors import SinkjaxError
from sinkjax.studies.papers.kiya import _first_block as first_block
from sinkjax.studies.papers.kiya import rope
from sinkjax.studies.papers.kiya.rope import GRID, STUDY, Rope
from sinkjax.studies.results import Results
from sinkjax.studies.study import Batch
from tests.studies.tiny import write_both

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
    np.testing.assert_allclose(first_block.received(scores, others), expected, rtol=1e-4, atol=1e-7)


def test_even_attention_is_the_mean_of_one_over_the_number_of_keys():
    expected = [np.mean([1 / (i + 1) for i in range(j, 10)]) for j in range(10)]
    np.testing.assert_allclose(rope.uniform(10), expected)
    np.testing.assert_allclose(first_block.received(np.zeros((1, 10, 10)), np.zeros((1, 10, 10)))[0], expected, rtol=1e-6)


def results(bos: np.ndarray, mean: np.ndarray, text: str = "<s>") -> Results:
    """Results of scores [query, key] that are the same in two heads, with controls that score 0 everywhere."""
    scores = np.stack([np.stack([grid, grid]) for grid in (bos, mean)]).astype(np.float32)
    size, causal = len(bos), np.tri(len(bos), dtype=bool)
    data = xarray.Dataset(
        {
            "score": (("vector", "head", "query", "key"), scores),
            "mean_score": (("vector", "head"), scores[..., causal].mean(axis=-1)),
            "received": (("vector", "head", "key"), np.stack([first_block.received(grid, scores[1]) for grid in scores])),
            "control_mean_score": (("control", "head"), np.zeros((40, 2))),
            "control_received": (("control", "head", "key"), np.full((40, 2, size), 0.05)),
        },
        coords={"vector": [rope.BOS, rope.MEAN]},
        attrs={"sweep": {"config": {"layers": 1}}, "bos": 0, "bos_text": text},
    )
    return Results(STUDY, CONFIG, {GRID: data})


def first_index(value: float) -> np.ndarray:
    """Scores that are high towards index 0."""
    return value * (np.arange(SIZE) == 0) * np.ones((SIZE, 1))


@pytest.mark.parametrize(
    ("bos", "mean", "verdicts"),
    [
        (np.full((SIZE, SIZE), 5.0), np.zeros((SIZE, SIZE)), ["supported", "holds"]),
        (np.full((SIZE, SIZE), 5.0), first_index(9), ["contradicted", "fails"]),
        (np.full((SIZE, SIZE), -1.0), np.full((SIZE, SIZE), -2.0), ["contradicted", "holds"]),  # below every control
        (np.full((SIZE, SIZE), 0.0), np.full((SIZE, SIZE), -2.0), ["inconclusive", "holds"]),  # as the controls
    ],
)
def test_verdicts_follow_the_scores(bos, mean, verdicts):
    found = results(bos, mean)
    assert [judge(claim, found).verdict for claim in STUDY.claims(CONFIG, found.architecture)] == verdicts


def test_the_score_of_a_chat_marker_is_no_evidence():
    found = results(np.full((SIZE, SIZE), 5.0), np.zeros((SIZE, SIZE)), "<|im_start|>")
    first, identity = STUDY.claims(CONFIG, found.architecture)
    assert [judge(claim, found).verdict for claim in (first, identity)] == ["not applicable", "holds"]


def test_controls_are_different_ordinary_tokens_and_never_the_bos(model):
    data = rope.compute(CONFIG, model, NO_BATCH)
    drawn = data["control"].values
    assert len(set(drawn)) == 5
    assert 0 not in drawn
    assert data.attrs["bos"] == 0


def test_both_keys_are_ranked_among_the_controls_and_the_mean_is_compared_with_the_bos():
    found = results(5 + np.zeros((SIZE, SIZE)), np.zeros((SIZE, SIZE)))
    of_bos, of_mean = (found.own[key, rope.SCORE] for key in (rope.BOS, rope.MEAN))
    assert (of_bos.value.mean, of_bos.rank, of_bos.effect.mean) == (5, Rank(40, 0, 40), 0)
    assert (of_mean.value.mean, of_mean.rank, of_mean.effect.mean) == (0, Rank(0, 40, 40), -5)
    assert [row.condition for row in rope.rows(found)] == [rope.BOS] * 3 + [rope.MEAN] * 3


def test_means_over_heads_are_numbers_of_the_weights_without_an_interval():
    found = results(5 + np.zeros((SIZE, SIZE)), np.zeros((SIZE, SIZE)))
    assert {(row.value.low, row.value.samples is None) for row in rope.rows(found)} == {(None, True)}
    first, _ = judge_all(STUDY.claims(CONFIG, found.architecture), found, found.over)
    assert (first.unit, first.p) == ("model", pytest.approx(1 / 41))


def test_too_few_indices_are_refused():
    with pytest.raises(SinkjaxError, match="indices must be at least 16, not 8"):
        Rope(indices=8)
