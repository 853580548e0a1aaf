"""`evaluate`: off, it is the forward; on, it is a loop in numpy, and the cache policies that papers describe."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import H2O, Config, KeyNorm, Probe, SnapKV, Streaming, evaluation
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import NoPosition
from sinkjax.model.experts import Experts
from sinkjax.model.normalisers import NAMED
from sinkjax.model.norms import AfterRotation, RMSNorm
from sinkjax.model.positions import PowerAlibi
from sinkjax.model.quantisation import Quantisation
from sinkjax.model.rotary import QueryGrowth, Rope
from tests.model import oracle
from tests.model.prose import PASSAGES
from tests.model.test_quantisation import steps_of
from tests.model.variants import draw
from tests.study.tiny import write_model

IDS = np.random.default_rng(0).integers(23, size=(3, 40))
TEXTS = ["the key and the lock of it", "half past two"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> sinkjax.Model:
    return sinkjax.load(write_model(tmp_path_factory.mktemp("model")))


def of(config: Config) -> sinkjax.Model:
    return sinkjax.Model(config, draw(config), None, {"name": "drawn", "dtype": "float64"})


def test_with_all_off_it_is_the_forward_bit_for_bit(model) -> None:
    tokens, lengths = sinkjax.encode(model, TEXTS, length=40)
    length = int(lengths.max())
    edits = sinkjax.mask_key(0)
    want = sinkjax.forward(model.params, tokens[:, :length], model.config, edits, Probe(nll=True), lengths, logits=False).record[
        "nll"
    ]
    found = sinkjax.evaluate(model, TEXTS, edits=edits)
    assert np.array_equal(found.nll, np.asarray(want), equal_nan=True)
    assert found.tokens == lengths.sum() - 2
    assert found.loss == pytest.approx(np.nanmean(want), rel=1e-6)
    assert found.perplexity == pytest.approx(np.exp(found.loss))
    assert found.by_text() == pytest.approx(np.nanmean(want, axis=1), rel=1e-6)


@pytest.mark.parametrize(
    "options",
    [{}, {"weights": 4, "activations": 6, "scale": "token"}, {"cache": Streaming(1, 5)}, {"edits": sinkjax.mask_key(0)}],
    ids=["plain", "bits", "cache", "edit"],
)
def test_the_scores_of_last_tokens_are_those_of_the_loss(model, options: dict[str, Any]) -> None:
    rows = [[0, *model.tokenizer.encode(text)] for text in (*TEXTS, TEXTS[0][:9])]
    counts = [5, 3, 1]
    bits = {name: options[name] for name in ("weights", "activations", "scale") if name in options}
    used = evaluation.InUse(model, Quantisation(**bits), cache=options.get("cache"), edits=options.get("edits", ()))
    for row, count, (total, greedy) in zip(rows, counts, used.scores(rows, counts, most=2), strict=True):
        nll = sinkjax.evaluate(model, [row], **options).nll[0]
        assert total == pytest.approx(-nll[len(row) - 1 - count : len(row) - 1].sum(), rel=1e-5)
        others = [sinkjax.evaluate(model, [[*row[:-1], token]], **options).nll[0, len(row) - 2] for token in range(1, 257, 9)]
        assert not (greedy and min(others) < nll[len(row) - 2])


def test_greedy_continuations_are_greedy(model) -> None:
    start = [0, *model.tokenizer.encode(TEXTS[1])]
    new = sinkjax.generate(model, start, max_new_tokens=4)
    other = [*new[:3], (new[3] + 1) % 257]
    used = evaluation.InUse(model, Quantisation())
    found = used.scores([[*start, *new], [*start, *other], [*start, *new]], [4, 4, 1])
    assert [greedy for _, greedy in found] == [True, False, True]


def test_a_long_text_is_cut_into_pieces_behind_a_bos(model, monkeypatch) -> None:
    monkeypatch.setattr(evaluation, "TOKENS", 24)  # so that there are several calls
    ids = model.tokenizer.encode(TEXTS[0])
    bos, size = model.tokenizer.bos, 8
    pieces = [[bos, *ids[begin : begin + size - 1]] for begin in range(0, len(ids), size - 1)]
    found = sinkjax.evaluate(model, TEXTS[0], length=size)
    assert len(pieces) > 3
    for row, piece in zip(found.nll, pieces, strict=True):
        alone = sinkjax.forward(model.params, np.array([piece]), model.config, probe=Probe(nll=True)).record["nll"]
        assert row[: len(piece) - 1] == pytest.approx(np.asarray(alone)[0, :-1], abs=1e-5)
        assert np.isnan(row[len(piece) - 1 :]).all()
    assert found.by_text() == pytest.approx([found.loss])


@pytest.mark.parametrize("cache", [Streaming(4, 36), H2O(40), KeyNorm(40), SnapKV(40)], ids=str)
def test_a_cache_that_holds_the_text_is_none(model, cache: Any) -> None:
    """Under an edit too, in texts of several lengths."""
    edits = sinkjax.drop_mlp(1, layers=0)
    ways = [sinkjax.evaluate(model, TEXTS, edits=edits, cache=each) for each in (None, cache)]
    assert np.array_equal(np.isnan(ways[0].nll), np.isnan(ways[1].nll))
    assert np.nanmax(np.abs(ways[0].nll - ways[1].nll)) < 1e-5
    assert np.nanmax(np.abs(ways[0].nll - sinkjax.evaluate(model, TEXTS).nll)) > 1e-4


def test_a_text_may_be_longer_than_the_context_where_keys_are_evicted(model) -> None:
    ids = np.tile(IDS[:1], (1, 10))
    assert ids.shape[1] > model.config.context
    found = sinkjax.evaluate(model, ids, cache=Streaming(2, 14))
    assert found.tokens == 399
    assert np.isfinite(found.loss)
    again = sinkjax.evaluate(model, ids[:, :130], cache=Streaming(2, 14))
    assert again.nll[0, :129] == pytest.approx(found.nll[0, :129], abs=1e-6)


def test_memory_with_a_cache_does_not_grow_with_the_text(model) -> None:
    """What a call keeps from the one before has the same size, however long the text."""
    sizes = []

    def noting(*args: Any, **options: Any) -> Any:
        nll, kept = streamed(*args, **options)
        sizes.append(sum(leaf.nbytes for leaf in jax.tree.leaves(kept)))
        return nll, kept

    streamed = evaluation.stream
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "stream", noting)
        sinkjax.evaluate(model, np.tile(IDS[:1], (1, 10)), cache=Streaming(2, 14))
    assert len(sizes) == 4
    assert {*sizes} == {model.config.layers * 2 * 16 * model.config.kv_heads * model.config.head_dim * 4}


@pytest.mark.parametrize("experts", [None, Experts(3, 2)], ids=["mlp", "experts"])
def test_few_bits_are_a_loop_in_numpy(tiny_config, experts: Experts | None) -> None:
    """Each product of a matrix takes rounded vectors, each score and mixture rounded keys and values; a router reads as it is."""
    config = replace(tiny_config, layers=2, position=NoPosition(), experts=experts)

    def vector(x: np.ndarray) -> np.ndarray:
        return steps_of(x, 5, (-1,))

    def matrix(w: np.ndarray, inputs: int) -> np.ndarray:
        flat = w.reshape(int(np.prod(w.shape[:inputs])), -1)
        return steps_of(flat, 4, (0,)).reshape(w.shape)

    def mlp(read: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
        x = vector(read)
        return vector(oracle.ACTIVATION["silu"](x @ matrix(gate, 1)) * (x @ matrix(up, 1))) @ matrix(down, 1)

    def mixture(read: np.ndarray, w: dict[str, Any]) -> np.ndarray:
        out = np.zeros_like(read)
        for row, logits in enumerate(read @ w["router"]):
            best = np.argsort(-logits)[: experts.active]
            shares = np.exp(logits[best]) / np.exp(logits[best]).sum()
            for expert, share in zip(best, shares, strict=True):
                out[row] += share * mlp(read[row : row + 1], w["gate"][expert], w["up"][expert], w["down"][expert])[0]
        return out

    with jax.enable_x64(True):
        params = draw(config)
        ids = IDS[0, :9]
        h = params["embed"][ids]
        for layer in range(config.layers):
            w = {name: leaf[layer] for name, leaf in params["layers"].items()}
            w |= {name: matrix(w[name], 2 if name == "o" else 1) for name in "qkvo"}
            x, heads = vector(oracle.norm(h, w["attn_norm"], config)), np.zeros((len(h), config.heads, config.head_dim))
            for head in range(config.heads):
                q = x @ w["q"][:, head]
                k, v = (steps_of(x @ w[name][:, head // config.group], 3, (-1,)) for name in "kv")
                for i in range(len(h)):
                    powers = np.exp(k[: i + 1] @ q[i] * config.scale)
                    heads[i, head] = powers / powers.sum() @ v[: i + 1]
            h = h + vector(heads.reshape(len(h), -1)) @ w["o"].reshape(-1, config.width)
            read = oracle.norm(h, w["mlp_norm"], config)
            h = h + (mlp(read, w["gate"], w["up"], w["down"]) if experts is None else mixture(read, w))
        logits = oracle.norm(h, params["final_norm"], config) @ params["unembed"]
        want = np.log(np.exp(logits).sum(-1))[:-1] - logits[np.arange(len(ids) - 1), ids[1:]]
        found = sinkjax.evaluate(of(config), ids[None], weights=4, activations=5, kv=3, scale="token")
        assert found.nll[0, :-1] == pytest.approx(want, abs=1e-9)


@pytest.mark.parametrize("scale", ["tensor", "channel", "token"])
def test_padding_changes_no_bit(model, monkeypatch, scale: str) -> None:
    """In the last block of a streamed text, too."""
    found = []
    for pad in (evaluation.PAD, 7):
        monkeypatch.setattr(evaluation, "PAD", pad)
        found.append(sinkjax.evaluate(model, TEXTS, activations=4, kv=4, scale=scale, cache=Streaming(2, 14)).nll)
    assert np.array_equal(*found, equal_nan=True)


def test_bits_and_a_cache_go_together(model) -> None:
    """Where the cache holds the text and tokens have scales of their own, all bits but those of keys are rounded alike."""
    ways = [
        sinkjax.evaluate(model, IDS, weights=4, activations=6, scale="token", cache=cache).nll
        for cache in (None, Streaming(2, 60), H2O(64))
    ]
    assert all(np.nanmax(np.abs(ways[0] - each)) < 0.05 for each in ways[1:])  # a number near half a step may go either way
    assert np.nanmax(np.abs(sinkjax.evaluate(model, IDS, kv=2, scale="token", cache=H2O(8)).nll - ways[0])) > 0.01


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"prefix": 3}, "a prefix"),
        ({"normaliser": NAMED["mlp-kernel-max"]}, r"Divided\(.*\) of rotated queries"),
        ({"position": PowerAlibi(rounded=True)}, "position biases that are rounded"),
        ({"qk_norm": AfterRotation(RMSNorm(1e-5))}, "a norm after the rotation"),
        ({"position": Rope(100.0, growth=QueryGrowth(0.1, 4))}, "queries that grow"),
    ],
    ids=str,
)
def test_a_model_that_cannot_be_streamed_says_so(tiny_config, changes: dict[str, Any], what: str) -> None:
    with jax.enable_x64(True), pytest.raises(SinkjaxError, match=f"{what} "):
        sinkjax.evaluate(of(replace(tiny_config, **changes)), IDS, cache=Streaming())


def test_four_first_tokens_save_smollm2_where_a_window_alone_collapses(smollm2) -> None:
    """Xiao et al. 2024, Table 1: StreamingLLM is as good as a window that is recomputed for each token, a window alone is not."""
    ids = np.asarray(smollm2.tokenizer.encode(" ".join(PASSAGES)))[None, :320]
    window, few, more = 32, np.arange(64, 159), np.arange(64, 319)
    rows = np.stack([ids[0, i + 1 - window : i + 2] for i in few])
    recomputed = sinkjax.evaluate(smollm2, rows).nll[:, window - 1]
    alone, kept = (sinkjax.evaluate(smollm2, ids, cache=each).nll[0] for each in (Streaming(0, window), Streaming(4, window - 4)))
    lost, harm = kept[few] - recomputed, alone[more] - kept[more]
    assert lost.mean() < 3 * lost.std() / np.sqrt(lost.size)
    assert harm.mean() > 3 * harm.std() / np.sqrt(harm.size)


def test_sinks_that_are_kept_are_found_in_each_piece() -> None:
    """The same as keeping the positions that the metric finds, piece by piece."""
    model = sinkjax.load("mini-softmax")
    ids = np.random.default_rng(0).integers(3, model.config.vocab_size, (3, 24))
    ids[[0, 1], [0, 4]] = model.tokenizer.bos
    record = sinkjax.forward(model, ids, probe=Probe(attention_received=True), logits=False).record
    received = np.asarray(record["attention_received"])
    found = sinkjax.metrics.sink_positions(record)
    assert found.tolist() == [[bool((row[..., key] > 0.3).any()) and key <= 16 for key in range(24)] for row in received]
    assert found[[0, 1], [0, 4]].all()
    assert len({tuple(row) for row in found}) == 3
    kept = sinkjax.evaluate(model, ids, activations=4, kv=4, keep="sinks").nll
    for row, places in enumerate(found):
        alone = sinkjax.evaluate(model, ids[row : row + 1], activations=4, kv=4, keep=np.flatnonzero(places).tolist()).nll
        np.testing.assert_allclose(kept[row : row + 1], alone, rtol=1e-5, atol=1e-5)


def overflowing() -> sinkjax.Model:
    """A model in float16 that overflows behind token 10, though its weights are finite."""
    model = sinkjax.load("mini-softmax", dtype="float16")
    layers = {**model.params["layers"], "down": model.params["layers"]["down"].at[1].multiply(1000)}
    return replace(model, params={**model.params, "embed": model.params["embed"].at[10].set(65504), "layers": layers})


@pytest.mark.parametrize("options", [{}, {"weights": 8}, {"cache": Streaming(2, 4)}, {"cache": H2O(4)}])
def test_a_loss_that_is_not_finite_is_an_error_with_its_count(options: dict[str, Any]) -> None:
    tokens = np.arange(3, 35).reshape(2, 16)  # the first prompt has token 10 at position 7
    with pytest.raises(SinkjaxError, match=r"the loss of \d+ of 30 predicted tokens is not finite.*float32"):
        sinkjax.evaluate(overflowing(), tokens, **options)
    assert sinkjax.evaluate(overflowing(), tokens[1:]).tokens == 15
