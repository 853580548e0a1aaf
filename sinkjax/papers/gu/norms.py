"""gu/norms: L2 norms of the first token's hidden state, query, key and value against the other tokens', by layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import xarray
from numpy.typing import NDArray

from sinkjax import Probe
from sinkjax.study import *
from sinkjax.study import ALL, Layers, Measure, keys_without_norm

KINDS: tuple[Vectors, ...] = ("hidden states", "queries", "keys", "values")


@dataclass(frozen=True, kw_only=True)
class Settings(Judged):
    """The shared settings."""


def study(lab: Lab, s: Settings) -> None:
    """Norms of the first token's vectors."""
    columns = [make(of) for of in KINDS for make in (first_norm, other_norm, norm_ratio)]
    text = lab.sweep("text", measures=[*columns, largest_norm_ratio()])

    source = "Gu et al. 2025, figure for LLaMA3-8B"
    hidden, keys, values = (unedited(norm_ratio(of), text) for of in ("hidden states", "keys", "values"))
    lab.claim("hidden", source, hidden, beside=[unedited(largest_norm_ratio(), text)])
    lab.claim("keys", source, keys, keys_without_norm(), sign=-1)
    lab.claim("values", source, values, sign=-1)

    pairs = [(partial(first_norm, of), partial(other_norm, of)) for of in KINDS]
    lab.draw(by_layer, *pairs, conditions=[text.every], unedited=False)
    lab.draw(by_layer, *(partial(norm_ratio, of) for of in KINDS), conditions=[text.every], unedited=False)


# L2 norms of hidden states, queries, keys and values: the first token's, the other tokens', and the ratio of the two.


Vectors = Literal["hidden states", "queries", "keys", "values"]
STATISTICS = {"hidden states": "resid_norm", "queries": "query_norm", "keys": "key_norm", "values": "value_norm"}
NOTE = "The ratio is computed in each layer and document, then averaged over layers. Vectors are compared before the rotation."


def _measure(name: str, vectors: Vectors, layers: Layers, of: Callable[[NDArray[Any]], NDArray[Any]], note: str = "") -> Measure:
    """Return a measure of float64[edit, prompt, layer, position], norms after some layers (of hidden states) or in them."""

    def read(data: xarray.Dataset) -> NDArray[Any]:
        found = data[STATISTICS[vectors]].values.astype(np.float64)
        found = found[:, :, 1:] if vectors == "hidden states" else found.mean(axis=3)
        return np.asarray(of(found[:, :, layers.index]).mean(axis=-1))

    return Measure(f"{name}{layers.suffix}", read, Probe.of(STATISTICS[vectors]), log=True, note=note)


def first_norm(vectors: Vectors, layers: Layers = ALL) -> Measure:
    """L2 norm at position 0, mean over layers; of queries, keys and values mean over heads too."""
    return _measure(f"L2 norm of {vectors}, first token", vectors, layers, lambda norms: norms[..., 0])


def other_norm(vectors: Vectors, layers: Layers = ALL) -> Measure:
    """Mean L2 norm of the later positions, mean over layers."""
    return _measure(f"L2 norm of {vectors}, other tokens", vectors, layers, lambda norms: np.nanmean(norms[..., 1:], axis=-1))


def norm_ratio(vectors: Vectors, layers: Layers = ALL) -> Measure:
    """L2 norm at position 0 over the mean of the later positions, mean over layers (Gu et al. 2025, Figs. 7, 8)."""
    name = f"ratio of the first token's L2 norm to the others', {vectors}"
    return _measure(name, vectors, layers, lambda norms: norms[..., 0] / np.nanmean(norms[..., 1:], axis=-1), NOTE)


def largest_norm_ratio() -> Measure:
    """Largest ratio of position 0's norm to the mean of the later ones over all depths, the embedding included."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        found = data["resid_norm"].values.astype(np.float64)
        return np.asarray((found[..., 0] / np.nanmean(found[..., 1:], axis=-1)).max(axis=-1))

    name = "largest ratio of the first token's L2 norm to the others', hidden states, any depth"
    return Measure(name, of, Probe(resid_norm=True), log=True)
