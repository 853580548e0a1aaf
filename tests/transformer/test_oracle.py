"""The whole forward beside a loop in numpy, for every kind of block, MLP, position, window and prefix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import Capture, Probe, Site
from sinkjax.model.config import NoPosition
from sinkjax.model.positions import Alibi, BucketIndex, Learned, RelativeBias, Sinusoidal
from sinkjax.model.rotary import Rope
from tests.model import oracle
from tests.model.variants import draw

LENGTHS = (24, 17, 3)  # the last prompt ends within the prefix
TOKENS = np.random.default_rng(0).integers(61, size=(3, 24))
POSITIONS = (Rope(500.0), NoPosition(), Sinusoidal(), Learned(), Alibi(), RelativeBias(8, 20), BucketIndex(8, 20))
CASES: list[dict[str, Any]] = [
    *({"activation": name, "mlp_bias": name == "gelu"} for name in ("silu", "gelu", "gelu_tanh", "relu")),
    *({"activation": name, "gated_mlp": False} for name in ("silu", "gelu", "gelu_tanh", "relu")),
    {"norm_place": "post"},
    {"norm_place": "sandwich"},
    {"summed_heads": True},
    {"summed_heads": True, "norm_place": "post", "gated_mlp": False, "activation": "relu", "position": Learned()},
    *({"position": position} for position in POSITIONS),
    {"windows": (None, 4, 1)},
    *({"prefix": 5, **more} for more in ({}, {"windows": (2, None, 3)}, {"position": Alibi()})),
]


@pytest.mark.parametrize("changes", CASES, ids=str)
def test_every_kind_of_model_gives_what_a_loop_gives(tiny_config, changes: dict) -> None:
    config = replace(tiny_config, **changes)
    weights = draw(config)
    with jax.enable_x64(True):
        found = sinkjax.forward(weights, TOKENS, config, lengths=np.array(LENGTHS)).logits
    for prompt, length in enumerate(LENGTHS):
        want = oracle.logits(weights, TOKENS[prompt, :length], config)
        np.testing.assert_allclose(found[prompt, :length], want, rtol=1e-9, atol=1e-9)


def test_sites_are_what_is_added_and_what_the_next_block_gets(tiny_config) -> None:
    """Of a sandwich, ATTN_OUT and MLP_OUT add up to RESID; after a norm behind the sum, RESID has the norm of its gain."""
    probe = Probe(capture=tuple(Capture(site) for site in (Site.ATTN_OUT, Site.MLP_OUT, Site.RESID, Site.EMBED)))
    sandwich, post = replace(tiny_config, norm_place="sandwich"), replace(tiny_config, norm_place="post")
    with jax.enable_x64(True):
        record = sinkjax.forward(draw(sandwich), TOKENS[:1], sandwich, (), probe).record
        np.testing.assert_allclose(
            np.cumsum(record["attn_out"] + record["mlp_out"], axis=1) + np.asarray(record["embed"])[:, None],
            record["resid"],
            rtol=1e-9,
            atol=1e-9,
        )
        scaled = sinkjax.edit("mlp_out", "scale", 3.0, layers=2)
        assert (sinkjax.forward(draw(sandwich), TOKENS[:1], sandwich, scaled).logits != 0).all()
        dropped = sinkjax.forward(draw(sandwich), TOKENS[:1], sandwich, sinkjax.drop_mlp(4), probe).record
        assert not np.asarray(dropped["mlp_out"])[:, :, 4].any()
        gains = draw(post)["layers"]["mlp_norm"]
        normed = np.asarray(sinkjax.forward(draw(post), TOKENS[:1], post, (), probe).record["resid"])[0] / gains[:, None]
        np.testing.assert_allclose(np.mean(normed**2, axis=-1), 1, rtol=1e-3)
