"""What gu/sink-rate measures: kinds of input, thresholds, and the share of heads that sink on a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import metrics
from sinkjax.experiments.gu.config import SinkRate

KINDS = {"text": "natural text", "random": "random tokens", "repeat": "one token repeated"}


def thresholds(config: SinkRate) -> tuple[float, ...]:
    """Every eps, the main one first."""
    return (config.eps, *config.other_eps)


def measure(eps: float) -> str:
    """The name of the first key's sink rate at one threshold."""
    return f"heads that sink on key 0, eps {eps:g} (%)"


def rates(data: Any, keys: Sequence[int], eps: float) -> NDArray:
    """Per cent of heads that sink on each of some keys: float[..., prompt, key]."""
    return 100 * np.stack([metrics.sink_rate(data, key, eps) for key in keys], axis=-1)
