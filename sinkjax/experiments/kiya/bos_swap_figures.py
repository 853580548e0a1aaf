"""The figures of kiya/bos-swap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals, metrics
from sinkjax.experiments.base import Drawing
from sinkjax.experiments.captions import origin
from sinkjax.experiments.kiya.config import BosSwap
from sinkjax.report.figures import attention, layers

if TYPE_CHECKING:
    import xarray

TOKENS, POSITIONS = 20, 24  # drawn of each prompt, so that a tick is legible and a column is visible


def drawings(config: BosSwap, runs: Mapping[str, xarray.Dataset], maps: Mapping[str, xarray.Dataset]) -> tuple[Drawing, ...]:
    """Every figure, in the order of the page. runs, maps: name of the run -> its store."""
    return (
        by_layer(config, runs),
        by_place(config, runs),
        *(attention_maps(config, name, data) for name, data in maps.items()),
        activation_maps(config, runs),
    )


def by_layer(config: BosSwap, runs: Mapping[str, xarray.Dataset]) -> Drawing:
    """Sink rate and largest activation at position 0 and at the moved token, by layer."""
    swap, place = 1 + config.positions.index(config.shown), config.shown
    series = (
        ("position 0, no edit", 0, 0),
        ("position 0, swapped (new first token)", swap, 0),
        (f"position {place}, swapped (old first token)", swap, place),
    )

    def sinks(data: xarray.Dataset) -> list[layers.Line]:
        of = lambda edit, key: 100 * metrics.sink_rate(data.isel(edit=edit), key, config.eps, per="layer")  # noqa: E731
        return [_line(config, name, of(edit, key)) for name, edit, key in series]

    def activations(data: xarray.Dataset) -> list[layers.Line]:
        of = lambda edit, key: data["resid_max"].isel(edit=edit, position=key).values[:, 1:]  # noqa: E731
        return [_line(config, name, of(edit, key)) for name, edit, key in series]

    grid = [
        [layers.Panel(name, "heads that sink on the key (%)", sinks(data)) for name, data in runs.items()],
        [layers.Panel(name, "largest |h| after the layer", activations(data), log=True) for name, data in runs.items()],
    ]
    caption = (
        f"The first token's embedding at position {place} and that one's at position 0: share of a layer's heads that sink on"
        " each of the two (top), and the largest |h| there (bottom). Bands: bootstrap 95 % intervals over"
        f" {_prompts(runs)} prompts. {_origin(runs)}."
    )
    return Drawing("by-layer", layers.lines(grid, "layer (0-based)", legend_above=True), caption)


def by_place(config: BosSwap, runs: Mapping[str, xarray.Dataset]) -> Drawing:
    """Sink rate over all layers at position 0 and at the moved token, against its new place."""

    def sinks(data: xarray.Dataset) -> list[layers.Line]:
        swapped = data.isel(edit=slice(1, None))
        place = np.repeat(np.array(config.positions)[:, None], data.sizes["prompt"], axis=1)
        before = float(100 * metrics.sink_rate(data, 0, config.eps)[0].mean())
        first, moved = (100 * metrics.sink_rate(swapped, key, config.eps) for key in (0 * place, place))
        return [
            layers.Line("position 0", config.positions, list(intervals.intervals(first, seed=config.seed)), reference=before),
            layers.Line("the moved token", config.positions, list(intervals.intervals(moved, seed=config.seed))),
        ]

    panels = [[layers.Panel(name, "heads that sink on it (%)", sinks(data)) for name, data in runs.items()]]
    caption = (
        "Share of all heads that sink on position 0, where another token now is, and on the first token at its new place. Dashed:"
        f" position 0 without an edit. Bands: bootstrap 95 % intervals over {_prompts(runs)} prompts. {_origin(runs)}."
    )
    return Drawing("by-place", layers.lines(panels, "position to which the first token's embedding went"), caption)


def _line(config: BosSwap, name: str, values: NDArray) -> layers.Line:
    """A line over layers of float[prompt, layer]."""
    return layers.Line(name, range(values.shape[-1]), list(intervals.intervals(values, axis=0, seed=config.seed)))


def attention_maps(config: BosSwap, name: str, data: xarray.Dataset) -> Drawing:
    """Maps of one prompt before and after."""
    tokens = data.attrs["study"]["token_texts"][0][: max(TOKENS, config.shown + 4)]
    values = data["attention"].isel(prompt=0).mean("head").values
    caption = (
        f"Attention of one prompt {name}, mean over heads, first {len(tokens)} tokens as they stand in the text (the two"
        f" embeddings that change places are those of positions 0 and {config.shown}), on one colour scale; grey: keys that a"
        f" query cannot see. {origin(data)}."
    )
    rows = [str(label) for label in data["edit"].values]
    figure = attention.maps(values, rows, data["attention_layer"].values.tolist(), tokens)
    return Drawing(f"attention-{name.replace(' ', '-').lower()}", figure, caption)


def activation_maps(config: BosSwap, runs: Mapping[str, xarray.Dataset]) -> Drawing:
    """The largest |h| at each depth and position, before and after."""
    swap = 1 + config.positions.index(config.shown)
    shown = max(POSITIONS, config.shown + 4)
    means = {name: data["resid_max"].isel(edit=[0, swap]).mean("prompt") for name, data in runs.items()}
    values = np.concatenate([mean.values[..., :shown] for mean in means.values()])
    titles = [f"{name}: {label}" for name, mean in means.items() for label in mean["edit"].values]
    caption = (
        f"Largest absolute value of the residual stream by depth and position (first {values.shape[-1]} positions), mean over"
        f" {_prompts(runs)} prompts, one logarithmic colour scale. {_origin(runs)}."
    )
    return Drawing("largest-activation", layers.activations(values, titles), caption)


def _prompts(runs: Mapping[str, xarray.Dataset]) -> int:
    return next(iter(runs.values())).sizes["prompt"]


def _origin(runs: Mapping[str, xarray.Dataset]) -> str:
    first = next(iter(runs.values()))
    return f"{origin(first, text=False)}, {first.attrs['study']['text'].partition(', because')[0]}"
