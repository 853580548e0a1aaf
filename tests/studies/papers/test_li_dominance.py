"""li/dominance: ratios, singular directions and shares are those of their definitions, and the rules at their bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.analysis.claims import judge
from sinkjax.edits.site import Site
from sinkjax.errors import SinkjaxError
from sinkjax.model.ops import rms_norm
from sinkjax.studies.papers.li import _dominance, _lock_in, dominance
from sinkjax.studies.papers.li.dominance import AFTER, ALIGNED, BEFORE, STORE, STUDY, Dominance
from sinkjax.studies.results import Results
from sinkjax.studies.study import Batch
from tests.studies.tiny import LAYERS, write_both

T = 10


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory):
    return sinkjax.load(str(write_both(tmp_path_factory.mktemp("tiny")) / "model"))


@pytest.fixture(scope="module")
def batch(model) -> Batch:
    """Six prompts, more than one block, of which one is shorter."""
    tokens = np.random.default_rng(0).integers(1, model.config.vocab_size, (6, T)).astype(np.int32)
    return Batch(tokens, np.array([T, T, T, T, T, T - 3], np.int32), {})


@pytest.fixture(scope="module")
def record(model, batch):
    captured = tuple(sinkjax.Capture(Site(site)) for site in ("embed", "resid", "logits"))
    probe = sinkjax.Probe(attention_received=True, capture=captured, extra=_lock_in.STATISTICS)
    return sinkjax.forward(model.params, batch.tokens, model.config, probe=probe, lengths=batch.lengths).record


@pytest.fixture(scope="module")
def data(model, batch):
    return _lock_in.measure(model, batch)


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
    found = _lock_in.first_direction(queries.T @ queries, queries.sum(0))
    expected = np.linalg.svd(queries, full_matrices=False)[2][0]
    assert abs(found @ expected) == pytest.approx(1)
    assert found @ queries.mean(0) > 0


def test_scores_are_those_of_the_rotated_queries_and_keys(model, record, data):
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
    first = _lock_in.first_direction(*sums)
    key = np.repeat(np.asarray(record["rotated_keys"])[:, :, :, 0], model.config.group, axis=2)
    expected = np.einsum("NLHD,LHD->NLH", _lock_in.unit(key), first)
    np.testing.assert_allclose(data["alignment"], expected, atol=1e-4)
    np.testing.assert_allclose(data["key_alignment"][..., 0], expected.mean(0), atol=1e-4)


def test_the_rows_of_w_k_are_compared_with_the_first_key(model, record, data):
    key = _lock_in.unit(np.asarray(record["rotated_keys"])[:, :, :, 0]).sum(0)[2, 1]
    row = np.asarray(model.params["layers"]["k"])[2, 7, 1]
    expected = abs(key @ row) / np.linalg.norm(key) / np.linalg.norm(row)
    assert data["row_cosine"].values[2, 1, 7] == pytest.approx(expected, rel=1e-3)
    key, dim = np.asarray(record["rotated_keys"])[4, 2, 1, 0], data["dim"].values[4, 2]
    row = np.asarray(model.params["layers"]["k"])[2, dim, 1]
    expected = abs(key @ row) / np.linalg.norm(key) / np.linalg.norm(row)
    assert data["own_row"].values[4, 2, 1] == pytest.approx(expected, rel=1e-3)


N, L, H, D, LONG = 16, 6, 2, 8, 80
SINKING = slice(2, L)  # layers
SPREAD = np.linspace(-1, 1, N)  # over prompts: the mean's 95 % interval reaches about a third to either side


def planted(some: int = N, width: int = 256, controls: int = 20, **changed: Any) -> Results:
    """Results that support every claim, but for what is changed: before, after, held, row, aligned, other, positive, received.

    some: in how many prompts what is said of heads and layers is so. width: of the model. controls: how many other positions.
    """
    values = {"before": 250.0, "after": 150.0, "held": 0.9, "row": 0.95, "aligned": 0.8, "other": 0.1, "positive": 0.99}
    values |= {"received": 0.9, "elsewhere": 10.0, "later": 0.5} | changed
    before, after = np.full((N, L + 1, LONG), values["elsewhere"]), np.full((N, L + 1, LONG), values["elsewhere"])
    before[..., 0] = after[..., 0] = 5
    before[:, 1, 0], after[:, 1, 0] = values["before"] + SPREAD, values["after"] + SPREAD
    received, aligned, positive = np.full((N, L, H), 0.1), np.full((N, L, H), 0.3), np.full((N, L, H, LONG), 0.5)
    received[:some, SINKING], positive[..., 1:] = values["received"], values["later"]
    aligned[:some, SINKING] = values["aligned"]
    positive[:, SINKING, :, 0] = values["positive"] + 0.003 * SPREAD[:, None, None]
    held = np.full((N, L + 1), 0.1)
    held[:some] = values["held"]
    of_prompt = {name: (("prompt", "depth"), np.ones((N, L + 1))) for name in ("top", "mean")}
    data = xarray.Dataset(
        {
            **of_prompt,
            "before": (("prompt", "depth", "position"), before),
            "after": (("prompt", "depth", "position"), after),
            "held": (("prompt", "depth"), held),
            "dim": (("prompt", "depth"), np.full((N, L + 1), 3)),
            "alignment": (("prompt", "layer", "head"), aligned),
            "key_alignment": (("layer", "head", "key"), np.full((L, H, LONG), values["other"])),
            "positive": (("prompt", "layer", "head", "key"), positive),
            "received": (("prompt", "layer", "head"), received),
            "own_row": (("prompt", "layer", "kv_head"), values["row"] + 0.01 * np.tile(SPREAD[:, None, None], (1, L, H))),
            "row_cosine": (("layer", "kv_head", "dim"), np.full((L, H, D), 0.2)),
        },
        attrs={"sweep": {"config": {"layers": L, "width": width}}},
    )
    return Results(STUDY, Dominance(controls=controls), {STORE: data})


def verdicts(results: Results) -> list[str]:
    return [judge(claim, results).verdict for claim in STUDY.claims(results.config, results.architecture)]


def test_numbers_beyond_every_bound_support_every_claim():
    assert verdicts(planted()) == ["supported"] * 5


@pytest.mark.parametrize(
    ("changed", "claim", "verdict"),
    [
        ({"before": 200.5}, 0, "supported"),
        ({"before": 200.1}, 0, "inconclusive"),
        ({"before": 199.0}, 0, "contradicted"),
        ({"elsewhere": 300.0}, 0, "inconclusive"),  # the other positions have more of it
        ({"width": 201, "before": 200.5}, 0, "supported"),
        ({"width": 200}, 0, "not applicable"),  # which no ratio exceeds
        ({"width": 200, "before": 150.0}, 0, "not applicable"),
        ({"after": 125.5}, 1, "supported"),
        ({"after": 125.1}, 1, "inconclusive"),
        ({"after": 120.0}, 1, "contradicted"),
        ({"before": 15.0, "after": 9.0}, 1, "inconclusive"),  # below other positions
        ({"before": 11.0, "after": 9.0}, 1, "inconclusive"),
        ({"before": 9.0, "after": 9.0}, 1, "not applicable"),  # no dim dominates
        ({"before": 9.0, "after": 1.0}, 1, "not applicable"),
        ({"held": 0.1}, 1, "supported"),
        ({"held": 0.1, "after": 120.0}, 1, "contradicted"),  # what the norm removes is no longer held
        ({"row": 0.905}, 2, "supported"),
        ({"row": 0.901}, 2, "inconclusive"),
        ({"row": 0.89}, 2, "contradicted"),
        ({"held": 0.8}, 2, "supported"),
        ({"held": 0.79}, 2, "not applicable"),
        ({"some": 2}, 2, "not applicable"),
        ({"some": 8}, 2, "inconclusive"),
        ({"aligned": 0.69}, 3, "contradicted"),
        ({"other": 0.9}, 3, "inconclusive"),  # other keys are aligned too
        ({"received": 0.1}, 3, "not applicable"),
        ({"received": np.array([0.9, 0.1])}, 3, "not applicable"),  # four heads are too few for "most"
        ({"positive": 0.953}, 4, "supported"),
        ({"positive": 0.951}, 4, "inconclusive"),
        ({"positive": 0.94}, 4, "contradicted"),
        ({"later": 1.0}, 4, "inconclusive"),  # other keys as well
        ({"aligned": 0.69}, 4, "not applicable"),
    ],
)
def test_each_part_of_a_rule_counts(changed, claim, verdict):
    assert verdicts(planted(**changed))[claim] == verdict


@pytest.mark.parametrize(
    ("row", "verdict"), [([0.9, 0.5], "inconclusive"), ([0.9, 0.9], "supported"), ([0.5, 0.5], "contradicted")]
)
def test_more_than_half_of_the_heads_that_sink_must_be_aligned(row, verdict):
    assert verdicts(planted(aligned=np.array(row)))[3] == verdict


def test_the_rows_are_those_of_every_state_and_ranked_among_other_positions():
    results = planted()
    rows = results.own.values()
    states = {f"layer {layer}" for layer in range(L)} | {"final norm"}
    assert {row.condition for row in rows} == states | {dominance.SHALLOW, dominance.PEAK, dominance.SINKING, dominance.IN_WELL}
    of_state = [row for row in rows if row.condition in states]
    peak = next(row for row in of_state if (row.condition, row.measure) == ("layer 1", BEFORE))
    assert (peak.value.mean, peak.rank.percentile, peak.rank.controls) == (250, 100, 20)
    after = [row for row in of_state if row.measure == AFTER]
    assert len([row for row in of_state if row.measure == ALIGNED]) == L == len(after) - 1
    others = dominance.others(results)
    assert len(set(others)) == 20
    assert 0 not in others
    assert max(others) <= LONG // 2


def test_a_peak_is_each_prompts_and_each_positions_own():
    before = np.array([[[1.0, 7, np.nan], [5, 6, np.nan]], [[9, 2, 3], [4, 8, 1]]])  # prompt, state, position
    found = _dominance.at_peaks(before, 10 * before)
    np.testing.assert_array_equal(found[0], [[5, 7, np.nan], [9, 8, 3]])
    np.testing.assert_array_equal(found[1], 10 * found[0])


@pytest.mark.parametrize("fields", [{"controls": 0}, {"aligned": 1.0}, {"eps": 0.0}, {"length": 3}])
def test_configs_out_of_range_are_refused(fields):
    with pytest.raises(SinkjaxError, match=next(iter(fields))):
        Dominance(**fields)
