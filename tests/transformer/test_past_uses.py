"""A past with every kind of position, normaliser, learned key and attention; under edits, gradients, caches and in sweeps."""

from __future__ import annotations

import dataclasses
import gc
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import Config, Probe, SinkjaxError, SinkPrefix
from sinkjax.checkpoints.model import Model
from sinkjax.explain.scan import packaged
from sinkjax.model import fingerprint as fingerprints_of
from sinkjax.model import positions
from sinkjax.model.attention_bias import KeyBias, KeyValueBias, SinkToken, ValueBias
from sinkjax.model.config import NoPosition, RMSNorm
from sinkjax.model.fingerprint import fingerprint
from sinkjax.model.normalisers import NAMED
from sinkjax.model.rotary import DynamicScaling, Rope
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


def test_kernels_that_cannot_read_it_are_refused() -> None:
    prefix = sinkjax.sink_prefix(model(), 7)
    with pytest.raises(SinkjaxError, match=r'"fused" .*a past'):
        sinkjax.forward(model(), TEXT, past=prefix, attention_impl="fused")
    sink = model(normaliser=NAMED["sink-logit"])
    with pytest.raises(SinkjaxError, match=r'"pallas" .*a past with'):
        sinkjax.forward(sink, TEXT, past=sinkjax.sink_prefix(sink, 7), attention_impl="pallas")


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
    of_prefix = jax.grad(loss, argnums=1)(small.params, prefix)
    step = 1e-6
    for name in ("keys", "values"):
        array = getattr(prefix, name)
        moved = [loss(small.params, prefix.replace(**{name: array.at[1, 0, 0, 2].add(sign * step)})) for sign in (1, -1)]
        np.testing.assert_allclose(getattr(of_prefix, name)[1, 0, 0, 2], (moved[0] - moved[1]) / (2 * step), rtol=1e-5)


def test_generate_with_it_and_its_token_in_front() -> None:
    small, prompt = model(), TEXT[0, :5].tolist()
    prefix = sinkjax.sink_prefix(small, FRONT)
    found = sinkjax.generate(small, prompt, sinkjax.add_logit(0, 2.0), 8, past=prefix)
    assert found == sinkjax.generate(small, [*FRONT, *prompt], sinkjax.add_logit(2, 2.0), 8)
    with pytest.raises(SinkjaxError, match=r"past of 2 and 23 .* 24"):
        sinkjax.generate(small, prompt, max_new_tokens=18, past=prefix)


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
    model = sinkjax.load("mini-softmax")
    bos, text = model.tokenizer.bos, "They sent for Ness at half past two."
    ids = model.tokenizer.encode(text)
    for front in ((bos,), (5, bos)):
        past = sinkjax.sink_prefix(model, front)
        want = sinkjax.evaluate(model, np.array([ids]), past=past)
        for same in ({}, {"bos": "none"}):
            np.testing.assert_array_equal(sinkjax.evaluate(model, text, past=past, **same).nll, want.nll)
        made = model.tokenizer.decode(ids + sinkjax.generate(model, ids, (), 3, past=past))
        assert text + sinkjax.generate(model, text, max_new_tokens=3, past=past) == made
        for call in (sinkjax.evaluate, sinkjax.generate):
            for asked in ("model", bos):
                with pytest.raises(sinkjax.SinkjaxError, match=f"past already has the BOS token {bos}"):
                    call(model, text, past=past, bos=asked)
            for how in ("auto", "none"):
                with pytest.raises(sinkjax.SinkjaxError, match="begins with the BOS token"):
                    call(model, model.tokenizer.tokens([bos])[0] + text, past=past, bos=how)
    other = sinkjax.sink_prefix(model, 5)
    assert sinkjax.evaluate(model, text, past=other).tokens == len(ids)  # with a BOS, as without a past


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
    edits = [sinkjax.compose(), *(sinkjax.mask_key(0, layers=layer) for layer in range(3)), sinkjax.swap_embeddings(0, 1)]
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


def test_models_that_would_read_it_differently_are_refused() -> None:
    with pytest.raises(SinkjaxError, match="the first 3 positions"):
        sinkjax.sink_prefix(model(prefix=3), 7)
    growing = model(position=Rope(100.0, DynamicScaling(2.0, 8)))
    compare(growing, (7,))
    with pytest.raises(SinkjaxError, match="rotary frequencies change"):
        sinkjax.forward(growing, TEXT, past=sinkjax.sink_prefix(growing, FRONT))
    with pytest.raises(SinkjaxError, match="no vocabulary"):
        sinkjax.sink_prefix(model(vocab_size=None), 7)
    with pytest.raises(SinkjaxError, match="token 41"):
        sinkjax.sink_prefix(model(), 41)
    with pytest.raises(SinkjaxError, match=r"keys of past have shape \(3, 1, 2, 6\)"):
        sinkjax.forward(model(layers=2), TEXT, past=sinkjax.sink_prefix(model(), 7))
    with pytest.raises(SinkjaxError, match=r"past must come from sinkjax.sink_prefix"):
        sinkjax.forward(model(), TEXT, past=np.zeros(3))
    with pytest.raises(SinkjaxError, match=r"past of 1 and 24 positions"):
        sinkjax.forward(model(), np.zeros((1, 24), int), past=sinkjax.sink_prefix(model(), 7))


def test_without_a_token_the_scan_must_find_a_sink() -> None:
    sinking = sinkjax.load("mini-softmax")  # on its BOS, which its own tokenizer does not add
    (token,) = sinkjax.sink_prefix(sinking).tokens
    text, lengths = packaged(sinking, "model")
    scores = sinkjax.scan(sinking, [token, sinking.tokenizer.bos], text, lengths)["score"].mean("sink").values
    assert scores[0] >= scores[1]
    with pytest.raises(SinkjaxError, match="no head"):
        sinkjax.sink_prefix(sinkjax.load("mini-sigmoid"))
    with pytest.raises(SinkjaxError, match="tokenizer"):
        sinkjax.sink_prefix(model())


def test_other_files_are_refused(tmp_path: Path) -> None:
    prefix = sinkjax.sink_prefix(model(), FRONT)
    path = tmp_path / "prefix.safetensors"
    prefix.save(path)
    from safetensors.numpy import load_file, save_file

    arrays = load_file(path)
    about = {"tokens": "[7, 3]", "dims": "[]"}
    for tensors, metadata in (
        (arrays, {}),
        (arrays, about | {"tokens": "[7]"}),
        (arrays, about | {"dims": "[0, 0, 1, 2, 3, 4]"}),
        ({name: array for name, array in arrays.items() if name != "keys.1"}, about),
        ({**arrays, "keys.0": arrays["keys.0"][:, :1]}, about),
    ):
        save_file(tensors, path, metadata)
        with pytest.raises(SinkjaxError, match="is not a sink prefix"):
            sinkjax.load_prefix(path)
    save_file(arrays, path, about)
    with pytest.raises(SinkjaxError, match=r"no checksum and names no model .*sink_prefix\(model, \[7, 3\]\)"):
        sinkjax.load_prefix(path)
    with pytest.raises(SinkjaxError):
        sinkjax.load_prefix(tmp_path / "none.safetensors")


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


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    prefix = sinkjax.sink_prefix(model(), 7)
    broken = prefix.replace(values=prefix.values.at[0, 0, 0, 0].set(np.nan))
    with pytest.raises(SinkjaxError, match="values of past have NaN"):
        broken.save(tmp_path / "prefix.safetensors")
    with pytest.raises(SinkjaxError, match="values of past have NaN"):
        sinkjax.forward(model(), TEXT, past=broken)


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


def test_one_model_is_hashed_once() -> None:
    small = model()
    first = fingerprint(small.params)
    with mock.patch.object(fingerprints_of, "fingerprints", side_effect=AssertionError("hashed again")):
        assert fingerprint(dict(small.params)) == first
        with pytest.raises(AssertionError, match="hashed again"):
            fingerprint({**small.params, "embed": small.params["embed"] + 0})
    before = len(fingerprints_of.KNOWN)
    del small
    gc.collect()
    assert len(fingerprints_of.KNOWN) < before
