"""The measures that studies share: numbers for each condition and prompt, from the statistics of a sweep."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import metrics
from sinkjax.studies.study import Measure

if TYPE_CHECKING:
    import xarray


def sink_rate(key: int, eps: float) -> Measure:
    """Heads whose sink is `key`, in per cent of all (Gu et al. 2025).

    Args:
        key: The position of the key, from 0.
        eps: The attention that it must receive on average, in 0..1.

    Returns:
        The measure; the probe must ask for `attention_received`.
    """
    return Measure(
        f"heads that sink on key {key} (%)",
        partial(_sink_rate, key=key, eps=eps),
        unit="percentage points",
        note=sink_note(eps),
    )


def sink_note(eps: float) -> str:
    """The definition of a head that sinks.

    Args:
        eps: See `sink_rate`.

    Returns:
        A note for a page.
    """
    return (
        f"A head sinks on a key if its attention to it, averaged over all queries that see the key, is above {eps:g} (Gu et al."
        " 2025). Shares are of all heads of all layers."
    )


def largest_activation(position: int) -> Measure:
    """Largest |h| at `position` over all depths and dims.

    Args:
        position: From 0.

    Returns:
        The measure; the probe must ask for `resid_max`.
    """
    return Measure(f"largest |h| at position {position}", partial(_largest_at, position=position))


def largest_elsewhere(position: int) -> Measure:
    """Largest |h| over all depths, dims and positions but one.

    Args:
        position: The one that is left out, from 0.

    Returns:
        The measure; the probe must ask for `resid_max`.
    """
    return Measure(f"largest |h| elsewhere than {position}", partial(_largest_but, position=position))


def largest(data: xarray.Dataset) -> NDArray:
    """Largest |h| over depths and dims at each position.

    Args:
        data: Dataset of a sweep, with `resid_max`.

    Returns:
        float[edit, prompt, position], NaN beyond a prompt.
    """
    return np.asarray(data["resid_max"]).max(axis=-2)


def loss() -> Measure:
    """Mean negative log-likelihood of a prompt's next tokens.

    Returns:
        The measure, in nats per token; the probe must ask for `nll`.
    """
    return Measure("loss (nats per token)", metrics.mean_nll, unit="nats")


def _sink_rate(data: xarray.Dataset, key: int, eps: float) -> NDArray:
    return 100 * metrics.sink_rate(data, key, eps)


def _largest_at(data: xarray.Dataset, position: int) -> NDArray:
    return np.asarray(largest(data)[..., position])


def _largest_but(data: xarray.Dataset, position: int) -> NDArray:
    return np.asarray(np.nanmax(np.delete(largest(data), position, -1), axis=-1))
