"""Records as maps to step through: whatever attention, residual stream and received attention they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.errors import SinkjaxError
from sinkjax.maps import Maps, Panel

MEAN = "mean"


def maps_of(
    records: Mapping[str, Any],
    tokens: Sequence[str] | None = None,
    prompt: int = 0,
    said: str = "",
    layers: Sequence[int] | None = None,
) -> Maps:
    """One prompt of several records side by side.

    records: name -> record. tokens: the text of each position; None: its number. layers: the layers of `attention`;
    None: all. Errors: no record, or one without a statistic that is drawn; records of other shapes; a prompt that is not there.
    """
    made = [make(records, prompt, layers) for name, make in DRAWN.items() if all(name in record for record in records.values())]
    if not made:
        raise SinkjaxError(f"nothing to show: the record has none of {', '.join(DRAWN)}; Probe(attention=True, resid_max=True)")
    positions = made[0].values.shape[-1]
    texts = [str(position) for position in range(positions)] if tokens is None else list(tokens)
    if len(texts) != positions:
        raise SinkjaxError(f"{len(texts)} tokens for {positions} positions; give the text of each, or none")
    return Maps(list(records), texts, made, said)


def _of_prompt(records: Mapping[str, Any], name: str, prompt: int) -> NDArray:
    """One prompt of a statistic of all records, float[run, ...]."""
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


def _attention(records: Mapping[str, Any], prompt: int, layers: Sequence[int] | None) -> Panel:
    values = _of_prompt(records, "attention", prompt)  # [run, layer, head, query, key]
    values = np.concatenate([values.mean(axis=2, keepdims=True), values], axis=2)
    values = np.where(np.tri(values.shape[-1], dtype=bool) | (values != 0), np.abs(values), np.nan)  # a prefix looks ahead
    shown = range(values.shape[1]) if layers is None else layers
    choices = {"layer": [*map(str, shown)], "head": [MEAN, *map(str, range(values.shape[2] - 1))]}
    return Panel("attention of each query token (down) to each key token (across)", values, choices, "query token", "key token")


def _received(records: Mapping[str, Any], prompt: int, layers: Sequence[int] | None) -> Panel:
    values = _of_prompt(records, "attention_received", prompt).mean(axis=2)  # from [run, layer, head, key]
    title = "attention that each token (across) receives in each layer (upwards), mean over heads"
    return Panel(title, np.abs(values), {}, "layer", "token", upwards=True)


def _residual(name: str, what: str) -> Any:
    def made(records: Mapping[str, Any], prompt: int, layers: Sequence[int] | None) -> Panel:
        title = f"{what} of each token (across) at each depth (upwards; 0: embedding)"
        return Panel(title, _of_prompt(records, name, prompt), {}, "depth", "token", log=True, upwards=True)

    return made


DRAWN = {
    "attention": _attention,
    "attention_received": _received,
    "resid_max": _residual("resid_max", "largest activation"),
    "resid_norm": _residual("resid_norm", "norm of the residual stream"),
}
