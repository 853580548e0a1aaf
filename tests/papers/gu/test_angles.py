"""gu/angles: the split of a score gap against its definition, shared energy, and a run at its smallest."""

from __future__ import annotations

import numpy as np
import pytest

import sinkjax
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.papers.gu import _geometry as geometry
from sinkjax.probes.probe import Capture, Probe

PARTS = (geometry.ANGLE_PART, geometry.NORM_PART)


def rotated_gaps(queries: np.ndarray, keys: np.ndarray, length: int, p: int) -> tuple[float, float]:
    """The two parts of key p's gap for one head by their definition, in float64. queries, keys: float[position, dim], rotated."""
    q, k = queries.astype(np.float64), keys.astype(np.float64)
    size = np.linalg.norm(q, axis=1)[:, None] * np.linalg.norm(k, axis=1)[None] / np.sqrt(q.shape[1])
    cosine = q @ k.T / np.sqrt(q.shape[1]) / size
    angle, norm = [], []
    for i in range(p + 1, length):
        others = [j for j in range(i + 1) if j != p]
        angle.append(np.mean([(cosine[i, p] - cosine[i, j]) * (size[i, p] + size[i, j]) / 2 for j in others]))
        norm.append(np.mean([(size[i, p] - size[i, j]) * (cosine[i, p] + cosine[i, j]) / 2 for j in others]))
    return float(np.mean(angle)), float(np.mean(norm))


@pytest.fixture
def tokens(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 61, (2, 10)).astype(np.int32)


def test_the_two_parts_of_a_gap_are_those_of_their_definition(tiny_config: Config, tiny_params: Params, tokens):
    """Positions are all 0, so that the captured queries and keys are the rotated ones."""
    probe = Probe(extra=PARTS, capture=(Capture("query"), Capture("key")))
    lengths = np.array([10, 7])
    still = sinkjax.set_positions(query=0, key=0)
    record = sinkjax.forward(tiny_params, tokens, tiny_config, edits=still, probe=probe, lengths=lengths, logits=False).record
    for prompt, length in enumerate(lengths):
        for layer, head, p in ((0, 0, 0), (1, 4, 0), (2, 5, 3)):
            queries = np.asarray(record["queries"])[prompt, layer, :, head]
            keys = np.asarray(record["keys"])[prompt, layer, :, head // tiny_config.group]
            angle, norm = rotated_gaps(queries, keys, length, p)
            np.testing.assert_allclose(record["angle_part"][prompt, layer, head, p], angle, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(record["norm_part"][prompt, layer, head, p], norm, rtol=1e-4, atol=1e-5)
    assert np.isnan(np.asarray(record["angle_part"])[0, ..., 9]).all()
    assert np.isnan(np.asarray(record["norm_part"])[1, ..., 6:]).all()
