"""The attention left in a row when weights are removed after the softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.studies.scope import percentage

if TYPE_CHECKING:
    import jax
    import xarray

    from sinkjax.probes.statistics import PairView


def row_sums(weights: jax.Array, view: PairView) -> jax.Array:
    """Sum over queries of a row's weights, mean over heads: [B]."""
    import jax.numpy as jnp

    return jnp.where(view.real_rows[..., 0], weights.sum(axis=-1), 0).sum(axis=2).mean(axis=1)


def per_query(sums: jax.Array, lengths: jax.Array) -> jax.Array:
    """Sums over the queries of a prompt, divided by their number: [B]."""
    return sums / lengths


def row_sum(**others: object) -> sinkjax.Probe:
    """Ask for the sum of a row's weights."""
    return sinkjax.Probe(extra=(sinkjax.Statistic("row_sum", sinkjax.Site.WEIGHTS, row_sums, ("prompt", "layer"), per_query),))


@percentage(label="attention left (% of a row)", asks=row_sum)
def attention_left(data: xarray.Dataset) -> NDArray:
    """Sum of a row's attention weights, in per cent: mean over queries, heads and layers."""
    return np.asarray(100 * data["row_sum"].mean("layer").values)
