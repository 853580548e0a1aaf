"""Kiya et al.'s own readout, beside the share of heads that sink: attention averaged over the heads of one layer.

Their figures show single layers: layer 14 of Llama-3.2-3B's 28 (Figs. 4, 5 and 8), here the layer at half depth, and the first
three (Figs. 2, 6 and 9).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st

if TYPE_CHECKING:
    import jax

MEAN = "mean_attention"
FIRST_LAYERS = 3  # of Figs. 2, 6 and 9
NOTE = """At half depth, as in the paper's figures: the attention that a key receives from the queries that see it, averaged over
    the heads of one layer, layer 14 of 28, counted from 1."""


def half_depth(L: int) -> int:
    """The layer that is number L // 2 counted from 1."""
    return max(L // 2 - 1, 0)


def received(data: Any, layer: int | None = None) -> NDArray:
    """Attention to each key in one layer (None: at half depth), mean over its heads, in per cent: float[edit, prompt, key]."""
    found = data[MEAN] if MEAN in data else data["attention_received"].mean("head")
    return 100 * found.isel(layer=half_depth(data.sizes["layer"]) if layer is None else layer).values


def attention_to(key: int) -> st.Measure:
    """The readout of one key."""
    name = f"attention to key {key} at half depth, mean over heads (%)"
    return st.Measure(name, lambda data: received(data)[..., key], unit="percentage points", note=NOTE)


def attention_there(place: str) -> st.Measure:
    """The readout at the position of each edit."""
    name = f"attention to {place} at half depth, mean over heads (%)"
    note = f"{NOTE} The query at the key itself, whose attention the edit sets to 1, is left out."
    return st.Measure(name, received, unit="percentage points", note=note, placed=True)


def over_heads(sums: jax.Array, lengths: jax.Array) -> jax.Array:
    """Sums over the queries after a key as their mean, averaged over heads: [B, S]."""
    import jax.numpy as jnp

    seen_by = lengths[:, None, None] - 1 - jnp.arange(sums.shape[-1])[None, None, :]
    return (sums / jnp.maximum(seen_by, 1)).mean(axis=1)


def mean_attention() -> sinkjax.Statistic:
    """The attention that each key receives from later queries, mean over heads: without a head axis, many edits stay small."""
    from sinkjax.probes.statistics import later_sums

    return sinkjax.Statistic(MEAN, sinkjax.Site.WEIGHTS, later_sums, ("prompt", "layer", "key"), over_heads)
