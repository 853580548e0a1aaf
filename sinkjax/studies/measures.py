"""The measures that studies share: numbers for each condition and prompt, from the statistics of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import metrics
from sinkjax.studies.study import Measure

if TYPE_CHECKING:
    import xarray


def sink_rate(key: int, eps: float) -> Measure:
    """Heads whose sink is `key`, in per cent of all (Gu et al. 2025)."""
    return Measure(
        f"heads that sink on key {key} (%)",
        lambda data: 100 * metrics.sink_rate(data, key, eps),
        unit="percentage points",
        note=sink_note(eps),
    )


def sink_note(eps: float) -> str:
    """The definition of a head that sinks."""
    return (
        f"A head sinks on a key if its attention to it, averaged over all queries that see the key, is above {eps:g} (Gu et al."
        " 2025). Shares are of all heads of all layers."
    )


def largest_activation(position: int) -> Measure:
    """Largest |h| at `position` over all depths and dims."""
    return Measure(f"largest |h| at position {position}", lambda data: _largest(data)[..., position])


def largest_elsewhere(position: int) -> Measure:
    """Largest |h| over all depths, dims and positions but one."""
    return Measure(
        f"largest |h| elsewhere than {position}", lambda data: np.nanmax(np.delete(_largest(data), position, -1), axis=-1)
    )


def heads_on(data: xarray.Dataset) -> NDArray:
    """Heads of all layers that sink on each key, in per cent: float[edit, prompt, key].

    data: with the statistic of `sinkjax.probes.statistics.sinking_heads(eps)`, which a probe asks for by `extra=`.
    """
    return np.asarray(100 * data["sinking_heads"].mean("layer").values)


def largest(data: xarray.Dataset) -> NDArray:
    """Largest |h| over depths and dims at each position: float[edit, prompt, position], NaN beyond a prompt."""
    return _largest(data)


def largest_typical() -> Measure:
    """Largest |h| over depths and dims at a typical (the median) position but the first."""
    return Measure("largest |h| at a typical other position", lambda data: np.nanmedian(_largest(data)[..., 1:], axis=-1))


def loss() -> Measure:
    """Mean negative log-likelihood of a prompt's next tokens."""
    return Measure("loss (nats per token)", metrics.mean_nll, unit="nats")


def mean_loss(start: int) -> Measure:
    """Mean loss of the queries from position `start` on."""
    return Measure(
        f"loss from position {start} on (nats per token)",
        lambda data: data["nll"].isel(position=slice(start, None)).mean("position").values,
        unit="nats",
    )


def _largest(data: Any) -> NDArray:
    """Largest |h| over depths: float[edit, prompt, position], NaN beyond a prompt."""
    return np.asarray(data["resid_max"]).max(axis=-2)
