"""gu/norms: norms and ratios on made-up data, and a run at its smallest."""

from __future__ import annotations

import numpy as np
import xarray

from sinkjax.papers.gu.norms import first_norm, largest_norm_ratio, norm_ratio, other_norm
from sinkjax.study import layer
from sinkjax.study.measures import read_measure

LAYERS, HEADS, T = 3, 2, 6


def made(rng: np.random.Generator) -> xarray.Dataset:
    """Norms of two prompts, the second of five tokens."""
    hidden = rng.uniform(1, 9, (1, 2, LAYERS + 1, T))
    keys = rng.uniform(1, 9, (1, 2, LAYERS, HEADS, T))
    hidden[:, 1, ..., 5] = keys[:, 1, ..., 5] = np.nan
    return xarray.Dataset(
        {
            "resid_norm": (("edit", "prompt", "depth", "position"), hidden),
            "key_norm": (("edit", "prompt", "layer", "head", "position"), keys),
        }
    )


def test_norms_are_compared_in_each_layer_and_the_embedding_is_not_a_layer(rng):
    data = made(rng)
    hidden, keys = data["resid_norm"].values[0], data["key_norm"].values[0].mean(axis=2)
    for of, values in (("hidden states", hidden[:, 1:]), ("keys", keys)):
        others = np.array([[row[1 : 6 - prompt].mean() for row in values[prompt]] for prompt in (0, 1)])
        np.testing.assert_allclose(read_measure(first_norm(of), data)[0], values[..., 0].mean(axis=1))
        np.testing.assert_allclose(read_measure(other_norm(of), data)[0], others.mean(axis=1))
        ratios = values[..., 0] / others
        np.testing.assert_allclose(read_measure(norm_ratio(of), data)[0], ratios.mean(axis=1))
        np.testing.assert_allclose(read_measure(norm_ratio(of, layers=layer(2)), data)[0], ratios[:, 2])
    whole = hidden[..., 0] / np.nanmean(hidden[..., 1:], axis=-1)
    np.testing.assert_allclose(read_measure(largest_norm_ratio(), data)[0], whole.max(axis=1))
