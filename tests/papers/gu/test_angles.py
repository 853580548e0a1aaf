"""gu/angles: the split of a score gap against its definition, shared energy, and a run at its smallest."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.config_files.places import place
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.papers.gu import _geometry as geometry
from sinkjax.papers.gu._angles import first_cosine, keys_across_prompts, other_cosine, score_gap, shared_energy
from sinkjax.probes.probe import Capture, Probe
from sinkjax.study import rebuild, run
from sinkjax.study.measures import read_measure
from sinkjax.study.work import Batch, Calculation
from tests.study.tiny import study, write_both

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


def test_the_parts_add_up_to_the_gap_and_blocks_of_queries_change_nothing(tiny_config, tiny_params, tokens, monkeypatch):
    probe = Probe(extra=PARTS, capture=(Capture("logits"),))
    run_once = lambda: sinkjax.forward(tiny_params, tokens, tiny_config, probe=probe, logits=False).record  # noqa: E731
    record = run_once()
    scores = np.asarray(record["logits"], np.float64)[..., 1:, :]  # queries 1 to 9
    others = [[scores[..., i - 1, 0] - scores[..., i - 1, 1 : i + 1].mean(-1)] for i in range(1, 10)]
    whole = np.asarray(record["angle_part"] + record["norm_part"])[..., 0]
    np.testing.assert_allclose(whole, np.mean(others, axis=(0, 1)), rtol=1e-4, atol=1e-5)
    jax.clear_caches()
    monkeypatch.setattr("sinkjax.transformer.attention.QUERY_TILE", 4)
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
    halves = np.array([[3.0, 0], [0, 2], [1, 0], [0, 5]])  # a prompt is judged by the other half
    np.testing.assert_allclose(geometry.shared_energy(halves, 1), 0, atol=1e-12)


def test_measures_average_all_heads_whether_they_sink_or_not(rng):
    axes = ("edit", "prompt", "layer", "head", "key")
    names = ("query_key_cosine", "angle_part", "norm_part")
    arrays = {name: rng.uniform(-1, 1, (1, 3, 2, 4, 8)) for name in names}
    data = xarray.Dataset({name: (axes, values) for name, values in arrays.items()})
    cosine, angle, norm = (arrays[name][0] for name in names)
    np.testing.assert_allclose(read_measure(first_cosine(), data)[0], cosine[..., 0].mean(axis=(1, 2)))
    np.testing.assert_allclose(read_measure(other_cosine(), data)[0], cosine[..., 1:5].mean(axis=(1, 2, 3)))
    np.testing.assert_allclose(read_measure(score_gap("angle"), data)[0], angle[..., 0].mean(axis=(1, 2)))
    np.testing.assert_allclose(read_measure(score_gap("norms"), data)[0], norm[..., 0].mean(axis=(1, 2)))


def computed(config: Config, params: Params, tokens: np.ndarray, positions: tuple[int, ...], rank: int = 1):
    model = SimpleNamespace(params=params, config=config)
    batch = Batch(tokens, np.full(len(tokens), tokens.shape[1]), {})
    return keys_across_prompts(rank, positions, model, batch)


def test_keys_of_one_position_are_compared_across_prompts(tiny_config, tiny_params):
    tokens = np.array([[1, 2, 3], [1, 5, 6], [1, 2, 9], [1, 4, 7]], np.int32)
    found = computed(tiny_config, tiny_params, tokens, (0, 1))
    np.testing.assert_allclose(found["shared"].sel(position=0), 1, rtol=1e-6)  # one first token, and so one first key
    assert (found["shared"].sel(position=1) < 1).any()
    keys = Calculation("text-keys", lambda model, batch: found, (), 1)
    parts = shared_energy(keys)(SimpleNamespace(data=lambda name: {"text-keys": found}[name]))
    others = 100 * found["shared"].sel(position=1).mean(("layer", "kv_head")).values
    np.testing.assert_allclose(parts.contrast, 100 - others, rtol=1e-5)
    np.testing.assert_allclose(parts.whole, 100, rtol=1e-5)
    with pytest.raises(SinkjaxError, match=r"rank 3 .* 4 prompts .* 8"):
        computed(tiny_config, tiny_params, tokens, (0, 1), rank=3)
    with pytest.raises(SinkjaxError, match=r"3 tokens, .*position 5"):
        computed(tiny_config, tiny_params, tokens, (0, 5))


def test_the_study_runs_with_its_twin(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(run, "build", rebuild.section_of)  # nothing is rendered
    section = run.carry_out(study("gu/angles", write_both(tmp_path), prompts=4, control_prompts=2), place(tmp_path / "out"))
    assert {verdict.judgement.word for verdict in section.verdicts} <= {"undecided", "not applicable"}  # of 4 prompts
    assert all(verdict.twin is not None for verdict in section.verdicts)
    assert len({drawing.name for drawing in section.drawings}) == 3
