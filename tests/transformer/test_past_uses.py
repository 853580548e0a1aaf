"""A past with every kind of position, normaliser, learned key and attention; under edits, gradients, caches and in sweeps."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import Config, Probe, SinkjaxError, SinkPrefix
from sinkjax.checkpoints.model import Model
from sinkjax.model import positions
from sinkjax.model.attention_bias import KeyBias, KeyValueBias, SinkToken, ValueBias
from sinkjax.model.config import NoPosition, RMSNorm
from sinkjax.model.normalisers import NAMED
from sinkjax.model.rotary import Rope
from tests.model.variants import draw
from tests.sweeps.cases import model_of
from tests.transformer.pasts import FRONT, TEXT, compare, in_front

BASE = Config(
    layers=3, width=12, heads=4, kv_heads=2, head_dim=6, mlp_width=10, vocab_size=41, context=24, norm=RMSNorm(1e-5),
    position=Rope(100.0), activation="silu", tied=False,
)  # fmt: skip
PLACES = [
    NoPosition(), positions.Learned(), positions.Learned(offset=2), positions.Sinusoidal(), positions.Alibi(),
    positions.PowerAlibi(rounded=True), positions.RelativeBias(4, 6), positions.BucketIndex(4, 6),
]  # fmt: skip
LEARNED = [KeyBias(), KeyBias(value="ones"), KeyValueBias(), ValueBias(), SinkToken()]


def model(dtype: str = "float64", **changes: Any) -> Model:
    """A small random model."""
    config = dataclasses.replace(BASE, **changes)
    return model_of(config, draw(config), dtype)


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("position", PLACES, ids=str)
def test_every_kind_of_position(position: Any) -> None:
    compare(model(position=position), FRONT)


@pytest.mark.parametrize("name", ["sink-logit", "relu-index", "relu-count", "softmax-p", "elu-kernel-sum"])
def test_every_kind_of_normaliser(name: str) -> None:
    compare(model(normaliser=NAMED[name]), FRONT)


@pytest.mark.parametrize("bias", LEARNED, ids=str)
def test_a_learned_key_stays_in_front_of_it(bias: Any) -> None:
    compare(model(kv_bias=bias, position=positions.Alibi() if isinstance(bias, KeyBias | SinkToken) else Rope(100.0)), FRONT)


def test_a_window_counts_it_and_may_lose_it() -> None:
    windowed = model(windows=(4, None, 2))
    compare(windowed, FRONT)
    probe = Probe(attention_received_past=True, attention=True)
    record = sinkjax.forward(windowed, TEXT, probe=probe, past=sinkjax.sink_prefix(windowed, 7)).record
    np.testing.assert_allclose(np.asarray(record["attention"])[:, 2, :, 1:].sum(axis=-1), 1, atol=1e-12)  # two keys: none is it


def test_edits_count_the_positions_of_the_text() -> None:
    def edits(P: int) -> Any:
        return sinkjax.compose(
            sinkjax.swap_embeddings(P, P + 2),
            sinkjax.mask_key(P, layers=1),
            sinkjax.add_logit(P + 2, 3.0),
            sinkjax.set_residual(P + 1, 0.5, layers=1),
            sinkjax.edit("position", "shift", 2, queries=P + 3, layers=0),
            sinkjax.edit("position", "set", P + 1, keys=P + 4),
            sinkjax.edit("value", "scale", 0.0, keys=P + 5),
            sinkjax.scale_head_output(P + 1, 0.5),
        )

    compare(model(), FRONT, edits(0), edits(len(FRONT)))


def test_long_prompts_in_groups_of_queries() -> None:
    long = model(context=600)
    tokens = np.random.default_rng(0).integers(0, 41, (1, 530))
    found = sinkjax.forward(long, tokens, past=sinkjax.sink_prefix(long, FRONT)).logits
    want = sinkjax.forward(long, in_front(tokens, FRONT)).logits[:, len(FRONT) :]
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-10)


@pytest.mark.parametrize("changes", [{}, {"windows": (4, None, 2)}, {"position": positions.Alibi()}], ids=str)
def test_pallas_agrees(changes: dict) -> None:
    small = model("float32", **changes)
    probe = Probe(attention_received=True, attention_received_past=True, attention_received_bias=True)
    prefix = sinkjax.sink_prefix(small, FRONT)
    edit = sinkjax.mask_key(0, layers=1)
    runs = [
        sinkjax.forward(small, TEXT, edits=edit, probe=probe, past=prefix, attention_impl=name) for name in ("sinkjax", "pallas")
    ]
    np.testing.assert_allclose(runs[0].logits, runs[1].logits, rtol=0, atol=1e-5)
    for name in probe.dims():
        np.testing.assert_allclose(runs[0].record[name], runs[1].record[name], rtol=0, atol=1e-5, err_msg=name)


def test_gradients_reach_the_parameters_and_the_prefix() -> None:
    small = model()
    prefix = sinkjax.sink_prefix(small, 7)

    def loss(params: Any, prefix: SinkPrefix) -> jax.Array:
        return (sinkjax.forward(params, TEXT, small.config, past=prefix).logits ** 2).mean()

    def whole(params: Any) -> jax.Array:
        return (sinkjax.forward(params, in_front(TEXT, (7,)), small.config).logits[:, 1:] ** 2).mean()

    def recomputed(params: Any) -> jax.Array:
        return loss(params, sinkjax.sink_prefix(Model(small.config, params, None, {}), 7))

    for one, other in zip(*(jax.tree.leaves(jax.grad(f)(small.params)) for f in (recomputed, whole)), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
    slopes = jax.grad(loss, argnums=1)(small.params, prefix)
    up, down = (loss(small.params, prefix.replace(keys=prefix.keys.at[1, 0, 0, 2].add(step))) for step in (1e-6, -1e-6))
    np.testing.assert_allclose(slopes.keys[1, 0, 0, 2], (up - down) / 2e-6, rtol=1e-5)


def test_generate_with_it_and_its_token_in_front() -> None:
    small, prompt = model(), TEXT[0, :5].tolist()
    prefix = sinkjax.sink_prefix(small, FRONT)
    found = sinkjax.generate(small, prompt, sinkjax.add_logit(0, 2.0), 8, past=prefix)
    assert found == sinkjax.generate(small, [*FRONT, *prompt], sinkjax.add_logit(2, 2.0), 8)


@pytest.mark.parametrize("changes", [{}, {"windows": (4, None, 6)}], ids=str)
def test_evaluate_with_it_and_its_token_in_front(changes: dict) -> None:
    small = model(**changes)
    prefix = sinkjax.sink_prefix(small, 7)
    tokens = np.random.default_rng(0).integers(0, 41, (2, 20))
    for kept, also in ((None, None), (sinkjax.Streaming(0, 5), sinkjax.Streaming(1, 5))):
        found = sinkjax.evaluate(small, tokens, cache=kept, past=prefix)
        want = sinkjax.evaluate(small, in_front(tokens, (7,)), cache=also)
        np.testing.assert_allclose(found.nll, want.nll[:, 1:], rtol=0, atol=1e-10)


def test_a_bos_in_it_is_not_added_to_the_text_again() -> None:
    model, text = sinkjax.load("mini-softmax"), "They sent for Ness at half past two."
    bos, ids = model.tokenizer.bos, model.tokenizer.encode(text)
    past = sinkjax.sink_prefix(model, (5, bos))
    want = sinkjax.evaluate(model, np.array([ids]), past=past)
    np.testing.assert_array_equal(sinkjax.evaluate(model, text, past=past).nll, want.nll)
    made = model.tokenizer.decode(ids + sinkjax.generate(model, ids, (), 3, past=past))
    assert text + sinkjax.generate(model, text, max_new_tokens=3, past=past) == made
    for call in (sinkjax.evaluate, sinkjax.generate):
        with pytest.raises(SinkjaxError, match=f"past already has the BOS token {bos}"):
            call(model, text, past=past, bos="model")


def test_it_is_not_rounded_but_the_text_is() -> None:
    small = model()
    tokens = np.random.default_rng(0).integers(0, 41, (2, 20))
    found = sinkjax.evaluate(small, tokens, activations=8, kv=4, past=sinkjax.sink_prefix(small, 7)).nll
    want = sinkjax.evaluate(small, in_front(tokens, (7,)), activations=8, kv=4, keep=(0,)).nll[:, 1:]
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-10)


def test_a_sweep_shares_its_blocks_with_it(tmp_path: Path) -> None:
    small = model()
    prefix = sinkjax.sink_prefix(small, FRONT)
    lengths = [9, 6]
    probe = Probe(attention_received=True, attention_received_past=True, nll=True)
    edits = [sinkjax.compose(), *(sinkjax.mask_key(0, layers=layer) for layer in range(3)), sinkjax.swap_embeddings(2, 4)]
    swept = sinkjax.sweep(small, TEXT, edits, probe, lengths, out=tmp_path / "a.zarr", past=prefix, progress=False)
    for number, edit in enumerate(edits):
        record = sinkjax.forward(small, TEXT, edits=edit, probe=probe, lengths=lengths, past=prefix).record
        for name in probe.dims():
            np.testing.assert_allclose(
                swept[name].values[number], record[name], rtol=0, atol=1e-12, err_msg=f"{name} {edit.label}"
            )
    assert swept.attrs["sweep"]["past"] == {"positions": 2, "sha256": prefix.digest()}
    again = sinkjax.sweep(small, TEXT, edits, probe, lengths, out=tmp_path / "a.zarr", past=prefix, progress=False)
    np.testing.assert_array_equal(again["nll"], swept["nll"])
    for other in (sinkjax.sink_prefix(small, (7, 4)), None):
        with pytest.raises(SinkjaxError, match="past"):
            sinkjax.sweep(small, TEXT, edits, probe, lengths, out=tmp_path / "a.zarr", past=other, progress=False)


def test_a_flipped_bit_anywhere_in_its_file_is_refused(tmp_path: Path) -> None:
    prefix, path = sinkjax.sink_prefix(model(), FRONT), tmp_path / "prefix.safetensors"
    prefix.save(path)
    again = sinkjax.load_prefix(path)
    np.testing.assert_array_equal(again.keys, prefix.keys)
    assert (again.tokens, again.model) == (prefix.tokens, prefix.model)
    raw = path.read_bytes()
    for place in (*range(0, 700, 7), *range(700, len(raw), 61)):
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 1 << place % 8]) + raw[place + 1 :])
        with pytest.raises(SinkjaxError):
            sinkjax.load_prefix(path)


USES = {
    "forward": lambda other, past: sinkjax.forward(other, TEXT, past=past),
    "parameters": lambda other, past: sinkjax.forward(other.params, TEXT, other.config, past=past),
    "sweep": lambda other, past: sinkjax.sweep(other, TEXT, [sinkjax.mask_key(0)], past=past, progress=False),
    "evaluate": lambda other, past: sinkjax.evaluate(other, TEXT, past=past),
    "generate": lambda other, past: sinkjax.generate(other, [3, 4], max_new_tokens=2, past=past),
}


@pytest.mark.parametrize("use", USES)
def test_the_prefix_of_another_model_of_the_same_shape_is_refused(use: str, tmp_path: Path) -> None:
    """Of other weights, and of the same weights under another config."""
    small = model()
    sinkjax.sink_prefix(small, 7).save(tmp_path / "prefix.safetensors")
    past = sinkjax.load_prefix(tmp_path / "prefix.safetensors")
    moved = {**small.params, "embed": small.params["embed"].at[0, 0].add(1e-9)}
    others = Model(small.config, moved, None, {"name": "moved"}), dataclasses.replace(small, config=_with(position=Rope(500.0)))
    for other in others:
        with pytest.raises(SinkjaxError, match=r"was made with .* in float64 .*, and this is .* in float64"):
            USES[use](other, past)
    USES[use](small, past)
    USES[use](dataclasses.replace(small, config=_with(context=32)), past)  # the context changes no number


def _with(**changes: Any) -> Config:
    return dataclasses.replace(BASE, **changes)
