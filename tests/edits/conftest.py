"""A tiny model in float64, where the arithmetic of an edit can be told from rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import Probe

LENGTHS = np.array([10, 7])


@pytest.fixture(scope="module")
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def tokens(tiny_config) -> np.ndarray:
    """Two prompts, of LENGTHS tokens."""
    return np.random.default_rng(0).integers(0, tiny_config.vocab_size, (2, 10))


@pytest.fixture(scope="module")
def params64(x64: None, tiny_params):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tiny_params)


@pytest.fixture(scope="module")
def run(params64, tiny_config, tokens) -> Callable:
    """`forward` of the tiny model in float64 on both prompts: run(edits, probe)."""

    def run(edits=(), probe: Probe | None = None, lengths: np.ndarray = LENGTHS):
        return sinkjax.forward(params64, tokens, tiny_config, edits, probe or Probe(), lengths)

    return run
