"""A retrofitted model is the old one behind a sink prefix, and training moves nothing but its learned keys and values."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax.checkpoints.model import Model

TOKEN, LENGTH = 5, 12
TEXT = np.random.default_rng(0).integers(0, 50, (6, LENGTH))


@pytest.fixture
def model(tiny_config, tiny_params) -> Model:
    return sinkjax.from_arrays(tiny_config, leaves(tiny_params))


def leaves(params) -> dict[str, np.ndarray]:
    from sinkjax.checkpoints.names import leaf_name

    return {leaf_name(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(params)}


def test_without_training_it_is_the_old_model_behind_a_prefix(model: Model) -> None:
    """A key without a rotation is a key at position 0; behind the prefix the tokens stand one further."""
    made = sinkjax.retrofit(model, token=TOKEN)
    behind = sinkjax.forward(model, TEXT, past=sinkjax.sink_prefix(model, TOKEN)).logits
    ones = np.ones(LENGTH, int)
    moved = sinkjax.forward(made, TEXT, edits=sinkjax.shift_positions(query=ones, key=ones)).logits
    np.testing.assert_allclose(moved, behind, rtol=1e-4, atol=1e-5)
    assert np.abs(np.asarray(sinkjax.forward(model, TEXT).logits) - behind).max() > 1e-2


@pytest.mark.parametrize(("value", "names"), [("learned", {"key", "value"}), ("zero", {"key"})])
def test_training_moves_the_learned_leaves_alone(model: Model, value: str, names: set[str], tmp_path: Path) -> None:
    options = {"value": value, "token": TOKEN, "batch": 3, "length": LENGTH, "learning_rate": 0.05, "progress": False}
    start, made = (sinkjax.retrofit(model, TEXT, steps, **options) for steps in (0, 20))
    before, after, old = (leaves(each.params) for each in (start, made, model))
    added = {f"layers.attention_bias.{name}" for name in names}
    assert {*after} == {*before} == {*old} | added
    assert all((after[name] == old[name]).all() == (name in old) for name in old)
    assert all(np.abs(after[name] - before[name]).max() > 0.01 for name in added)
    losses = [sinkjax.evaluate(each, TEXT).loss for each in (start, made)]
    assert losses[1] < losses[0] - 0.01
    saved = sinkjax.load(sinkjax.save(made, tmp_path / "made"))
    np.testing.assert_array_equal(sinkjax.forward(saved, TEXT).logits, sinkjax.forward(made, TEXT).logits)
    again = sinkjax.retrofit(model, TEXT, 20, **options)
    assert all((leaf == after[name]).all() for name, leaf in leaves(again.params).items())


def test_what_is_trained_follows_the_gradient_of_the_loss(model: Model) -> None:
    """The first update of Adam has the size of the rate, against the sign of the loss's derivative."""
    options = {"token": TOKEN, "batch": len(TEXT), "length": LENGTH, "learning_rate": 1e-3, "progress": False}
    start, made = (sinkjax.retrofit(model, TEXT, steps, **options) for steps in (0, 1))

    def loss(key: jax.Array) -> jax.Array:
        layers = start.params["layers"]
        params = {**start.params, "layers": {**layers, "attention_bias": {**layers["attention_bias"], "key": key}}}
        nll = sinkjax.forward(params, TEXT, start.config, probe=sinkjax.Probe(nll=True)).record["nll"]
        return jnp.nanmean(nll)

    key = start.params["layers"]["attention_bias"]["key"]
    slope, change = np.asarray(jax.grad(loss)(key)), np.asarray(made.params["layers"]["attention_bias"]["key"] - key)
    steep = np.abs(slope) > 1e-5
    assert steep.mean() > 0.5
    np.testing.assert_allclose(change[steep], -1e-3 * np.sign(slope[steep]), rtol=0.05)
