"""li/dominance: ratios, singular directions and shares are those of their definitions, on a model and on planted numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sinkjax
from sinkjax.edits.site import Site
from sinkjax.experiments.base import Batch
from sinkjax.experiments.li import dominance, lock_in
from sinkjax.model.ops import rms_norm
from sinkjax.studies import run
from tests.experiments.tiny import LAYERS, study, write_both

T = 10


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_both(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def model(files: Path):
    return sinkjax.load(str(files / "model"))


@pytest.fixture(scope="module")
def batch(model) -> Batch:
    """Six prompts, more than one block, of which one is shorter."""
    tokens = np.random.default_rng(0).integers(1, model.config.vocab_size, (6, T)).astype(np.int32)
    return Batch(tokens, np.array([T, T, T, T, T, T - 3], np.int32), {})


@pytest.fixture(scope="module")
def record(model, batch):
    captured = tuple(sinkjax.Capture(Site(site)) for site in ("embed", "resid", "logits"))
    probe = sinkjax.Probe(attention_received=True, capture=captured, extra=lock_in.STATISTICS)
    return sinkjax.forward(model.params, batch.tokens, model.config, probe=probe, lengths=batch.lengths).record


@pytest.fixture(scope="module")
def data(model, batch):
    return lock_in.measure(model, batch)


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
    np.testing.assert_allclose(data["held"].values[:, 1], first.max(-1) ** 2 / (first**2).sum(-1), rtol=1e-5)
    np.testing.assert_array_equal(data["dim"].values[:, 1], first.argmax(-1))
    assert data.sizes["depth"] == LAYERS + 1


def test_the_first_direction_is_the_singular_vector_that_the_mean_query_points_along():
    queries = np.random.default_rng(1).normal([3.0, 0, 0, 1], size=(50, 4))
    found = lock_in.first_direction(queries.T @ queries, queries.sum(0))
    expected = np.linalg.svd(queries, full_matrices=False)[2][0]
    assert abs(found @ expected) == pytest.approx(1)
    assert found @ queries.mean(0) > 0


def test_scores_are_those_of_the_rotated_queries_and_keys(model, batch, record, data):
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


def test_alignment_is_the_cosine_with_the_first_key(model, record, data):
    sums = [np.asarray(record[name], np.float64).sum(0) for name in ("query_gram", "query_sum")]
    first = lock_in.first_direction(*sums)
    key = np.repeat(np.asarray(record["rotated_keys"])[:, :, :, 0], model.config.group, axis=2)
    expected = np.einsum("NLHD,LHD->NLH", lock_in.unit(key), first)
    np.testing.assert_allclose(data["alignment"], expected, atol=1e-4)
    np.testing.assert_allclose(data["key_alignment"][..., 0], expected.mean(0), atol=1e-4)


def test_the_rows_of_w_k_are_compared_with_the_first_key(model, record, data):
    key = lock_in.unit(np.asarray(record["rotated_keys"])[:, :, :, 0]).sum(0)[2, 1]
    row = np.asarray(model.params["layers"]["k"])[2, 7, 1]
    expected = abs(key @ row) / np.linalg.norm(key) / np.linalg.norm(row)
    assert data["row_cosine"].values[2, 1, 7] == pytest.approx(expected, rel=1e-3)


def test_a_run_judges_and_draws(files, tmp_path):
    section = run.carry_out(study("li/dominance", files, controls=4), tmp_path / "out")
    assert len(section.claims) == 5
    assert section.claims[2].verdict == "not applicable"
    assert {row.arm for row in section.rows} == {f"layer {layer}" for layer in range(LAYERS)} | {"final norm"}
    assert all(0 <= row.percentile <= 100 for row in section.rows)
    assert {path.stem for path in (tmp_path / "out" / "figures").iterdir()} == {
        "dominance-by-position",
        "dominance-by-layer",
        "lock-in-by-layer",
        "lock-in-by-head",
    }
    assert dominance.STORES == ("dominance",)
