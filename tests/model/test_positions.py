"""Positions that are not rotary, beside loops in numpy and beside transformers (ALiBi of Bloom, buckets of T5)."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax import Capture, Probe, SinkjaxError, Site
from sinkjax.checkpoints.model import Model
from sinkjax.model import params
from sinkjax.model.attention_bias import SinkToken
from sinkjax.model.config import NoPosition
from sinkjax.model.normalisers import NAMED
from sinkjax.model.positions import Alibi, BucketIndex, Learned, RelativeBias, Sinusoidal
from sinkjax.model.rotary import Rope
from tests.model import oracle
from tests.model.variants import bare, draw

TOKENS = np.random.default_rng(0).integers(61, size=(2, 24))
KINDS = [Rope(500.0), NoPosition(), Sinusoidal(), Learned(), Alibi(), RelativeBias(8, 20), BucketIndex(8, 20)]


@pytest.mark.parametrize("position", KINDS, ids=str)
def test_every_kind_gives_what_a_loop_gives(tiny_config, position) -> None:
    config = replace(tiny_config, position=position)
    weights = draw(config)
    with jax.enable_x64(True):
        out = sinkjax.forward(weights, TOKENS, config, lengths=[24, 17])
    for prompt, length in enumerate((24, 17)):
        want = oracle.logits(weights, TOKENS[prompt, :length], config)
        np.testing.assert_allclose(out.logits[prompt, :length], want, rtol=1e-9, atol=1e-9)


def test_blocks_of_queries_give_the_numbers_of_one_block(tiny_config, monkeypatch) -> None:
    config = replace(tiny_config, position=RelativeBias(8, 20))
    weights = draw(config)
    with jax.enable_x64(True):
        whole = sinkjax.forward(weights, TOKENS, config).logits
        monkeypatch.setattr("sinkjax.transformer.attention.QUERY_TILE", 7)
        jax.clear_caches()
        blocked = sinkjax.forward(weights, TOKENS, config).logits
        jax.clear_caches()
    np.testing.assert_allclose(blocked, whole, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("heads", [1, 2, 8, 16])
def test_alibi_is_that_of_bloom(heads: int) -> None:
    """Bloom adds slope j to the score of key j, which is the same but for a number for each row."""
    import torch
    from transformers.models.bloom import modeling_bloom as bloom

    want = bloom.build_alibi_tensor(torch.ones(1, 12), heads, torch.float32).reshape(heads, 12)
    found = Alibi().by_distance(12, heads, {})
    np.testing.assert_allclose(found[:, ::-1] - found[:, -1:], want, rtol=1e-6)
    if heads == 8:
        np.testing.assert_array_equal(found[:, 1], -(2.0 ** -np.arange(1, 9)))


def test_buckets_are_those_of_t5_and_of_the_paper() -> None:
    import torch
    from transformers.models.t5 import modeling_t5 as t5

    for buckets, most in ((32, 128), (6, 50)):
        want = t5.T5Attention._relative_position_bucket(-torch.arange(600), False, buckets, most)
        np.testing.assert_array_equal(RelativeBias(buckets, most).numbers(600), want)
    found = BucketIndex().numbers(600)
    for distance in range(600):
        paper = distance if distance < 16 else min(31, 16 + int(16 * np.log(distance / 16) / np.log(8)))
        assert found[distance] == paper


def test_what_is_learned_has_parameters_and_gradients(tiny_config) -> None:
    plain = set(params.abstract(tiny_config)) | set(params.abstract(tiny_config)["layers"])
    for position, name, shape in ((Learned(), "positions", (64, 32)), (RelativeBias(8, 20), "relative_bias", (3, 6, 8))):
        config = replace(tiny_config, position=position)
        weights = params.init(config, seed=0)
        assert set(weights) | set(weights["layers"]) == plain | {name}
        change = jax.grad(lambda p, c=config: sinkjax.forward(p, TOKENS, c).logits.std())(weights)
        leaf = np.asarray((weights | weights["layers"])[name])
        assert leaf.shape == shape
        assert leaf.std() == pytest.approx(32**-0.5, rel=0.2)
        assert np.asarray((change | change["layers"])[name]).any()


def test_embedding_edits_are_of_tokens_and_leave_positions_where_they_are(tiny_config) -> None:
    """Swapped rows are the prompt with those tokens swapped; what enters the first block has the vectors in."""
    config = replace(tiny_config, position=Sinusoidal())
    weights = draw(config)
    probe = Probe(capture=(Capture(Site.EMBED),), resid_norm=True)
    swapped = TOKENS.copy()
    swapped[:, [2, 5]] = swapped[:, [5, 2]]
    with jax.enable_x64(True):
        edited = sinkjax.forward(weights, TOKENS, config, sinkjax.swap_embeddings(2, 5), probe)
        plain = sinkjax.forward(weights, swapped, config, (), probe)
    np.testing.assert_array_equal(edited.logits, plain.logits)
    np.testing.assert_array_equal(plain.record["embed"], weights["embed"][swapped])
    entering = weights["embed"][swapped] + config.position.vectors(24, 32, {})
    np.testing.assert_allclose(plain.record["resid_norm"][:, 0], np.linalg.norm(entering, axis=-1), rtol=1e-12)


@pytest.mark.parametrize("position", [Learned(), RelativeBias(8, 20)], ids=str)
def test_logits_are_final_and_sweeps_are_forwards(tiny_config, position) -> None:
    """A score set to 0 is 0 whatever its position; shared and skipped blocks change nothing."""
    config = replace(tiny_config, position=position)
    weights = jax.tree.map(jnp.asarray, draw(config, "float32"))
    model = Model(config, weights, None, {"kind": "toy"})
    even = sinkjax.edit("logits", "set", 0.0, layers=1)
    edits = [sinkjax.compose(), even, sinkjax.mask_key(0, layers=2), sinkjax.swap_embeddings(1, 3)]
    probe = Probe(attention_received=True, resid_max=True, nll=True)
    stored = sinkjax.sweep(model, TOKENS, edits, probe=probe, progress=False)
    for number, entry in enumerate(edits):
        record = sinkjax.forward(weights, TOKENS, config, entry, probe).record
        for name in ("attention_received", "resid_max", "nll"):
            np.testing.assert_allclose(stored[name][number], record[name], rtol=1e-4, atol=1e-5)
    attention = sinkjax.forward(weights, TOKENS, config, even, Probe(attention=(1,))).record["attention"]
    np.testing.assert_allclose(attention[:, 0, :, 9, :10], 0.1, rtol=1e-6)


def test_positions_that_cannot_be() -> None:
    for make, words in (
        (lambda: bare(position="rope"), "position must be Rope, .*'rope'"),
        (lambda: bare(position=Sinusoidal()), "sinusoidal .*even width, not 7"),
        (lambda: Sinusoidal(0.0), "base of sinusoidal .*above 1, not 0.0"),
        (lambda: RelativeBias(buckets=7), "even .*buckets .* 7 and 128"),
        (lambda: BucketIndex(max_distance=16), "max_distance .* 32 and 16"),
    ):
        with pytest.raises(SinkjaxError, match=words):
            make()
    config = bare(position=Alibi())
    with pytest.raises(SinkjaxError, match=r"POSITION: .*no rotary positions"):
        sinkjax.forward(draw(config, "float32"), np.zeros((1, 3, 7)), config, sinkjax.shift_positions(query=1))


@pytest.mark.parametrize("position", [Alibi(), RelativeBias(8, 20), Learned(), Rope(500.0)], ids=str)
def test_a_sink_token_stands_before_the_first_position(tiny_config, position) -> None:
    """It is what a token in front of the prompt would be, in each kind of positions that knows only distances."""
    config = replace(tiny_config, position=position, kv_bias=SinkToken(), normaliser=NAMED["sigmoid"])
    weights = draw(config)
    token = weights.pop("sink_token")
    longer = replace(config, kv_bias=None, vocab_size=None, tied=False)
    front = weights["embed"][TOKENS[:1, :9]]
    if isinstance(position, Learned):  # its vectors are the tokens' alone
        front = front + weights["positions"][:9]
        longer = replace(longer, position=NoPosition())
    rest = {name: leaf for name, leaf in weights.items() if name not in ("embed", "unembed", "positions")}
    with jax.enable_x64(True):
        found = sinkjax.forward(weights | {"sink_token": token}, TOKENS[:1, :9], config).logits
        want = sinkjax.forward(rest, np.concatenate([token[None, None], front], axis=1), longer).output[:, 1:]
    np.testing.assert_allclose(found, np.asarray(want) @ weights["unembed"], rtol=1e-9, atol=1e-9)
