"""Edits while a model learns: in force in the steps that are asked for, and nothing else moves; a loaded model that learns on."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import sinkjax
from sinkjax import Probe
from sinkjax.errors import SinkjaxError
from sinkjax.model.quantisation import rotate
from sinkjax.tasks import registry, train
from sinkjax.tasks.language_model import task as pretrain
from sinkjax.tasks.language_model.config import Finetune
from sinkjax.train.log import read
from sinkjax.train.state import optimiser_of
from tests.tasks.language_model.test_language_model import SMALL, interrupted, same_bits

ONE = dataclasses.replace(SMALL, seeds=1, steps=30)
HIDDEN = "edits: [{mask_key: {key: 0}}]"
NEUTRAL = "edits: [{add_logit: {key: 0, value: 0}}, {swap_embeddings: {i: 2, j: 2}}]"


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return train(ONE, tmp_path_factory.mktemp("train") / "plain", progress=False)


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    config = dataclasses.replace(ONE, edits=HIDDEN, from_step=10, until=20)
    return train(config, tmp_path_factory.mktemp("train") / "held", progress=False)


def test_edits_are_in_force_in_their_steps_alone(plain, held, tmp_path: Path) -> None:
    neutral = train(dataclasses.replace(ONE, edits=NEUTRAL), tmp_path / "neutral", progress=False)
    assert same_bits(neutral.params, plain.params)
    assert not same_bits(held.params, plain.params)
    losses = np.array([[line["loss"] for line in read(each.folder)[1]] for each in (held, plain)])
    gaps = np.abs(losses[0] - losses[1])
    assert gaps[:2].max() < 1e-5 < 1e-4 < gaps[2:].min()  # steps 0 and 10; 20 and 30
    never = train(dataclasses.replace(ONE, edits=HIDDEN, from_step=30), tmp_path / "never", progress=False)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=1e-5), never.params, plain.params)


def test_the_loss_is_that_of_the_edited_forward(plain) -> None:
    """And so is its gradient, by that of a forward with the edit."""
    task = pretrain.task(dataclasses.replace(ONE, edits=HIDDEN, from_step=5))
    batch = {"tokens": jnp.asarray(np.random.default_rng(0).integers(300, size=(4, 25))), "loss_mask": jnp.ones((4, 25), bool)}
    params, config = plain.of(0), task.architecture

    def direct(params, edits):
        nll = sinkjax.forward(params, batch["tokens"][:, :-1], config, edits, Probe()).logits
        return pretrain.cross_entropy(nll, batch["tokens"][:, 1:]).mean()

    for step, edits in ((4, ()), (5, sinkjax.mask_key(0))):
        found = jax.value_and_grad(lambda params, step=step: task.loss(params, batch, 0, jnp.int32(step))[0])(params)
        want = jax.value_and_grad(direct)(params, edits)
        jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6), found, want)


def test_a_training_that_is_interrupted_resumes_with_its_edits(held, tmp_path: Path, monkeypatch) -> None:
    assert same_bits(interrupted(held.config, tmp_path / "again", 20, monkeypatch).params, held.params)


@pytest.mark.parametrize("optimiser", ["sgd", "muon", "orthoadam"])
def test_other_optimisers_learn_and_resume(plain, tmp_path: Path, monkeypatch, optimiser: str) -> None:
    rate = {"sgd": 0.3, "muon": 0.02, "orthoadam": ONE.learning_rates[0]}[optimiser]
    config = dataclasses.replace(ONE, optimiser=optimiser, learning_rates=(rate,))
    done = train(config, tmp_path / optimiser, progress=False)
    losses = [line["loss"] for line in read(done.folder)[1]]
    assert losses[-1] < losses[0] - 0.3
    assert not same_bits(done.params, plain.params)
    assert same_bits(interrupted(config, tmp_path / "again", 20, monkeypatch).params, done.params)


def test_muon_turns_each_blocks_matrix_into_an_orthogonal_one_and_leaves_the_rest_to_adamw() -> None:
    """Heads count as outputs of q, k and v and as inputs of o; Newton-Schulz brings singular values to about 1."""
    config = dataclasses.replace(ONE, optimiser="muon", weight_decay=0.0, clip=None, warmup=0, learning_rates=(1.0,))
    task = pretrain.task(config)
    params, rng = task.init(0), np.random.default_rng(0)
    gradient = jax.tree.map(lambda leaf: jnp.asarray(rng.standard_normal(leaf.shape), leaf.dtype), params)

    def change(made: optax.GradientTransformation) -> dict:
        return made.update(gradient, made.init(params), params)[0]

    muon = change(optimiser_of(config, jnp.float32(1.0)))
    adamw = change(optax.adamw(1.0, config.beta1, config.beta2, weight_decay=0.0, nesterov=True))
    inputs = {"q": 1, "k": 1, "v": 1, "o": 2, "gate": 1, "up": 1, "down": 1}
    for name, axes in inputs.items():
        for block, given in zip(muon["layers"][name], gradient["layers"][name], strict=True):
            rows = int(np.prod(block.shape[:axes]))
            sizes, before = (np.linalg.svd(each.reshape(rows, -1), compute_uv=False) for each in (block, given))
            assert sizes.max() / sizes.min() < min(3, before.max() / before.min() / 1.5), name
    for name in ("attn_norm", "mlp_norm"):
        np.testing.assert_allclose(muon["layers"][name], adamw["layers"][name], rtol=1e-5)
    np.testing.assert_allclose(muon["embed"], adamw["embed"], rtol=1e-5)


def test_orthoadam_is_adamw_in_a_rotated_basis_of_each_array() -> None:
    """The rotations here are dense and multiply by `einsum`; layers and tokens of the vocabulary are not turned."""
    config = dataclasses.replace(ONE, optimiser="orthoadam", clip=None, warmup=0, learning_rates=(0.1,))
    params, rng = pretrain.task(config).init(0), np.random.default_rng(0)
    params |= {"positions": jnp.ones((24, 16)), "unembed_bias": jnp.ones(300)}
    gradients = [jax.tree.map(lambda leaf: jnp.asarray(rng.standard_normal(leaf.shape), leaf.dtype), params) for _ in range(3)]

    def turn(path: tuple, leaf: jax.Array, back: bool = False) -> jax.Array:
        axes = "abcd"[: leaf.ndim]
        own = {"embed": [1], "unembed": [0], "unembed_bias": [], "final_norm": [0], "positions": [0, 1]}
        for axis in own.get(path[0].key, range(1, leaf.ndim)):
            matrix = rotate(jnp.eye(leaf.shape[axis]))  # [from, to]
            leaf = jnp.einsum(f"{axes},{axes[axis]}z->{axes.replace(axes[axis], 'z')}", leaf, matrix.T if back else matrix)
        return leaf

    def follow(made: optax.GradientTransformation, params: dict, gradients: list[dict]) -> dict:
        state = made.init(params)
        for gradient in gradients:
            update, state = made.update(gradient, state, params)
            params = optax.apply_updates(params, update)
        return params

    along = jax.tree_util.tree_map_with_path
    adamw = optax.adamw(0.1, config.beta1, config.beta2, weight_decay=config.weight_decay)
    there = follow(adamw, along(turn, params), [along(turn, gradient) for gradient in gradients])
    want = along(lambda path, leaf: turn(path, leaf, back=True), there)
    found = follow(optimiser_of(config, jnp.float32(0.1)), params, gradients)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=1e-4), found, want)


def test_a_loaded_model_learns_on(plain, tmp_path: Path) -> None:
    """Its first evaluation is that of the model, and its folder is a model that can be loaded."""
    folder = str(plain.folder / "models" / "run-000")
    config = Finetune(init=folder, limit=60_000, context=24, batch=4, steps=10, eval_every=10, eval_batch=6, warmup=1, seeds=2)
    done = train(config, tmp_path / "on", progress=False)
    lines = [line for line in read(done.folder)[1] if line["run"] == 0]
    last = [line for line in read(plain.folder)[1] if line["run"] == 0][-1]
    assert lines[0]["loss"] == pytest.approx(last["loss"], abs=1e-6)  # the held-out blocks are the same
    assert not same_bits(done.of(0), plain.of(0))
    assert not same_bits(done.of(0), done.of(1))
    assert same_bits(sinkjax.load(str(done.folder / "models" / "run-001")).params, done.of(1))
    with pytest.raises(SinkjaxError, match=r"context must be at most 24"):
        registry.task(dataclasses.replace(config, context=25))
    assert registry.task(config).loaded is done.task.loaded
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    before = registry.task(dataclasses.replace(config, init=str(copy)))
    sinkjax.save(sinkjax.load(str(done.folder / "models" / "run-001")), copy)
    assert same_bits(registry.task(before.config).init(0), done.of(1))
    assert same_bits(before.init(0), plain.of(0))
