"""gu/angles: the split of a score gap against its definition, shared energy, rows and verdicts."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.analysis.intervals import interval
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.probes.probe import Capture, Probe
from sinkjax.studies.papers.gu import _geometry as geometry
from sinkjax.studies.papers.gu import angles
from sinkjax.studies.results import Results
from tests.studies.planted import Planted, row

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


def stored(rng: np.random.Generator, sinks: np.ndarray) -> dict[str, xarray.Dataset]:
    """An unedited run of 2 layers and 4 heads, 2 key-value heads, 8 positions. sinks: bool[prompt, layer, head]."""
    axes, shape = ("edit", "prompt", "layer", "head", "key"), (1, *sinks.shape, 8)
    arrays = {name: (axes, rng.uniform(-1, 1, shape)) for name in ("query_key_cosine", "angle_part", "norm_part")}
    received = np.zeros(shape)
    received[0, ..., 0] = sinks
    attributes = {"sweep": {"config": {"layers": 2}}}
    scores = xarray.Dataset({**arrays, "attention_received": (axes, received)}, {"edit": ["no edit"]}, attributes)
    places = angles.positions(CONFIG)
    shared = rng.uniform(0, 1, (2, 2, len(places), len(sinks)))
    keys = xarray.Dataset({"shared": (("layer", "kv_head", "position", "prompt"), shared)}, attrs=attributes)
    return {"scores": scores, "keys-text": keys, "keys-random": keys}


CONFIG = angles.Angles(prompts=4, length=8)


def test_there_are_rows_for_all_heads_for_those_that_sink_and_for_layers(rng):
    sinks = np.zeros((4, 2, 4), bool)
    sinks[0, 1, 2] = sinks[1, 0, :2] = True
    stores = stored(rng, sinks)
    rows = Results(angles.STUDY, CONFIG, stores).own
    assert {label for label, _ in rows} == {angles.EVERY, angles.SINKS, "layer 0", "layer 1"}
    angle, shared = stores["scores"]["angle_part"].values[0, ..., 0], stores["keys-text"]["shared"].values[:, :, 0]
    assert rows[angles.EVERY, angles.ANGLE].value.mean == pytest.approx(angle.mean())
    assert rows["layer 1", angles.ANGLE].value.mean == pytest.approx(angle[:, 1].mean())
    of_sinks = rows[angles.SINKS, angles.ANGLE].value
    assert of_sinks.mean == pytest.approx((angle[0, 1, 2] + angle[1, 0, :2].mean()) / 2)
    assert (of_sinks.n, of_sinks.excluded) == (2, 2)  # the other prompts have no head that sinks
    energy = rows[angles.SINKS, angles.SHARE].value.mean
    assert energy == pytest.approx(100 * (shared[1, 1, 0] + shared[0, 0, 1]) / 2)  # by the key-value head that a head reads
    assert rows[angles.EVERY, angles.COSINE].rank.controls == len(angles.positions(CONFIG)) - 1
    assert rows[angles.EVERY, angles.REST].rank is None


PROMPTS = 32


def planted(values: tuple, percentile: float = 100, n: int = PROMPTS, bos: str | int = "none") -> list[str]:
    """Verdicts with these means of cosine, others, angle, norm and share, in the first n prompts; intervals are 0.5 wide."""
    names = (angles.COSINE, angles.REST, angles.ANGLE, angles.NORM, angles.SHARE)
    rows = {}
    for name, mean, wave in zip(names, values, (1, 3, 5, 7, 9), strict=True):
        samples = mean + np.sin(wave * np.arange(PROMPTS))
        samples[n:] = np.nan
        found = row(angles.SINKS, name, mean, percentile=percentile)
        rows[angles.SINKS, name] = dataclasses.replace(found, value=interval(samples))
    return Planted("gu/angles", dataclasses.replace(CONFIG, bos=bos), rows=rows).verdicts()


@pytest.mark.parametrize(
    ("values", "options", "verdicts"),
    [
        ((3.1, 1, 9, -3, 99), {}, ["supported"] * 3),
        ((1.1, 1, 9, 8.9, 90), {}, ["inconclusive"] * 3),
        ((0, 2, 5, 8, 80), {}, ["contradicted"] * 3),
        ((3.1, 1, 0, -3, 99), {}, ["supported", "inconclusive", "supported"]),
        ((3.1, 1, 9, -3, 99), {"percentile": 95}, ["inconclusive"] * 3),
        ((3.1, 1, 9, -3, 99), {"percentile": 0}, ["inconclusive"] * 3),
        ((3.1, 1, 9, -3, 99), {"n": 24}, ["supported"] * 3),
        ((3.1, 1, 9, -3, 99), {"n": 16}, ["inconclusive"] * 3),
        ((3.1, 1, 9, -3, 99), {"n": 8}, ["not applicable"] * 3),
        ((3.1, 1, 9, -3, 99), {"n": 0}, ["not applicable"] * 3),
        ((3.1, 1, 9, -3, 99), {"bos": "model"}, ["supported", "supported", "not applicable"]),  # all first keys are one key
        ((3.1, 1, 9, -3, 80), {"bos": 0}, ["supported", "supported", "not applicable"]),
    ],
)
def test_verdicts_follow_their_rule(values, options, verdicts):
    assert planted(values, **options) == verdicts


def test_what_does_not_fit_is_refused(tiny_config, tiny_params):
    with pytest.raises(SinkjaxError, match="rank 5 needs at least 10 prompts, not 8"):
        angles.Angles(rank=5, prompts=8)
    with pytest.raises(SinkjaxError, match="rank 8 must be below the width of a head, 8"):
        angles.STUDY.check(angles.Angles(rank=8), tiny_config)
    with pytest.raises(SinkjaxError, match="a prompt has 4 tokens, and position 5 is asked for"):
        geometry.keys_across_prompts(None, np.zeros((2, 6)), np.array([4, 6]), (0, 5), 1)


def test_keys_of_the_chosen_positions_are_compared_across_prompts(tiny_config, tiny_params):
    tokens = np.array([[1, 2, 3], [1, 5, 6], [1, 2, 9], [1, 4, 7]], np.int32)
    model = SimpleNamespace(params=tiny_params, config=tiny_config)
    found = geometry.keys_across_prompts(model, tokens, np.full(4, 3), (0, 1), rank=1)
    np.testing.assert_allclose(found["shared"].sel(position=0), 1, rtol=1e-6)  # one first token, and so one first key
    assert (found["shared"].sel(position=1) < 1).any()
    assert found["distinct"].values.tolist() == [1, 3]
