"""The measures that kiya/baseline adds, against their definitions written out."""

from __future__ import annotations

import numpy as np
import pytest
import xarray

from sinkjax.papers.kiya.baseline import sink_lag
from sinkjax.study.measures import read_measure

E, P, L, H, T = 2, 3, 4, 5, 12  # conditions, prompts, layers, heads, positions
SHORT = 9  # tokens of the last prompt; positions beyond are missing


@pytest.fixture(scope="module")
def data() -> xarray.Dataset:
    rng = np.random.default_rng(0)
    sizes, medians = rng.uniform(1, 300, (E, P, L + 1, T)), rng.uniform(0.1, 0.4, (E, P, L + 1))
    sizes[:, -1, :, SHORT:] = np.nan
    axes = ("edit", "prompt", "depth", "position")
    return xarray.Dataset({"resid_max": (axes, sizes), "resid_median": (axes, np.repeat(medians[..., None], T, -1))})


def test_the_lag_is_between_the_onsets_of_each_stage():
    """As in SmolLM2: an early stage with a small activation, in some texts without a sink, and a late stage."""
    two = [1, 233, 723, 580, 60, 20_000, 20_000]
    sizes = np.array([two, [60] * 7, [1, 1, 1, 1, 1, 1, 500], [1, 1, 1, 1, 300, 300, 300], two])
    seen = np.array([[0, 0, 0.4, 0.4, 0.1, 0.1, 0.5], [0.5] * 7, [0, 0, 0, 0, 0, 0.6, 0.6], [0] * 7, [0, 0, 0, 0, 0, 0, 0.5]])
    data = xarray.Dataset(
        {
            "attention_received": (
                ("edit", "prompt", "layer", "head", "key"),
                seen[None, :, :, None, None] * np.ones((1, 1, 1, H, T)),
            ),
            "resid_max": (
                ("edit", "prompt", "depth", "position"),
                np.concatenate([np.full((5, 1), 900), sizes], axis=1)[None, ..., None] * np.ones(T),
            ),
            "resid_median": (("edit", "prompt", "depth", "position"), np.ones((1, 5, 8, T))),
        }
    )
    np.testing.assert_array_equal(read_measure(sink_lag(0, 0.3), data), [[1, np.nan, -1, np.nan, 1]])
