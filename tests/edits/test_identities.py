"""Two interventions that algebra forces, in float64: a first key that is hidden everywhere, and a token that sees only itself.

With relative positions, key 0 masked in all layers leaves the later tokens as in the text without its first token, and a token
isolated in all layers is that token alone. Neither is a finding about a model, and neither holds where positions are absolute.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax.model import params
from sinkjax.model.attention_bias import KeyValueBias
from sinkjax.model.config import Config, NoPosition
from sinkjax.model.normalisers import NAMED
from sinkjax.model.norms import RMSNorm
from sinkjax.model.positions import Alibi, Learned, RelativeBias, Sinusoidal
from sinkjax.model.rotary import LayerRopes, Rope, YarnScaling

T, P = 14, 6
RELATIVE = {
    "none": {"position": NoPosition()},
    "rope": {},
    "rope of some dims": {"position": Rope(10_000.0, dims=4)},
    "rope, yarn": {"position": Rope(10_000.0, YarnScaling(4.0, 8))},
    "rope of some layers": {"position": LayerRopes((Rope(10_000.0), Rope(500.0)), (0, None, 1))},
    "alibi": {"position": Alibi()},
    "relative bias": {"position": RelativeBias()},
    "window": {"windows": (3, None, 5)},
    "parallel, qk-norm": {"norm_place": "parallel-shared", "qk_norm": RMSNorm(1e-5)},
    "sigmoid": {"normaliser": NAMED["sigmoid"]},
}
ABSOLUTE = {
    "learned": {"position": Learned()},
    "sinusoidal": {"position": Sinusoidal()},
    "rope with a key that is not rotated": {"kv_bias": KeyValueBias()},
}


@pytest.fixture(scope="module", autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def states(config: Config, tokens: np.ndarray, *edits: sinkjax.Edit) -> np.ndarray:
    """The residual stream after each block: [prompt, layer, position, d]."""
    drawn, treedef = jax.tree.flatten(params.init(config, seed=0))
    noise = np.random.default_rng(0)
    weights = jax.tree.unflatten(treedef, [jnp.asarray(leaf + 0.1 * noise.standard_normal(leaf.shape)) for leaf in drawn])
    probe = sinkjax.Probe(capture=(sinkjax.Capture(sinkjax.Site.RESID, name="h"),))
    return np.asarray(sinkjax.forward(weights, tokens, config, edits=edits, probe=probe, logits=False).record["h"])


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """The largest difference, over the largest number."""
    assert one.dtype == np.float64
    return float(np.abs(one - other).max() / np.abs(one).max())


def broken(config: Config, tokens: np.ndarray, layers: object = None) -> tuple[float, float]:
    """How far a masked key 0 is from the text without its first token, and an isolated token from itself alone."""
    plain = states(config, tokens)
    mask = states(config, tokens, sinkjax.mask_key(0, layers=layers))[:, :, 1:]
    alone = states(config, tokens, sinkjax.attend_self(P, layers=layers))[:, :, P]
    assert min(apart(plain[:, :, 1:], mask), apart(plain[:, :, P], alone)) > 1e-4  # both do something
    return apart(mask, states(config, tokens[:, 1:])), apart(alone, states(config, tokens[:, P : P + 1])[:, :, 0])


@pytest.fixture(scope="module")
def tokens(tiny_config: Config) -> np.ndarray:
    return np.random.default_rng(1).integers(0, tiny_config.vocab_size, (2, T))


@pytest.mark.parametrize("name", RELATIVE)
def test_both_hold_with_relative_positions_and_any_window(tiny_config, tokens, name):
    assert max(broken(dataclasses.replace(tiny_config, **RELATIVE[name]), tokens)) < 1e-12


@pytest.mark.parametrize("name", ABSOLUTE)
def test_neither_holds_where_positions_are_absolute(tiny_config, tokens, name):
    assert min(broken(dataclasses.replace(tiny_config, **ABSOLUTE[name]), tokens)) > 1e-3


def test_neither_holds_where_a_layer_is_left_out(tiny_config, tokens):
    assert min(broken(tiny_config, tokens, layers=[1, 2])) > 1e-4
