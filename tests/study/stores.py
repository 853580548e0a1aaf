"""The statistics of some conditions and documents, with planted numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray

Values = Mapping[tuple[Any, ...], Any]  # what is planted -> float, or float[document]
EPS = 0.3

# ("seen", key) or ("seen", key, layer): attention in per cent, the same in all heads; ("sinks", key): share of the heads, of all
# layers, that receive 90%; ("size", position) or ("size", position, depth): largest |h|; ("loss",).


def store(planted: Sequence[Values], count: int, shape: tuple[int, int, int]) -> xarray.Dataset:
    """The statistics of some conditions and `count` documents. shape: layers, heads, positions."""
    L, H, T = shape
    received, sizes = np.zeros((len(planted), count, L, H, T)), np.ones((len(planted), count, L + 1, T))
    loss = np.ones((len(planted), count, T))
    for row, numbers in enumerate(planted):
        for (kind, *where), value in numbers.items():
            found = np.broadcast_to(np.atleast_1d(np.asarray(value, float))[:count], count)
            depth = slice(where[1], where[1] + 1) if len(where) > 1 else slice(None)
            if kind == "seen":
                received[row, :, depth, :, where[0]] = found[:, None, None] / 100
            elif kind == "sinks":
                received[row, :, :, :, where[0]] = np.where(np.arange(H) < np.round(found * H)[:, None], 0.9, 0.01)[:, None]
            elif kind == "size":
                sizes[row, :, depth, where[0]] = found[:, None]
            else:
                loss[row] = found[:, None]
    first = np.broadcast_to(received[..., 0].mean(axis=3)[..., None], received.mean(axis=3).shape)  # from each query
    return xarray.Dataset(
        {
            "attention_received": (("edit", "prompt", "layer", "head", "key"), received),
            "attention_from": (("edit", "prompt", "layer", "head", "key"), received),  # of kiya/split
            "sinking_heads": (("edit", "prompt", "layer", "key"), (received > EPS).mean(axis=3)),
            "mean_attention": (("edit", "prompt", "layer", "key"), received.mean(axis=3)),
            "attention_to_first": (("edit", "prompt", "layer", "query"), first),
            "resid_max": (("edit", "prompt", "depth", "position"), sizes),
            "resid_median": (("edit", "prompt", "depth", "position"), np.ones_like(sizes)),
            "nll": (("edit", "prompt", "position"), loss),
        }
    )
