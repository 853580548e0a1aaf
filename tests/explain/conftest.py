"""A tiny model of float64 parameters, for modules that ask for the fixture `x64`."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import pytest

from sinkjax import Config
from sinkjax.checkpoints.model import Model


@pytest.fixture(scope="module")
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def tiny(x64: None, tiny_config: Config, tiny_params: dict) -> Model:
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), tiny_params)
    return Model(tiny_config, params, None, {"kind": "arrays", "name": "tiny"})
