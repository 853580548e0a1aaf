"""The measures that recipes share: numbers per edit and prompt, from the statistics of a sweep."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax import metrics
from sinkjax.experiments.summary import Measure


def sink_rate(key: int, eps: float) -> Measure:
    """Heads whose sink is `key`, in per cent of all (Gu et al. 2025)."""
    return Measure(f"heads that sink on key {key} (%)", lambda data: 100 * metrics.sink_rate(data, key, eps))


def largest_activation(position: int) -> Measure:
    """Largest |h| at `position` over all depths and dims."""
    return Measure(f"largest |h| at position {position}", lambda data: _largest(data)[..., position])


def largest_elsewhere(position: int) -> Measure:
    """Largest |h| over all depths, dims and positions but one."""
    return Measure(
        f"largest |h| elsewhere than {position}", lambda data: np.nanmax(np.delete(_largest(data), position, -1), axis=-1)
    )


def loss() -> Measure:
    """Mean negative log-likelihood of a prompt's next tokens."""
    return Measure("loss (nats per token)", metrics.mean_nll)


def _largest(data: Any) -> NDArray:
    """Largest |h| over depths: float[edit, prompt, position], NaN beyond a prompt."""
    return np.asarray(data["resid_max"]).max(axis=-2)
