"""li/amplify: outputs are pushed away from the means of the model that is edited, and controls have the size of the push."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.papers.li import amplify
from sinkjax.papers.li._amplified import EVERYWHERE, NORM, PROMPTS, amplified, distances, mean_outputs, random_direction
from sinkjax.studies.as_yaml import from_yaml, to_yaml
from sinkjax.studies.known import Unedited, blank, measured
from sinkjax.studies.registry import as_value
from sinkjax.studies.scope import Scope
from sinkjax.studies.settings import config_type
from sinkjax.studies.study import Batch
from tests.studies.tiny import write_both

K, T = 4, 12
CONFIG = config_type(amplify.STUDY)(positions=(2, K), token=K, last=1, single=(0,), ends=(1,), length=T)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory):
    return sinkjax.load(str(write_both(tmp_path_factory.mktemp("tiny")) / "model"))


@pytest.fixture(scope="module")
def batch(model) -> Batch:
    """More prompts than one block, of which one is shorter."""
    tokens = np.random.default_rng(0).integers(1, model.config.vocab_size, (9, T)).astype(np.int32)
    return Batch(tokens, np.array([T] * 8 + [9], np.int32), {})


@pytest.fixture(scope="module")
def scope(model, batch) -> Scope:
    known: Any = {"means": mean_outputs(), "sizes": distances()}
    return Scope(CONFIG, model.config, measured(known, Scope(CONFIG, model.config), Unedited(model, batch)))


def outputs(model, batch, *edits: sinkjax.Edit) -> np.ndarray:
    """float[prompt, layer, position, head, dim]."""
    probe = sinkjax.Probe(capture=(sinkjax.Capture("head_out"),))
    run = sinkjax.forward(model.params, batch.tokens, model.config, edits=edits, probe=probe, lengths=batch.lengths)
    return np.asarray(run.record["head_out"])


def test_means_are_over_real_positions(model, batch, scope):
    seen, means = outputs(model, batch), scope.known["means"]
    np.testing.assert_allclose(means[PROMPTS][:, K], seen[:, :, K].mean(0), atol=1e-5)
    np.testing.assert_allclose(means[PROMPTS][:, 10], seen[:8, :, 10].mean(0), atol=1e-5)  # without the short prompt
    real = np.arange(T) < batch.lengths[:, None]
    np.testing.assert_allclose(means[EVERYWHERE][:, K], seen.swapaxes(1, 2)[real].mean(0), atol=1e-5)
    empty = blank({"means": mean_outputs(), "sizes": distances()}, scope, 9)
    assert empty["means"][PROMPTS].shape == means[PROMPTS].shape
    assert empty["sizes"].shape == scope.known["sizes"].shape


@pytest.mark.parametrize("mean", amplify.MEANS)
def test_outputs_are_pushed_away_from_each_mean(model, batch, scope, mean):
    plain, s = outputs(model, batch)[:, 0, K], 5.0
    edited = outputs(model, batch, dataclasses.replace(scope.get(amplified(mean, K, s)), label="edit"))[:, 0]
    earlier = outputs(model, batch)[:, 0, : K + 1]
    mu = {
        PROMPTS: plain.mean(0),
        EVERYWHERE: scope.known["means"][EVERYWHERE][0, K],
        "over positions": earlier.mean(1),
        "over dims": plain.mean(-1, keepdims=True),
        NORM: 0.0,
    }[mean]
    np.testing.assert_allclose(edited[:, K], mu + s * (plain - mu), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(edited[:, :K], earlier[:, :K], atol=1e-6)


def test_a_control_is_as_large_as_the_push(model, batch, scope):
    seen, rng = outputs(model, batch), intervals.generator(0, "test")
    drawn = dataclasses.replace(scope, rng=rng)
    (term,) = drawn.get(random_direction(K, 5.0)).terms
    assert (term.site, term.op, term.queries) == ("head_out", "add", (K,))
    own, few = seen[:, :, K], np.sqrt(9 / 8)  # a mean over nine prompts has a ninth of each
    expected = 4 * few * np.linalg.norm(own - own.mean(0), axis=-1).swapaxes(0, 1)
    np.testing.assert_allclose(np.linalg.norm(term.value, axis=-1), expected, rtol=1e-4)
    (other,) = drawn.get(random_direction(K, 5.0)).terms
    assert not np.allclose(term.value, other.value)


def test_donors_are_those_of_the_model_that_is_edited(model, batch):
    twin = dataclasses.replace(model, params={**model.params, "embed": 2 * model.params["embed"]})
    scope = Scope(CONFIG, model.config)
    known: Any = {"means": mean_outputs()}
    found = measured(known, scope, Unedited(model, batch), Unedited(twin, batch))["means"][PROMPTS]
    np.testing.assert_array_equal(found, measured(known, scope, Unedited(twin, batch))["means"][PROMPTS])
    assert not np.array_equal(found, measured(known, scope, Unedited(model, batch))["means"][PROMPTS])


def test_conditions_are_every_mean_position_and_factor():
    scope = Scope(CONFIG, SimpleNamespace(layers=3, heads=4, head_dim=8))
    scope = dataclasses.replace(scope, known=blank(dict(amplify.STUDY.known), scope, 1))
    counts = {name: len(scope.get(entry)) - 1 for name, entry in amplify.STUDY.grids.items()}
    assert counts == {"factors": 5 * 2 * 5, "windows": 5 * 2 * 3, "layers": 2 * 3, "identity": 5}


def test_yaml_keeps_it():
    value = as_value("li/amplify")
    assert from_yaml(to_yaml(value)) == value
