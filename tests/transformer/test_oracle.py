"""The whole forward beside a loop in numpy, for every kind of block, MLP, position, window and prefix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import sinkjax
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
