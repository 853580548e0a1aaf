"""MLPs of three matrices and of two, beside a loop in numpy."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import SinkjaxError
from sinkjax.model import params
from tests.model import oracle
from tests.model.variants import bare, draw

TOKENS = np.random.default_rng(0).integers(61, size=(1, 9))


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh", "relu"])
@pytest.mark.parametrize("gated", [True, False], ids=["gated", "plain"])
def test_every_activation_gives_what_a_loop_gives(tiny_config, activation: str, gated: bool) -> None:
    config = replace(tiny_config, layers=1, activation=activation, gated_mlp=gated, mlp_bias=activation == "gelu")
    weights = draw(config)
    with jax.enable_x64(True):
        found = sinkjax.forward(weights, TOKENS, config).logits[0]
    np.testing.assert_allclose(found, oracle.logits(weights, TOKENS[0], config), rtol=1e-9, atol=1e-9)


def test_a_plain_mlp_has_no_gate_and_all_its_sites(tiny_config) -> None:
    plain = replace(tiny_config, gated_mlp=False, mlp_bias=True)
    whole = params.abstract(replace(tiny_config, mlp_bias=True))["layers"]
    assert set(params.abstract(plain)["layers"]) == set(whole) - {"gate", "gate_bias"}
    weights = draw(plain, "float32")
    off = sinkjax.forward(weights, TOKENS, plain, sinkjax.edit("neuron", "set", 0.0)).logits
    nothing = weights | {"layers": weights["layers"] | {"down": 0 * weights["layers"]["down"]}}
    np.testing.assert_array_equal(off, sinkjax.forward(nothing, TOKENS, plain).logits)
    with pytest.raises(SinkjaxError, match=r"gated_mlp=False .*mlp_width is None"):
        bare(gated_mlp=False)
