"""The continuous sink score of a token: the attention that its key receives, mean over queries, heads and layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.studies.readouts import mean_statistic
from sinkjax.studies.scope import percentage

if TYPE_CHECKING:
    import xarray


@percentage(label="attention that key {key} receives (%)", asks=("attention_received",), seen=("key",))
def sink_score(data: xarray.Dataset, key: int) -> NDArray:
    """Attention to a key in per cent, mean over its own and all later queries, heads and layers."""
    return np.asarray(100 * data["attention_received"].values[..., key].mean(axis=(-2, -1)))


@percentage(
    label="attention that key {key} receives from later queries (%)",
    asks=mean_statistic,
    seen=("key",),
    note="The query at the key itself, whose attention the edit decides, is left out.",
)
def later_sink_score(data: xarray.Dataset, key: int) -> NDArray:
    """Attention to a key in per cent, mean over the queries after it, heads and layers."""
    return np.asarray(100 * data["mean_attention"].values[..., key].mean(axis=-1))
