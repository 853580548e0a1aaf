"""Positions that are not rotary, beside loops in numpy and beside transformers (ALiBi of Bloom, buckets of T5)."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import Capture, Probe, Site
from sinkjax.model.attention_bias import SinkToken
from sinkjax.model.config import NoPosition
from sinkjax.model.normalisers import NAMED
from sinkjax.model.positions import Alibi, BucketIndex, Learned, RelativeBias, Sinusoidal
from sinkjax.model.rotary import Rope
from tests.model.variants import draw

TOKENS = np.random.default_rng(0).integers(61, size=(2, 24))


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
