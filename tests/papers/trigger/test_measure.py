"""What is measured on trained models, against loops in numpy, on random weights of several sizes and all kinds of data."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax.model import params as model_params
from sinkjax.papers.trigger import _measure as measure
from sinkjax.papers.trigger._config import Trials
from sinkjax.papers.trigger._measure import ROWS
from sinkjax.papers.trigger._outcomes import OTHERS, TRIGGER
from sinkjax.probes.probe import Probe
from sinkjax.tasks import train
from sinkjax.tasks.trigger.config import Trigger, TriggerTraining
from sinkjax.tasks.trigger.task import model

SMALL = TriggerTraining(layers=2, heads=2, width=6, length=8)
TRAINED = TriggerTraining(heads=2, width=6, length=8, steps=40, batch=8, eval_every=20, eval_batch=16, seeds=2)
DATA = {
    "flag": {},
    "anchors": {"second_anchor": True, "zero_token": True},
    "none": {"bos": "none"},
    "none-zeros": {"bos": "none", "zero_token": True},
}


def random(training: TriggerTraining, seed: int = 0):
    """A model with weights that do something, its architecture and its data."""
    architecture = model(training)
    return model_params.init(architecture, seed, std=0.4), architecture, training.data


def loop(weights, j, trigger: Trigger):
    """Mean weight by rows and target, by its definition."""
    found = {(rows, target): [] for rows in ROWS for target in measure.TARGETS}
    for b in range(len(j)):
        for i in range(max(trigger.specials, 1), trigger.length):
            rows = TRIGGER if i == j[b] else OTHERS
            row = weights[b, :, :, i]
            found[rows, "bos"].append(row[..., 0])
            found[rows, "anchors"].append(row[..., 1 : max(trigger.specials, 1)].sum(-1))
            found[rows, "elsewhere"].append(row[..., max(trigger.specials, 1) :].sum(-1))
    return np.array([[np.mean(found[rows, target], axis=0) for target in measure.TARGETS] for rows in ROWS])


def by_hand(params, weights, values):
    """Norms of what key 0 writes and of all that each head writes: [sequence, layer, head, row]."""
    o = np.asarray(params["layers"]["o"], np.float64)
    writes = np.einsum("blkhd,lhdn->blhkn", values, o)
    first = np.linalg.norm(weights[..., :1] * writes[:, :, :, :1], axis=-1)
    whole = np.linalg.norm(np.einsum("blhik,blhkn->blhin", weights, writes), axis=-1)
    return first, whole


@pytest.mark.parametrize(("name", "normaliser"), [*((name, "softmax") for name in DATA), ("flag", "relu-index")])
def test_masses_and_losses_are_those_of_a_loop(name, normaliser):
    params, architecture, trigger = random(dataclasses.replace(SMALL, normalisers=(normaliser,), **DATA[name]))
    data = measure.held_out(trigger, 30, seed=4)
    found = measure.on_sequences(params, architecture, data, trigger)
    probe = Probe(attention=(0, 1), capture=(sinkjax.Capture(sinkjax.Site.VALUE),))
    out = sinkjax.forward(params, data[0], architecture, probe=probe, logits=False)
    weights, (x, y, j) = np.asarray(out.record["attention"], np.float64), (np.asarray(array, np.float64) for array in data)
    j = j.astype(int)
    np.testing.assert_allclose(found["weight"], loop(weights, j, trigger), rtol=2e-5, atol=1e-7)
    share = weights / (weights.sum(axis=-1, keepdims=True) + 1e-8)
    first, whole = by_hand(params, weights, np.asarray(out.record["values"], np.float64))
    own = np.arange(8) == j[:, None]
    others = ~own & (np.arange(8) >= max(trigger.specials, 1))
    first, *whole = (
        np.moveaxis(norms, 3, 1)[rows].mean(axis=0) for norms, rows in ((first, others), (whole, others), (whole, own))
    )
    np.testing.assert_allclose(found["written"], first / np.maximum(*whole), rtol=1e-4)
    np.testing.assert_allclose(found["share"], loop(share, j, trigger), rtol=2e-4, atol=1e-6)
    error = np.square(np.asarray(out.output) - y)
    own = np.array([error[b, j[b]].mean() for b in range(30)])
    np.testing.assert_allclose(found["loss"][ROWS.index(TRIGGER)], own.mean(), rtol=1e-4)
    np.testing.assert_allclose(found["loss"][-1], error.mean(), rtol=1e-4)
    np.testing.assert_allclose(found["largest_error"], np.sqrt(error.max()), rtol=1e-4)
    np.testing.assert_allclose(found["null_loss"], np.square(y - x).mean(), rtol=1e-4)  # it has a residual stream
    first = trigger.specials
    uneven = [np.abs(weights[b, :, :, j[b], first : j[b] + 1] - 1 / (j[b] + 1 - first)).max(-1) for b in range(30)]
    np.testing.assert_allclose(found["uneven"], np.mean(uneven, axis=0), rtol=1e-4)


def test_a_target_moves_with_its_token():
    params, architecture, trigger = random(SMALL)
    x, y, j = measure.held_out(trigger, 10, 0, 6)
    edits = {edit.label: edit for edit in measure.edits(trigger, 6, (3,))}
    chosen = [edits["BOS moved to position 3"]]
    found = measure.on_edits(params, architecture, (x, y, j), trigger, chosen)["edited_loss"]
    order = np.arange(8)
    order[[0, 3]] = 3, 0
    by_hand = measure.on_edits(params, architecture, (x[:, order], y[:, order], j), trigger, [sinkjax.compose()])["edited_loss"]
    np.testing.assert_allclose(found, by_hand, rtol=1e-6)


def test_a_training_is_measured_run_by_run_and_a_diverged_one_is_nowhere(tmp_path):
    trained = train(TRAINED, tmp_path / "small", progress=False)
    config = Trials(width=6, length=8, sequences=40, map_sequences=5, trigger_position=5, moves=(3,))
    data = measure.measure(config, False, trained)
    assert dict(data.sizes) | {"evaluation": 3} == dict(data.sizes)
    assert data["run"].values.tolist() == [0, 1]
    assert data["weight"].dims == ("run", "rows", "target", "layer", "head")
    assert data["curve_step"].values.tolist() == [[0, 20, 40]] * 2
    held_out = measure.held_out(TRAINED.data, 40, 0)
    alone = measure.on_sequences(trained.of(1), model(TRAINED), held_out, TRAINED.data)
    np.testing.assert_allclose(data["weight"].sel(run=1), alone["weight"], rtol=1e-6)
    ended = (dataclasses.replace(trained.runs[0], outcome="diverged"), trained.runs[1])
    lost = measure.measure(config, False, dataclasses.replace(trained, runs=ended))
    assert np.isnan(lost["loss"].sel(run=0)).all()
    np.testing.assert_array_equal(lost["loss"].sel(run=1), data["loss"].sel(run=1))
    assert jax.tree.leaves(trained.params)[0].shape[0] == 2
