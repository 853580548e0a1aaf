"""The attention left in a row when weights are removed after the softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax import Probe, Site, Statistic
from sinkjax.lab import Measure, percentage

if TYPE_CHECKING:
    from sinkjax.probes.statistics import PairView


def row_sums(weights: jax.Array, view: PairView) -> jax.Array:
    """Sum over queries of a row's weights, mean over heads: [B]."""
    return jnp.where(view.real_rows[..., 0], weights.sum(axis=-1), 0).sum(axis=2).mean(axis=1)


def per_query(sums: jax.Array, lengths: jax.Array) -> jax.Array:
    """Sums over the queries of a prompt, divided by their number: [B]."""
    return sums / lengths


ROW_SUM = Probe(extra=(Statistic("row_sum", Site.WEIGHTS, row_sums, ("prompt", "layer"), per_query),))


def attention_left() -> Measure:
    """Sum of a row's attention weights, in per cent: mean over queries, heads and layers."""
    return percentage("attention left (% of a row)", lambda data: np.asarray(100 * data["row_sum"].mean("layer").values), ROW_SUM)
