"""The continuous sink score of a token: the attention that its key receives, mean over queries, heads and layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from numpy.typing import NDArray

from sinkjax.study import MEAN_ATTENTION, RECEIVED, Measure, percentage


def sink_score(key: int) -> Measure:
    """Attention to a key in per cent, mean over its own and all later queries, heads and layers."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        return np.asarray(100 * data["attention_received"].values[..., key].mean(axis=(-2, -1)))

    return percentage(f"attention that key {key} receives (%)", of, RECEIVED, position=key, seen=True)


def later_sink_score(key: int) -> Measure:
    """Attention to a key in per cent, mean over the queries after it, heads and layers."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        return np.asarray(100 * data["mean_attention"].values[..., key].mean(axis=-1))

    name = f"attention that key {key} receives from later queries (%)"
    note = "The query at the key itself, whose attention the edit decides, is left out."
    return percentage(name, of, MEAN_ATTENTION, note=note, position=key, seen=True)
