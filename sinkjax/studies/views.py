"""The views that studies share: attention and activations of a few conditions, prompt by prompt, from a store."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sinkjax.edits.site import Site
from sinkjax.probes.probe import Capture, Probe
from sinkjax.report.section import View

if TYPE_CHECKING:
    import xarray
    from numpy.typing import NDArray

TOKENS = 32  # positions shown of a prompt, so that each has a legible tick
PROMPTS = 3
EDITS = 6
MEAN = "mean over heads"
FEW_TOKENS = 24  # positions shown where the maps of many studies share one page


def probe(length: int, layers: Sequence[int] | None = None) -> Probe:
    """What `attention` shows: the weights of all heads, for the first TOKENS queries of prompts of this length.

    layers: the layers to show; None: all.
    """
    shown = None if layers is None else tuple(layers)
    return Probe(capture=(Capture(Site.WEIGHTS, shown, tuple(range(min(TOKENS, length))), name="attention"),))


def maps_probe(length: int, layers: Sequence[int]) -> Probe:
    """What maps show: attention of some layers, and the largest |h|."""
    return dataclasses.replace(probe(length, layers), resid_max=True)


def map_data(data: xarray.Dataset) -> xarray.DataArray:
    """The attention of a maps' store with plain names of its axes: [edit, prompt, layer, head, query, key]."""
    renamed = {f"attention_{axis}": axis for axis in ("layer", "query") if f"attention_{axis}" in data["attention"].dims}
    maps = data["attention"].drop_vars("layer", errors="ignore") if "layer" in renamed.values() else data["attention"]
    return maps.rename(renamed)


def attention(
    name: str, maps: xarray.Dataset, edits: Mapping[str, str] | None = None, tokens: int = TOKENS, about: str = ""
) -> View:
    """Attention of each query to each key, for a choice of edit, prompt, layer and head.

    maps: a store of `attention` as `probe` or `Probe(attention=layers)` measures it. edits: labels of those shown -> names for
    readers; None: the first EDITS. tokens: positions shown. about: the end of the caption.
    """
    chosen, prompts = _edits(maps, edits), _prompts(maps)
    data = map_data(maps).sel(edit=list(chosen)).isel(prompt=prompts, query=slice(tokens), key=slice(tokens))
    values = data.transpose("edit", "prompt", "layer", "head", "query", "key").values.astype(np.float32)
    texts, lengths = _texts(maps, tokens), maps["length"].values[prompts]
    size = values.shape[-1]
    causal = np.tri(size, dtype=bool) & (np.arange(size)[:, None] < lengths[:, None, None])
    values = np.where(causal[None, :, None, None], values, np.nan)
    layers = data["layer"].values.tolist()
    return View(
        name=name,
        caption=(
            f"Attention of one prompt in one layer and head; {_shown(chosen, len(texts))}, layers {_list(layers)}, all heads and"
            f" their mean, first {size} tokens. Grey: keys that a query cannot see. Values are kept in 8 bits, to about 2%; the"
            f" rest is in the store.{about}"
        ),
        quantity="attention",
        values=np.concatenate([values.mean(axis=3, keepdims=True), values], axis=3),
        choices={
            "edit": list(chosen.values()),
            "prompt": _names(len(texts)),
            "layer": [str(layer) for layer in layers],
            "head": [MEAN, *(str(head) for head in data["head"].values.tolist())],
        },
        tokens=texts,
        row_title="query",
        column_title="key",
        start={"layer": str(layers[_strongest(values[0, 0])])},
    )


def _strongest(values: NDArray) -> int:
    """The layer where one key gets the most attention of all queries; values: [layer, head, query, key]."""
    return int(np.nansum(values.mean(axis=1), axis=1).max(axis=1).argmax())


def activation(
    name: str, data: xarray.Dataset, edits: Mapping[str, str] | None = None, tokens: int = TOKENS, about: str = ""
) -> View:
    """The largest |h| at each depth and position, for a choice of edit and prompt.

    data: a store with `resid_max` (edit, prompt, depth, position); edits, tokens, about: see `attention`.
    """
    chosen, prompts = _edits(data, edits), _prompts(data)
    shown = data["resid_max"].sel(edit=list(chosen)).isel(prompt=prompts, position=slice(tokens))
    values = shown.transpose("edit", "prompt", "depth", "position").values.astype(np.float32)
    texts = _texts(data, tokens)
    return View(
        name=name,
        caption=(
            f"Largest absolute value of the residual stream of one prompt; {_shown(chosen, len(texts))}, first"
            f" {values.shape[-1]} tokens. Depth 0 is the embedding, depth l + 1 the stream after layer l. Values are kept in 8"
            f" bits, to about 2%; the rest is in the store.{about}"
        ),
        quantity="largest |h|",
        values=values,
        choices={"edit": list(chosen.values()), "prompt": _names(len(texts))},
        tokens=texts,
        row_title="depth",
        column_title="position",
        row_tokens=False,
        log=True,
        row_note=" (0: embedding, l + 1: after layer l)",
    )


def _edits(data: xarray.Dataset, edits: Mapping[str, str] | None) -> dict[str, str]:
    if edits is not None:
        return dict(edits)
    return {label: label for label in map(str, data["edit"].values[:EDITS])}


def _prompts(data: xarray.Dataset) -> slice:
    return slice(min(PROMPTS, data.sizes["prompt"]))


def _texts(data: xarray.Dataset, tokens: int) -> list[Sequence[str]]:
    return [texts[:tokens] for texts in data.attrs["study"]["token_texts"][_prompts(data)]]


def _names(prompts: int) -> list[str]:
    return [str(number) for number in range(prompts)]


def _shown(edits: Mapping[str, str], prompts: int) -> str:
    return f"{len(edits)} edits, the first {prompts} prompts" if prompts > 1 else f"{len(edits)} edits, the first prompt"


def _list(layers: Sequence[int]) -> str:
    if len(layers) > 3 and list(layers) == list(range(layers[0], layers[-1] + 1)):
        return f"{layers[0]} to {layers[-1]}"
    return ", ".join(map(str, layers))
