"""L2 norms of hidden states, queries, keys and values: the first token's, the other tokens', and the ratio of the two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.studies.places import ALL
from sinkjax.studies.scope import Layers
from sinkjax.studies.vocabulary import Measure

if TYPE_CHECKING:
    import xarray

STATISTICS = {"hidden states": "resid_norm", "queries": "query_norm", "keys": "key_norm", "values": "value_norm"}


def asked(of: str = "hidden states", **others: object) -> sinkjax.Probe:
    """Ask for the norms of one kind of vector."""
    return sinkjax.Probe.of(STATISTICS[of])


def norms(data: xarray.Dataset, of: str, layers: list[int]) -> NDArray:
    """Norms after some layers, of hidden states, or in them, mean over heads: float64[edit, prompt, layer, position]."""
    found = data[STATISTICS[of]].values.astype(np.float64)
    found = found[:, :, 1:] if of == "hidden states" else found.mean(axis=3)
    return np.asarray(found[:, :, layers])


@Measure.define(label="L2 norm of {of}, first token", asks=asked, log=True)
def first_norm(data: xarray.Dataset, of: str, layers: Layers = ALL) -> NDArray:
    """L2 norm at position 0, mean over layers; of queries, keys and values mean over heads too."""
    return np.asarray(norms(data, of, layers)[..., 0].mean(axis=-1))


@Measure.define(label="L2 norm of {of}, other tokens", asks=asked, log=True)
def other_norm(data: xarray.Dataset, of: str, layers: Layers = ALL) -> NDArray:
    """Mean L2 norm of the later positions, mean over layers."""
    return np.asarray(np.nanmean(norms(data, of, layers)[..., 1:], axis=-1).mean(axis=-1))


@Measure.define(
    label="ratio of the first token's L2 norm to the others', {of}",
    asks=asked,
    log=True,
    note="The ratio is computed in each layer and document, then averaged over layers. Vectors are compared before the rotation.",
)
def norm_ratio(data: xarray.Dataset, of: str, layers: Layers = ALL) -> NDArray:
    """L2 norm at position 0 over the mean of the later positions, mean over layers (Gu et al. 2025, Figs. 7, 8)."""
    found = norms(data, of, layers)
    return np.asarray((found[..., 0] / np.nanmean(found[..., 1:], axis=-1)).mean(axis=-1))


@Measure.define(label="largest ratio of the first token's L2 norm to the others', hidden states, any depth", asks=asked, log=True)
def largest_norm_ratio(data: xarray.Dataset) -> NDArray:
    """Largest ratio of position 0's norm to the mean of the later ones over all depths, the embedding included."""
    found = data["resid_norm"].values.astype(np.float64)
    return np.asarray((found[..., 0] / np.nanmean(found[..., 1:], axis=-1)).max(axis=-1))
