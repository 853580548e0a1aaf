"""gu/repeat-bound: the closed form against the forward, the bound against its definition, verdicts and refusals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.gu import repeat_bound, repeated
from sinkjax.experiments.gu.config import RepeatBound
from sinkjax.model import rope
from sinkjax.model.config import Config, DynamicScaling, Rope, YarnScaling
from sinkjax.model.params import Params
from sinkjax.probes.probe import Capture, Probe
from sinkjax.studies import run
from tests.studies.tiny import study, write_both

T = 12


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory):
    """The section of a finished run on a random model, and its store."""
    folder = tmp_path_factory.mktemp("repeat-bound")
    section = run.carry_out(study("gu/repeat-bound", write_both(folder), longest=48), folder / "out")
    return section, xarray.open_zarr(folder / "out" / "bound.zarr", chunks=None).load()


@pytest.mark.parametrize("scaling", [None, YarnScaling(factor=4.0, original_context=16)])
def test_the_closed_form_is_what_the_forward_does_with_one_token_repeated(tiny_config: Config, tiny_params: Params, scaling):
    config = dataclasses.replace(tiny_config, position=Rope(10_000.0, scaling))
    tokens = np.full((1, T), 7, np.int32)
    probe = Probe(attention=(0, 1, 2), capture=(Capture("query", positions=(0,)), Capture("key", positions=(0,))))
    record = sinkjax.forward(tiny_params, tokens, config, probe=probe, logits=False).record
    frequencies, factor = rope.frequencies(config.position, config.head_dim, np.array([T]), np.dtype("float32"))
    query, key = np.asarray(record["queries"])[0, :, 0], np.repeat(np.asarray(record["keys"])[0, :, 0], config.group, axis=1)
    scores = repeated.scores(query, key, np.asarray(frequencies[0]), factor, T)
    np.testing.assert_allclose(repeated.weights(scores, T), np.asarray(record["attention"])[0], atol=1e-5)
    np.testing.assert_allclose(repeated.to_first(scores), np.asarray(record["attention"])[0, ..., 0], atol=1e-5)
    norms, pairs = (repeated.largest_score(query, key, factor, kind) for kind in (False, True))
    assert (np.abs(scores).max(axis=-1) <= pairs + 1e-12).all()
    assert (pairs <= norms + 1e-12).all()


def test_rows_and_means_of_the_closed_form_agree(rng):
    scores = rng.standard_normal((2, 9))
    rows = repeated.weights(scores, 9)
    np.testing.assert_allclose(rows.sum(-1), 1)
    np.testing.assert_allclose(repeated.to_first(scores), rows[..., 0])
    np.testing.assert_allclose(repeated.largest_weight(scores), rows.max(-1))
    np.testing.assert_allclose(
        repeated.running_mean(rows[..., 0], np.array([4, 9])), [[r[:4].mean(), r.mean()] for r in rows[..., 0]]
    )


def test_the_bound_is_the_papers_and_is_reached():
    np.testing.assert_allclose(repeated.bound(np.array(0.7), 3), [np.exp(1.4) / (np.exp(1.4) + other) for other in range(3)])
    worst = np.array([-0.7, -0.7, 0.7])  # the farthest key at the largest score, all others at the smallest
    assert repeated.to_first(worst)[2] == pytest.approx(repeated.bound(np.array(0.7), 3)[2])
    assert repeated.bound(np.array(400.0), 3).tolist() == [1, 1, 1]


def test_the_propositions_hold_with_any_weights(finished):
    section, data = finished
    assert [claim.verdict for claim in section.claims[:3]] == ["confirmed"] * 3
    assert section.claims[4].verdict == "not applicable"
    assert data["excess"].max() < 0
    assert data["hidden"].max() < 1e-4
    assert data["error"].max() < 1e-5
    assert data["without_positions"].max() < 1e-5
    assert (data["closed"] <= data["bound"].min("xi_from") + 1e-12).all()
    np.testing.assert_allclose(data["closed"].isel(tokens=0), data["received"], atol=1e-5)


def test_every_length_has_its_rows(finished):
    section, data = finished
    assert data["tokens"].values.tolist() == [12, 48]
    assert section.featured == ("12 tokens", "48 tokens")
    (row,) = [row for row in section.rows if (row.arm, row.measure) == ("48 tokens", repeat_bound.bound_of("pairs"))]
    assert row.value.mean == pytest.approx(float(data["bound"].sel(tokens=48, xi_from="pairs").mean()))


def test_what_breaks_a_proposition_is_not_confirmed(finished):
    section, data = finished
    changed = data.copy(deep=True)
    for name, size in (("hidden", 0.1), ("without_positions", 0.1), ("excess", 1e-6), ("received", 0.9)):
        changed[name][...] = size
    claims = repeat_bound._claims(RepeatBound(), changed, list(section.rows))
    assert [claim.verdict for claim in claims[:4]] == ["not confirmed"] * 4


def test_the_closed_form_goes_as_far_as_all_layers_see_all_keys_alike(tiny_config: Config):
    config = RepeatBound(length=16, longest=50)
    assert repeat_bound.reach(config, tiny_config) == 50
    assert repeat_bound.reach(config, dataclasses.replace(tiny_config, windows=(None, 20, None))) == 20
    stretched = Rope(10_000.0, DynamicScaling(factor=2.0, original_context=32))
    assert repeat_bound.reach(config, dataclasses.replace(tiny_config, position=stretched)) == 32
    assert repeat_bound.lengths(16, 300).tolist() == [16, 64, 256]
    with pytest.raises(SinkjaxError, match="a layer sees 8 keys, fewer than the 16 tokens of a prompt"):
        repeat_bound.jobs(config, dataclasses.replace(tiny_config, windows=(None, 8, None)))
    with pytest.raises(SinkjaxError, match=r"longest must be at least length \(64\), not 50"):
        RepeatBound(longest=50)
