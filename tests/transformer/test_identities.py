"""Two identities that say what masking the first key and isolating a token compute, where only distances count; and where not."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import Capture, Edit, Probe, Site
from sinkjax.model import params
from sinkjax.model.config import Config, NoPosition
from sinkjax.model.positions import Alibi, Learned, RelativeBias, Sinusoidal
from sinkjax.model.rotary import Rope

RELATIVE: tuple[dict[str, Any], ...] = (
    {"position": Rope(10_000.0)},
    {"position": Rope(10_000.0), "windows": (3, None, 5)},
    {"position": Alibi()},
    {"position": RelativeBias()},
    {"position": NoPosition()},
)
ABSOLUTE: tuple[dict[str, Any], ...] = ({"position": Learned()}, {"position": Sinusoidal()})
TOKENS, PLACE = np.random.default_rng(0).integers(0, 61, (2, 12)), 7
PROBE = Probe(capture=(Capture(Site.RESID, name="states"),))


def states(config: Config, tokens: np.ndarray, edits: Edit | tuple = ()) -> np.ndarray:
    """The residual stream after every block, [prompt, layer, position, dim], in float64."""
    with jax.enable_x64(True):
        leaves, tree = jax.tree.flatten(params.init(config, seed=0))
        noise = np.random.default_rng(1)
        weights = jax.tree.unflatten(tree, [np.float64(leaf) + 0.1 * noise.standard_normal(leaf.shape) for leaf in leaves])
        return np.asarray(sinkjax.forward(weights, tokens, config, edits, PROBE, logits=False).record["states"])


def masked(config: Config) -> float:
    """How far the states with the first key masked in all layers are from those of the text without its first token."""
    return np.abs(states(config, TOKENS, sinkjax.mask_key(0))[:, :, 1:] - states(config, TOKENS[:, 1:])).max()


def isolated(config: Config) -> float:
    """How far the states of a token that sees only itself in all layers are from those of this token alone."""
    alone = states(config, TOKENS[:, [PLACE]])[:, :, 0]
    return np.abs(states(config, TOKENS, sinkjax.attend_self(PLACE))[:, :, PLACE] - alone).max()


@pytest.mark.parametrize("changes", RELATIVE, ids=str)
@pytest.mark.parametrize("apart", [masked, isolated])
def test_where_only_distances_count_an_edit_gives_a_shorter_text(apart, changes, tiny_config):
    assert apart(dataclasses.replace(tiny_config, **changes)) < 1e-12


@pytest.mark.parametrize("changes", ABSOLUTE, ids=str)
@pytest.mark.parametrize("apart", [masked, isolated])
def test_where_places_count_it_does_not(apart, changes, tiny_config):
    assert apart(dataclasses.replace(tiny_config, **changes)) > 1e-3


def test_a_first_key_that_is_masked_in_some_layers_only_is_still_seen(tiny_config):
    some = states(tiny_config, TOKENS, sinkjax.mask_key(0, layers=(1, 2)))[:, :, 1:]
    assert np.abs(some - states(tiny_config, TOKENS[:, 1:])).max() > 1e-3
