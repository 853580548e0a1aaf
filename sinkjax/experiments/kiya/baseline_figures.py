"""The figures of kiya/baseline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.experiments.base import Drawing
from sinkjax.experiments.captions import origin
from sinkjax.experiments.kiya import bos
from sinkjax.experiments.kiya.config import Baseline
from sinkjax.report.figures import attention, layers

if TYPE_CHECKING:
    import xarray

TOKENS, POSITIONS = 20, 24  # drawn of each prompt, so that a tick is legible and a column is visible


def drawings(config: Baseline, runs: Mapping[str, xarray.Dataset], maps: Mapping[str, xarray.Dataset]) -> tuple[Drawing, ...]:
    """Every figure, in the order of the page. runs, maps: name of the run -> its store."""
    return (by_layer(config, runs), *(attention_maps(name, data) for name, data in maps.items()), activation_maps(runs))


def by_layer(config: Baseline, runs: Mapping[str, xarray.Dataset]) -> Drawing:
    """Sink rate and largest activation of the first token and of the other positions, by layer."""
    grid = [
        [layers.Panel(name, "heads that sink on the key (%)", _sinks(config, data)) for name, data in runs.items()],
        [layers.Panel(name, "largest |h| after the layer", _activations(config, data), log=True) for name, data in runs.items()],
    ]
    caption = (
        "Share of a layer's heads that sink on position 0 and on the other position with most of them (top), and the largest |h|"
        f" there and at the other positions (bottom). Bands: bootstrap 95 % intervals over {_prompts(runs)} prompts."
        f" {_origin(runs)}."
    )
    return Drawing("by-layer", layers.lines(grid, "layer (0-based)"), caption)


def _sinks(config: Baseline, data: xarray.Dataset) -> list[layers.Line]:
    rates = bos.sink_rates(data, config.eps, per="layer")[:, 0]
    return [_line(config, "key 0", rates[0]), _line(config, "strongest other key", rates[1:].max(axis=0))]


def _activations(config: Baseline, data: xarray.Dataset) -> list[layers.Line]:
    largest = data["resid_max"].isel(edit=0).values[:, 1:]
    return [
        _line(config, "position 0", largest[..., 0]),
        _line(config, "largest of the other positions", np.nanmax(largest[..., 1:], axis=-1)),
    ]


def _line(config: Baseline, name: str, values: NDArray) -> layers.Line:
    """A line over layers of float[prompt, layer]."""
    return layers.Line(name, range(values.shape[-1]), list(intervals.intervals(values, axis=0, seed=config.seed)))


def attention_maps(name: str, data: xarray.Dataset) -> Drawing:
    """Attention of the first prompt in some layers."""
    tokens = data.attrs["study"]["token_texts"][0][:TOKENS]
    values = data["attention"].isel(edit=0, prompt=0).mean("head").values
    caption = (
        f"Attention of one prompt {name}, mean over heads, first {len(tokens)} tokens, on one colour scale; grey: keys that a"
        f" query cannot see. A bright column is a sink. {origin(data)}."
    )
    figure = attention.by_layer(values, data["attention_layer"].values.tolist(), tokens)
    return Drawing(f"attention-{name.replace(' ', '-').lower()}", figure, caption)


def activation_maps(runs: Mapping[str, xarray.Dataset]) -> Drawing:
    """The largest |h| at each depth and position."""
    values = np.stack([data["resid_max"].isel(edit=0).mean("prompt").values[..., :POSITIONS] for data in runs.values()])
    caption = (
        f"Largest absolute value of the residual stream by depth and position (first {values.shape[-1]} positions), mean over"
        f" {_prompts(runs)} prompts, one logarithmic colour scale. {_origin(runs)}."
    )
    return Drawing("largest-activation", layers.activations(values, list(runs)), caption)


def _prompts(runs: Mapping[str, xarray.Dataset]) -> int:
    return next(iter(runs.values())).sizes["prompt"]


def _origin(runs: Mapping[str, xarray.Dataset]) -> str:
    """Model, precision and text; a panel's title says which run it is."""
    first = next(iter(runs.values()))
    return f"{origin(first, text=False)}, {first.attrs['study']['text'].partition(', because')[0]}"
