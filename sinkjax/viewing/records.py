"""Interactive maps of whichever attention and residual-stream statistics records contain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.errors import SinkjaxError
from sinkjax.viewing.maps import MapPanel, Maps, strongest

MEAN = "mean over heads"
LARGEST = "Largest activation", "max |h|"


def maps_of(
    records: Mapping[str, Any],
    tokens: Sequence[str] | None = None,
    prompt: int = 0,
    said: str = "",
    layers: Sequence[int] | None = None,
) -> Maps:
    """Make maps of one prompt of several records side by side.

    records: name -> record. tokens: the text of each position; None for its index. layers: the layers of `attention`; None for
    all. Errors: the records share no statistic in DRAWN, or differ in shape; the prompt is out of range.
    """
    drawn = {name: make for name, make in DRAWN.items() if all(name in record for record in records.values())}
    if not drawn:
        raise SinkjaxError(f"nothing to show: the record has none of {', '.join(DRAWN)}; Probe(attention=True, resid_max=True)")
    made = [make(_of_prompt(records, name, prompt), layers) for name, make in drawn.items()]
    positions = made[0].values.shape[-1]
    texts = [str(position) for position in range(positions)] if tokens is None else list(tokens)
    if len(texts) != positions:
        raise SinkjaxError(f"{len(texts)} tokens for {positions} positions; give the text of each, or none")
    start = {"layer": strongest(made[0].values[0, :, 1:])} if "attention" in drawn else {}
    return Maps(list(records), [texts], made, said, start)


def _of_prompt(records: Mapping[str, Any], name: str, prompt: int) -> NDArray:
    """Select one prompt of a statistic from all records, float[run, ...]."""
    arrays = [np.asarray(record[name], np.float32) for record in records.values()]
    shapes = dict.fromkeys(str(array.shape) for array in arrays)
    if len(shapes) > 1:
        raise SinkjaxError(f"{name} has the shapes {', '.join(shapes)}; show records of the same prompts")
    axes = len(next(iter(records.values())).dims[name])
    if arrays[0].ndim != axes:
        raise SinkjaxError(f"{name} has an axis of edits: show the record of one edit at a time")
    if not 0 <= prompt < len(arrays[0]):
        raise SinkjaxError(f"prompt {prompt} is out of range: there are {len(arrays[0])}, counted from 0")
    return np.stack([array[prompt] for array in arrays])


def attention(values: NDArray, layers: Sequence[int], choices: Mapping[str, Sequence[str]] = MappingProxyType({})) -> MapPanel:
    """Make the panel of attention, float[run, *choices, layer, head, query, key], with the mean over heads first."""
    values = np.concatenate([values.mean(axis=-3, keepdims=True), values], axis=-3)
    named = {"layer": [*map(str, layers)], "head": [MEAN, *map(str, range(values.shape[-3] - 1))]}
    return MapPanel("Attention", "attention weight", values, {**choices, **named}, "query token", "key token")


def residual(values: NDArray, title: str, quantity: str, choices: Mapping[str, Sequence[str]] = MappingProxyType({})) -> MapPanel:
    """Make the panel of a residual-stream statistic, float[run, *choices, depth, position]."""
    return MapPanel(title, quantity, values, choices, "depth", "token", log=True)


def _attention(values: NDArray, layers: Sequence[int] | None) -> MapPanel:
    panel = attention(values, range(values.shape[1]) if layers is None else layers)
    looked = np.tri(values.shape[-1], dtype=bool) | (panel.values != 0)  # attention in a prefix looks ahead
    return replace(panel, values=np.where(looked, np.abs(panel.values), np.nan))


def _received(values: NDArray, layers: Sequence[int] | None) -> MapPanel:
    mean = np.abs(values.mean(axis=2))  # from [run, layer, head, key]
    return MapPanel("Attention received", "mean over heads and queries", mean, {}, "layer", "key token")


DRAWN: dict[str, Callable[[NDArray, Sequence[int] | None], MapPanel]] = {
    "attention": _attention,
    "attention_received": _received,
    "resid_max": lambda values, layers: residual(values, *LARGEST),
    "resid_norm": lambda values, layers: residual(values, "Norm of the residual stream", "norm"),
}
