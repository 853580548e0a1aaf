"""The views that studies share: attention and activations of a few conditions, prompt by prompt, from a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sinkjax.edits.site import Site
from sinkjax.probes.probe import Capture, Probe
from sinkjax.viewing import records
from sinkjax.viewing.maps import Maps, strongest

if TYPE_CHECKING:
    import xarray

MAPS = "maps"
TOKENS = 32  # positions shown of a prompt, so that each has a legible tick
PROMPTS = 3
EDITS = 6
FEW_TOKENS = 24  # positions shown where the maps of many studies share one page


def map_name(sweep: object, number: int) -> str:
    """The name of the store with the maps of the sweep that is shown as number `number`."""
    return f"{MAPS}-{sweep}" if number else MAPS


def drawn_layers(asked: Sequence[int], L: int) -> tuple[int, ...]:
    """Return the layers of maps: the requested ones, or an early, a middle and a late one."""
    return tuple(asked) or tuple(sorted({0, L // 3, 2 * L // 3}))


def maps_probe(length: int, layers: Sequence[int]) -> Probe:
    """The weights of all heads of some layers, for the first TOKENS queries of prompts of this length, and the largest |h|."""
    queries = tuple(range(min(TOKENS, length)))
    return Probe(resid_max=True, capture=(Capture(Site.WEIGHTS, tuple(layers), queries, name="attention"),))


def map_data(data: xarray.Dataset) -> xarray.DataArray:
    """The attention of a maps' store with plain names of its axes: [edit, prompt, layer, head, query, key]."""
    renamed = {f"attention_{axis}": axis for axis in ("layer", "query") if f"attention_{axis}" in data["attention"].dims}
    maps = data["attention"].drop_vars("layer", errors="ignore") if "layer" in renamed.values() else data["attention"]
    return maps.rename(renamed)


def maps(name: str, data: xarray.Dataset, tokens: int = FEW_TOKENS, about: str = "") -> Maps:
    """Attention of each query to each key, and the largest |h| if it was measured, of the first EDITS edits and PROMPTS prompts.

    data: a store of `attention` as `maps_probe` or `Probe(attention=layers)` measures it. tokens: positions shown. about: the
    end of the caption.
    """
    edits = [*map(str, data["edit"].values[:EDITS])]
    prompts = slice(min(PROMPTS, data.sizes["prompt"]))
    texts, lengths = [row[:tokens] for row in data.attrs["study"]["token_texts"][prompts]], data["length"].values[prompts]
    weights = map_data(data).sel(edit=edits).isel(prompt=prompts, query=slice(tokens), key=slice(tokens))
    values = weights.transpose("edit", "prompt", "layer", "head", "query", "key").values.astype(np.float32)
    size = values.shape[-1]
    causal = np.tri(size, dtype=bool) & (np.arange(size)[:, None] < lengths[:, None, None])
    values = np.where(causal[None, :, None, None], values, np.nan)
    layers, numbers = weights["layer"].values.tolist(), {"prompt": [str(number) for number in range(len(texts))]}
    panels, depths = [records.attention(values, layers, numbers)], ""
    if "resid_max" in data:
        shown = data["resid_max"].sel(edit=edits).isel(prompt=prompts, position=slice(tokens))
        activations = shown.transpose("edit", "prompt", "depth", "position").values.astype(np.float32)
        panels.append(records.residual(activations, *records.LARGEST, numbers))
        depths = " Depth 0 is the embedding, depth l + 1 the residual stream after layer l."
    first = f"the first {len(texts)} prompts" if len(texts) > 1 else "the first prompt"
    in_turn = len(layers) > 3 and layers == [*range(layers[0], layers[-1] + 1)]
    listed = f"{layers[0]} to {layers[-1]}" if in_turn else ", ".join(map(str, layers))
    said = (
        f"Choose among {len(edits)} edits, {first}, layers {listed}, all heads and their mean; first {size} tokens. Grey:"
        f" keys that a query cannot see.{depths} Values are kept in 8 bits, to about 2%; the rest is in the store.{about}"
    )
    return Maps(edits, texts, panels, said, {"layer": strongest(values[0, 0])}, name)
