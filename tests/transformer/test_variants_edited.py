"""Edits, probes and sweeps on models of attention and nothing else: they act as on any model, or say what is missing."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax import Capture, Probe, SinkjaxError, Site, Statistic
from sinkjax.checkpoints.model import Model
from sinkjax.model.heads import HeadGate
from sinkjax.model.normalisers import NAMED
from tests.model.variants import bare, draw, naive

LENGTHS = np.array([9, 6])
ONE = {"layers": 1, "residual": False}
LONE = sinkjax.attend_self(3)
RELU, GATED = {**ONE, "normaliser": NAMED["relu-index"]}, {**ONE, "gate": HeadGate()}


@pytest.fixture(scope="module", autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((2, 9, 7))


def run(changes: dict, x: np.ndarray, edits=(), probe: Probe | None = None):
    config = bare(**changes)
    return sinkjax.forward(draw(config), x, config, edits, probe or Probe(attention=(0,)), LENGTHS)


@pytest.mark.parametrize("changes", [ONE, RELU, GATED], ids=["softmax", "relu", "gated"])
def test_a_masked_key_has_no_weight_and_a_lone_query_only_its_own(x, changes: dict) -> None:
    plain, masked, alone = (np.asarray(run(changes, x, e).record["attention"])[:, 0] for e in ((), sinkjax.mask_key(0), LONE))
    rows = np.arange(1, 9)
    assert (plain[0][:, rows, 0] != 0).any()
    assert not masked[0][:, rows, 0].any()
    np.testing.assert_array_equal(masked[..., 0, 0], plain[..., 0, 0])
    others = np.nan_to_num(alone[:, :, 3, [0, 1, 2, 4, 5]])
    assert not others.any()
    if changes is RELU:  # what another key gets does not change, nor what the row is divided by
        np.testing.assert_array_equal(masked[..., 1:], plain[..., 1:])
        np.testing.assert_array_equal(alone[..., 3, 3], plain[..., 3, 3])
    else:
        np.testing.assert_allclose(masked[0].sum(axis=-1), 1, rtol=1e-12)
        np.testing.assert_allclose(alone[..., 3, 3], 1, rtol=1e-12)


@pytest.mark.parametrize("changes", [ONE, RELU, GATED], ids=["softmax", "relu", "gated"])
def test_heads_and_weights_can_be_taken_out(x, changes: dict) -> None:
    """The output is the sum of its heads; weights set to a number give that number times the sum of values."""
    plain = run(changes, x).output
    without = [run(changes, x, sinkjax.edit("head_out", "scale", 0.0, heads=head)).output for head in range(2)]
    np.testing.assert_allclose(without[0] + without[1], plain, rtol=1e-10, atol=1e-12)
    nothing = run(changes, x, sinkjax.edit("weights", "set", 0.0)).output
    assert not np.asarray(nothing).any()
    even = run({**changes, "gate": None}, x, sinkjax.edit("weights", "set", 0.25)).output
    w = draw(bare(**{**changes, "gate": None}))["layers"]
    values = sum(x[0] @ w["v"][0, :, head] @ w["o"][0, head] for head in range(2))
    np.testing.assert_allclose(even[0], 0.25 * np.cumsum(values, axis=0), rtol=1e-10, atol=1e-12)


def test_swapped_embeddings_are_swapped_inputs(x) -> None:
    swapped = x.copy()
    swapped[:, [0, 4]] = x[:, [4, 0]]
    np.testing.assert_array_equal(run(ONE, x, sinkjax.swap_embeddings(0, 4)).output, run(ONE, swapped).output)


def test_the_gate_is_a_number_for_each_head_and_query_after_head_out(x) -> None:
    probe = Probe(capture=(Capture(Site.HEAD_OUT), Capture(Site.ATTN_OUT)))
    record = run(GATED, x, probe=probe).record
    w = draw(bare(**GATED))["layers"]
    gate = 1 / (1 + np.exp(-np.einsum("BTd,dH->BTH", x, w["head_gate"][0])))
    heads = np.asarray(record["head_out"])[:, 0]
    np.testing.assert_allclose(
        np.einsum("BTH,BTHD,HDd->BTd", gate, heads, w["o"][0]), record["attn_out"][:, 0], rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("changes", [GATED, {**RELU, "gate": HeadGate()}, {"normaliser": NAMED["sink-logit"]}], ids=str)
def test_gradients_are_those_of_differences_of_the_loop(x, changes: dict) -> None:
    """Of every leaf, the gate's and the sink's too, along a random direction."""
    config = bare(**changes)
    leaves, tree = jax.tree.flatten(draw(config))
    loss = jax.jit(lambda w: jnp.square(sinkjax.forward(w, x[:1], config, probe=Probe()).output).mean())
    slopes = jax.tree.leaves(jax.grad(loss)(jax.tree.unflatten(tree, leaves)))
    noise = np.random.default_rng(5)
    for number, leaf in enumerate(leaves):
        way = noise.standard_normal(leaf.shape)
        moved = ([*leaves[:number], leaf + step * way, *leaves[number + 1 :]] for step in (1e-5, -1e-5))
        up, down = (np.square(naive(jax.tree.unflatten(tree, entry), x[0], config)).mean() for entry in moved)
        assert float((slopes[number] * way).sum()) == pytest.approx((up - down) / 2e-5, rel=1e-5)


@pytest.mark.parametrize(("name", "T"), [("softmax", 9), ("sink-logit", 9), ("sink-logit", 300), ("off-by-one", 9)])
def test_what_goes_to_no_key_is_measured_apart(x, name: str, T: int) -> None:
    """Over the queries of each prompt, in one block of queries or two, whatever an edit does to the weights afterwards."""
    changes = {**ONE, "normaliser": NAMED[name], "context": 300}
    tokens = np.concatenate([x, np.random.default_rng(4).standard_normal((2, T - 9, 7))], axis=1)
    lengths = [T, 6]
    config = bare(**changes)
    probe, halve = Probe(attention_received_bias=True, row_entropy=True), sinkjax.edit("weights", "scale", 0.5)
    maps = np.asarray(sinkjax.forward(draw(config), tokens, config, (), Probe(attention=(0,)), lengths).record["attention"])[:, 0]
    for edits in ((), halve):
        found = sinkjax.forward(draw(config), tokens, config, edits, probe, lengths).record
        assert found.dims["attention_received_bias"] == ("prompt", "layer", "head")
        for prompt, length in enumerate(lengths):
            want = 1 - maps[prompt, :, :length, :length].sum(axis=-1).mean(axis=-1) if name in ("sink-logit", "off-by-one") else 0
            np.testing.assert_allclose(found["attention_received_bias"][prompt, 0], want, rtol=1e-9, atol=1e-12)


def test_shares_of_unnormalised_weights(x) -> None:
    record = run(RELU, x, probe=Probe(attention=(0,), attention_received=True, attention_share=True)).record
    for prompt, length in enumerate(LENGTHS):
        raw = np.asarray(record["attention"])[prompt, 0, :, :length, :length]
        for name, map_ in (
            ("attention_received", raw),
            ("attention_share", np.abs(raw) / (np.abs(raw).sum(-1, keepdims=True) + 1e-8)),
        ):
            want = [map_[:, key:, key].mean(axis=1) for key in range(length)]
            np.testing.assert_allclose(np.asarray(record[name])[prompt, 0, :, :length].T, want, rtol=1e-10)


REFUSED = {
    r"POSITION: .*no rotary positions": sinkjax.shift_positions(query=1),
    r"drop_mlp\(position=0\): .*MLP_OUT: .*no MLP": sinkjax.drop_mlp(0),
    r"NEURON: .*no MLP": sinkjax.edit("neuron", "scale", 0.0),
}


@pytest.mark.parametrize("message", REFUSED)
def test_sites_that_are_not_there_are_refused(x, message: str) -> None:
    with pytest.raises(SinkjaxError, match=message) as refused:
        run(ONE, x, REFUSED[message])
    assert "\n" not in str(refused.value)


def test_measurements_of_what_is_not_there_are_refused(x) -> None:
    for probe, sentence in (
        (Probe(capture=(Capture(Site.NEURON),)), "neuron .*NEURON, .*no MLP"),
        (Probe(extra=(Statistic("size", Site.MLP_OUT, lambda x, view: x, ("prompt", "layer")),)), "size .*MLP_OUT"),
        (Probe(nll=True), "this model has no vocabulary"),
    ):
        with pytest.raises(SinkjaxError, match=sentence):
            run(ONE, x, probe=probe)
    model = Model(bare(), draw(bare()), None, {})
    with pytest.raises(SinkjaxError, match=r"no vocabulary, .*generate"):
        sinkjax.generate(model, "text")


def test_a_sweep_of_vectors_gives_what_the_forward_gives_and_resumes(x, tmp_path) -> None:
    config = bare(normaliser=NAMED["sink-logit"], gate=HeadGate())
    model = Model(config, jax.tree.map(jnp.asarray, draw(config)), None, {"kind": "toy"})
    edits = [sinkjax.compose(), sinkjax.mask_key(0, layers=1), sinkjax.mask_key(0), sinkjax.swap_embeddings(0, 4)]
    output = Statistic("output", Site.RESID, lambda x, view: x.sum(axis=-1), ("prompt", "depth", "position"))
    probe = Probe(attention_received=True, attention_received_bias=True, extra=(output,))
    stored = sinkjax.sweep(model, x, edits, probe=probe, lengths=LENGTHS, out=tmp_path / "toy.zarr", progress=False)
    assert stored.attrs["sweep"]["config"]["normaliser"] == "SinkLogit()"
    assert stored.attrs["sweep"]["config"]["position"] == "NoPosition()"
    for number, entry in enumerate(edits):
        record = sinkjax.forward(model.params, x, config, entry, probe, LENGTHS).record
        for name in ("attention_received", "attention_received_bias", "output"):
            np.testing.assert_allclose(stored[name][number], record[name], rtol=1e-12, atol=1e-12)
    again = sinkjax.sweep(model, x, edits, probe=probe, lengths=LENGTHS, out=tmp_path / "toy.zarr", progress=False)
    np.testing.assert_array_equal(again["output"], stored["output"])
    other = Model(bare(normaliser=NAMED["sink-logit"], gate=HeadGate(), score_scale=0.5), model.params, None, {"kind": "toy"})
    with pytest.raises(SinkjaxError, match=r"\(config.score_scale was 1.0, now 0.5\)"):
        sinkjax.sweep(other, x, edits, probe=probe, lengths=LENGTHS, out=tmp_path / "toy.zarr", progress=False)
