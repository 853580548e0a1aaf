"""gu/angles: the split of a score gap against its definition, shared energy, verdicts, and SmolLM2's first key."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.analysis.intervals import Interval
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.gu import angles, geometry
from sinkjax.experiments.gu.config import Angles
from sinkjax.experiments.summary import Row
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.probes.probe import Capture, Probe
from sinkjax.studies import run
from tests.studies.tiny import LAYERS, study, write_both

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


def test_the_two_parts_of_a_gap_are_those_of_their_definition(tiny_config: Config, tiny_params: Params, tokens, monkeypatch):
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


def test_the_parts_add_up_to_the_gap_and_blocks_of_queries_change_nothing(tiny_config, tiny_params, tokens, monkeypatch):
    probe = Probe(extra=PARTS, capture=(Capture("logits"),))
    run_once = lambda: sinkjax.forward(tiny_params, tokens, tiny_config, probe=probe, logits=False).record  # noqa: E731
    record = run_once()
    scores = np.asarray(record["logits"], np.float64)[..., 1:, :]  # queries 1 to 9
    others = [[scores[..., i - 1, 0] - scores[..., i - 1, 1 : i + 1].mean(-1)] for i in range(1, 10)]
    whole = np.asarray(record["angle_part"] + record["norm_part"])[..., 0]
    np.testing.assert_allclose(whole, np.mean(others, axis=(0, 1)), rtol=1e-4, atol=1e-5)
    jax.clear_caches()
    monkeypatch.setattr("sinkjax.transformer.attention.QUERY_BLOCK", 4)
    for name in ("angle_part", "norm_part"):
        np.testing.assert_allclose(run_once()[name], record[name], rtol=1e-4, atol=1e-5)
    jax.clear_caches()


def test_energy_is_shared_by_prompts_that_point_the_same_way(rng):
    direction = rng.standard_normal(16)
    same = rng.uniform(1, 2, (8, 1)) * direction
    np.testing.assert_allclose(geometry.shared_energy(same, 1), 1)
    assert geometry.effective_rank(geometry.singular_values(same)) == pytest.approx(1)
    np.testing.assert_allclose(geometry.shared_energy(np.eye(16), 1), 0, atol=1e-12)
    assert geometry.effective_rank(geometry.singular_values(np.eye(16))) == pytest.approx(16)
    plane = rng.standard_normal((8, 2)) @ rng.standard_normal((2, 16))
    assert (geometry.shared_energy(plane, 1) < 1).all()
    np.testing.assert_allclose(geometry.shared_energy(plane, 2), 1)


def test_a_prompt_is_judged_by_the_other_half():
    vectors = np.array([[3.0, 0], [0, 2], [1, 0], [0, 5]])
    np.testing.assert_allclose(geometry.shared_energy(vectors, 1), 0, atol=1e-12)


def test_a_run_has_rows_for_all_heads_for_those_that_sink_and_for_layers(tmp_path):
    chosen = study("gu/angles", write_both(tmp_path), prompts=4)
    section = run.carry_out(chosen, tmp_path / "out")
    labels = {row.arm for row in section.rows}
    assert labels == {angles.EVERY, angles.SINKS, *(f"layer {layer}" for layer in range(LAYERS))}
    stored = xarray.open_zarr(tmp_path / "out" / "scores.zarr", chunks=None)["angle_part"].values[0]
    (row,) = [row for row in section.rows if (row.arm, row.measure) == (angles.EVERY, angles.ANGLE)]
    assert row.value.mean == pytest.approx(stored[..., 0].mean(), rel=1e-4)
    keys = xarray.open_zarr(tmp_path / "out" / "keys-text.zarr", chunks=None)
    assert keys["position"].values.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert {claim.verdict for claim in section.claims} == {"not applicable"}


def row(mean: float | None, percentile: float = 100, n: int = 9) -> Row:
    low, high = (None, None) if mean is None else (mean - 0.1, mean + 0.1)
    return Row("", "", "", Interval(mean, low, high, n, 9 - n, 0.95, "BCa"), percentile=percentile, controls=20)


@pytest.mark.parametrize(
    ("rows", "verdicts"),
    [
        ((row(0.5), row(0.0), row(9.0), row(-3.0), row(99.0)), ["confirmed"] * 3),
        ((row(0.5), row(0.4), row(2.0), row(2.0), row(80.0)), ["not confirmed"] * 3),
        ((row(0.5, 95), row(0.0), row(9.0, 95), row(-3.0), row(99.0, 95)), ["not confirmed"] * 3),
        ((row(None, n=0), row(None, n=0), row(None, n=0), row(None, n=0), row(None, n=0)), ["not applicable"] * 3),
    ],
)
def test_verdicts_follow_their_rule(rows, verdicts):
    names = (angles.COSINE, angles.OTHERS, angles.ANGLE, angles.NORM, angles.SHARE)
    table = {(angles.SINKS, name): row for name, row in zip(names, rows, strict=True)}
    scores = xarray.Dataset(coords={"prompt": range(9)})
    assert [claim.verdict for claim in angles._claims(Angles(), table, scores)] == verdicts


def test_what_does_not_fit_is_refused(tiny_config):
    with pytest.raises(SinkjaxError, match="rank 5 needs at least 10 prompts, not 8"):
        Angles(rank=5, prompts=8)
    with pytest.raises(SinkjaxError, match="rank 8 must be below the width of a head, 8"):
        angles.jobs(Angles(rank=8), dataclasses.replace(tiny_config, head_dim=8))


def test_on_smollm2_the_angle_makes_the_first_score_high_and_the_norm_low(smollm2):
    """Measured on 64 prompts: cosine 0.37 with key 0; gap of its score +7.6 through the angle, -2.8 through the norms."""
    text = "She wrote to her brother every week, long letters about the garden and the price of coal, which he never answered."
    tokens, lengths = sinkjax.encode(smollm2, [text], bos="none", length=24)
    probe = Probe(query_key_cosine=True, extra=PARTS)
    record = sinkjax.forward(smollm2.params, tokens, smollm2.config, probe=probe, lengths=lengths, logits=False).record
    assert record["query_key_cosine"][..., 0].mean() > 0.25
    assert record["query_key_cosine"][..., 1:12].mean() < 0.15
    assert record["angle_part"][..., 0].mean() > 4
    assert record["norm_part"][..., 0].mean() < -1
