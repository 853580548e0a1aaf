"""gu/repeat-bound: the closed form against the forward, the bound against its definition, verdicts and refusals."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.model import rope
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.model.rotary import DynamicScaling, Rope, YarnScaling
from sinkjax.probes.probe import Capture, Probe
from sinkjax.studies.papers.gu import _repeated as repeated
from sinkjax.studies.papers.gu.repeat_bound import STUDY, RepeatBound
from sinkjax.studies.results import Results
from tests.studies.planted import Planted

T = 12
CONFIG = RepeatBound(length=T, longest=48)


@pytest.fixture(scope="module")
def data(tiny_config: Config, tiny_params: Params) -> xarray.Dataset:
    """The store of random weights, three tokens repeated."""
    prompts = np.repeat(np.array([[7], [8], [9]], np.int32), T, axis=1)
    tokens = repeated.lengths(T, repeated.reach(tiny_config, 48))
    found = repeated.measured(SimpleNamespace(params=tiny_params, config=tiny_config), prompts, tokens)
    return found.assign_attrs(sweep={"config": {"layers": tiny_config.layers}})


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
    norms, pairs = np.moveaxis(repeated.largest_scores(query, key, factor), -1, 0)
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


def verdicts(data: xarray.Dataset) -> list[str]:
    results = Results(STUDY, CONFIG, {"bound": data})
    return Planted.verdicts(results)


def test_the_propositions_hold_with_any_weights(data):
    assert verdicts(data)[:3] == ["holds"] * 3
    assert verdicts(data)[4] == "not applicable"
    assert data["excess"].max() < 0
    assert data["hidden"].max() < 1e-4
    assert data["error"].max() < 1e-5
    assert data["without_positions"].max() < 1e-5
    assert (data["closed"] <= data["bound"].min("xi_from") + 1e-12).all()
    np.testing.assert_allclose(data["closed"].isel(tokens=0), data["received"].isel(key=0), atol=1e-5)
    np.testing.assert_allclose(data["closed_received"], data["received"], atol=1e-5)


def test_every_length_has_its_rows(data):
    assert data["tokens"].values.tolist() == [12, 48]
    rows = Results(STUDY, CONFIG, {"bound": data}).own
    assert list(dict.fromkeys(label for label, _ in rows)) == ["12 tokens", "48 tokens"]
    found = rows["48 tokens", "bound from pairs, mean over heads"].value.mean
    assert found == pytest.approx(float(data["bound"].sel(tokens=48, xi_from="pairs").mean()))


@pytest.mark.parametrize(
    ("array", "enough", "broken", "claim"),
    [
        ("hidden", 1e-4, 1.1e-4, 0),
        ("without_positions", 1e-4, 1.1e-4, 1),
        ("excess", 1e-12, 1.1e-12, 2),
        ("forward_excess", 1e-4, 1.1e-4, 2),
    ],
)
def test_a_proposition_fails_where_it_is_broken(data, array, enough, broken, claim):
    for size, expected in ((enough, "holds"), (broken, "fails")):
        changed = data.copy(deep=True)
        changed[array][...] = size
        assert verdicts(changed)[claim] == expected


@pytest.mark.parametrize("array", ["received", "closed_received"])
@pytest.mark.parametrize(
    ("size", "keys", "prompts", "verdict"),
    [
        (0.3, slice(None), 16, "supported"),  # no more than the threshold
        (0.31, 0, 16, "contradicted"),
        (0.31, 3, 16, "contradicted"),  # a sink on another key than the first
        (0.31, T // 2, 16, "contradicted"),
        (0.31, slice(T // 2 + 1, None), 16, "supported"),  # keys that few queries see
        (0.31, 0, 1, "inconclusive"),  # in one prompt alone
        (0.31, 0, 0, "supported"),
    ],
)
def test_that_no_key_is_a_sink_is_a_finding_by_prompts(data, array, size, keys, prompts, verdict):
    changed = data.isel(prompt=[0] * 16).copy(deep=True)
    changed["closed_received"][...] = changed["received"][...] = 0
    changed[array][:prompts, ..., keys] = size
    assert verdicts(changed)[3] == verdict


def test_few_prompts_decide_nothing_about_sinks(data):
    changed = data.copy(deep=True)
    changed["closed_received"][...] = changed["received"][...] = 0
    assert verdicts(changed)[3] == "inconclusive"


def test_the_closed_form_goes_as_far_as_all_layers_see_all_keys_alike(tiny_config: Config):
    assert repeated.reach(tiny_config, 50) == 50
    assert repeated.reach(dataclasses.replace(tiny_config, windows=(None, 20, None)), 50) == 20
    stretched = Rope(10_000.0, DynamicScaling(factor=2.0, original_context=32))
    assert repeated.reach(dataclasses.replace(tiny_config, position=stretched), 50) == 32
    assert repeated.lengths(16, 300).tolist() == [16, 64, 256]
    with pytest.raises(SinkjaxError, match="a layer sees 8 keys, fewer than the 16 tokens of a prompt"):
        STUDY.check(RepeatBound(length=16, longest=50), dataclasses.replace(tiny_config, windows=(None, 8, None)))
    with pytest.raises(SinkjaxError, match=r"longest must be at least length \(64\), not 50"):
        RepeatBound(longest=50)


def test_prompts_have_no_bos_whatever_the_config_says():
    inputs = STUDY.inputs(RepeatBound(bos="model"))
    assert (inputs.kind, inputs.bos) == ("repeat", "none")
