"""Edits of weights give the numbers of a model whose weights were changed, in every block, batched, stored and from YAML."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sinkjax
from sinkjax import Probe, compose, edit, edit_weights
from sinkjax.checkpoints.model import Model
from sinkjax.edits.weights import MATRICES, shape_of
from sinkjax.model import params
from tests.transformer.test_families_edited import BLOCKS, LENGTHS, model, tokens

EVERYTHING = Probe(attention_received=True, resid_norm=True, nll=True)
NAMES = [
    (block, name)
    for block, config in BLOCKS.items()
    for name, leaf in params.abstract(config)["layers"].items()
    if isinstance(leaf, params.Leaf) and "expert" not in leaf.axes and (name in MATRICES or name.endswith(("_norm", "_bias")))
]
LAYER = 1


@pytest.fixture(scope="module", autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def changed(drawn: Model, name: str, change, layers=(LAYER,)) -> Model:
    """The model with `change` made to the matrix, as inputs by outputs, or to the vector of these layers."""
    rows, cols = shape_of(name, drawn.config)
    leaf = np.array(drawn.params["layers"][name])
    for layer in layers:
        flat = leaf[layer].reshape(cols if rows is None else (rows, cols)).copy()
        change(flat)
        leaf[layer] = flat.reshape(leaf[layer].shape)
    return Model(drawn.config, {**drawn.params, "layers": {**drawn.params["layers"], name: jnp.asarray(leaf)}}, None, {})


def run(drawn: Model, edits=()):
    return sinkjax.forward(drawn, tokens(), edits=edits, probe=EVERYTHING, lengths=LENGTHS)


def agree(found, wanted) -> None:
    np.testing.assert_allclose(found.logits, wanted.logits, rtol=1e-9, atol=1e-10)
    for name, array in wanted.record.items():
        if name.startswith("cells_"):  # of each term, and a changed model has none
            continue
        np.testing.assert_allclose(found.record[name], array, rtol=1e-9, atol=1e-10, err_msg=name)


@pytest.mark.parametrize(("block", "name"), NAMES)
def test_an_edited_parameter_gives_the_numbers_of_a_changed_model(block: str, name: str) -> None:
    drawn = model(block)
    rows, cols = shape_of(name, drawn.config)
    noise = np.random.default_rng(1)
    if rows is None:
        value = noise.standard_normal(2)
        edits = edit_weights(name, "set", value, layers=LAYER, cols=[cols - 1, 0])

        def change(flat):
            flat[[cols - 1, 0]] = value
    else:
        value = noise.standard_normal((2, 3))
        edits = edit_weights(name, "add", value, layers=LAYER, rows=[rows - 1, 0], cols=[2, 0, cols - 1])

        def change(flat):
            flat[np.ix_([rows - 1, 0], [2, 0, cols - 1])] += value

    plain, edited = run(drawn), run(drawn, edits)
    agree(edited, run(changed(drawn, name, change)))
    assert not np.allclose(plain.logits, edited.logits, rtol=1e-9)


@pytest.mark.parametrize("name", MATRICES)
def test_a_neutral_edit_leaves_every_bit(tiny_config, tiny_params, name: str) -> None:
    drawn = Model(tiny_config, tiny_params, None, {})
    plain = run(drawn)
    for edits in (edit_weights(name, "scale", 1.0), edit_weights(name, "add", 0.0, layers=[0, 2], rows=3)):
        edited = run(drawn, edits)
        np.testing.assert_array_equal(plain.logits, edited.logits)
        for which, array in plain.record.items():
            np.testing.assert_array_equal(array, edited.record[which])


def test_a_low_rank_change_is_the_product_of_its_factors(tiny_config, tiny_params) -> None:
    drawn = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tiny_params)
    drawn = Model(tiny_config, drawn, None, {})
    noise = np.random.default_rng(0)
    left, right = noise.standard_normal((tiny_config.neurons, 2)), noise.standard_normal((2, 5))
    edits = edit_weights("down", "add", (left, right), layers=[0, 2], cols=slice(3, 8))

    def change(flat):
        flat[:, 3:8] += left @ right

    agree(run(drawn, edits), run(changed(drawn, "down", change, (0, 2))))


@settings(max_examples=8, deadline=None)  # each compiles two programs
@given(data=st.data())
def test_several_edits_of_one_matrix_act_one_after_the_other(data) -> None:
    drawn, name = model("parallel"), "up"
    rows, cols = shape_of(name, drawn.config)
    terms, changes = [], []
    for _ in range(data.draw(st.integers(2, 3))):
        at = sorted(data.draw(st.sets(st.integers(0, rows - 1), min_size=1, max_size=3)))
        out = sorted(data.draw(st.sets(st.integers(0, cols - 1), min_size=1, max_size=3)))
        op, value = data.draw(st.sampled_from(["set", "add", "scale"])), data.draw(st.floats(-2, 2))
        terms.append(edit_weights(name, op, value, layers=LAYER, rows=at, cols=out))
        changes.append((np.ix_(at, out), op, value))

    def change(flat):
        for where, op, value in changes:
            flat[where] = {"set": value, "add": flat[where] + value, "scale": flat[where] * value}[op]

    agree(run(drawn, compose(*terms)), run(changed(drawn, name, change)))


def test_it_composes_with_edits_at_sites_and_with_inputs_of_single_heads() -> None:
    drawn = model("parallel")
    others = [edit("q_in", "scale", 1.5, layers=LAYER, heads=2, queries=3), sinkjax.mask_key(0, layers=2)]
    edits = compose(others[0], edit_weights("q", "scale", -2.0, layers=LAYER, rows=[1, 4]), others[1])

    def change(flat):
        flat[[1, 4]] *= -2

    agree(run(drawn, edits), run(changed(drawn, "q", change), compose(*others)))


def test_a_sweep_gives_what_single_passes_give() -> None:
    drawn = model("post")
    edits = [edit_weights("down", "set", 0.0, layers=layer, rows=row) for layer in range(3) for row in (0, 5)]
    swept = sinkjax.sweep(drawn, tokens(), edits, probe=EVERYTHING, lengths=LENGTHS, progress=False)
    for number, entry in enumerate(edits):
        record = run(drawn, entry).record
        for name in EVERYTHING.dims():
            np.testing.assert_allclose(swept[name][number], record[name], rtol=1e-9, atol=1e-10)
    assert (swept["cells_addressed"] == drawn.config.width).all()
    assert (swept["cells_changed"] == drawn.config.width).all()


def test_the_gradient_towards_its_value_is_that_of_the_weight(tiny_config, tiny_params) -> None:
    weights = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), tiny_params)

    def loss(out):
        return (out.logits**2).mean()

    def of_value(value):
        return loss(
            sinkjax.forward(weights, tokens(), tiny_config, edits=edit_weights("o", "add", value, layers=1, rows=9, cols=4))
        )

    def of_weight(o):
        return loss(sinkjax.forward({**weights, "layers": {**weights["layers"], "o": o}}, tokens(), tiny_config))

    wanted = jax.grad(of_weight)(weights["layers"]["o"])[1].reshape(-1, tiny_config.width)[9, 4]
    np.testing.assert_allclose(jax.grad(of_value)(0.0), wanted, rtol=1e-9)
