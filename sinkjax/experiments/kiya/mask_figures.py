"""The figures of kiya/mask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sinkjax.experiments.base import Arm, Drawing
from sinkjax.experiments.kiya.config import Mask
from sinkjax.experiments.summary import Table
from sinkjax.plots import attention, layers

if TYPE_CHECKING:
    import xarray

TOKENS, POSITIONS = 20, 24  # drawn of each prompt, so that a tick is legible and a column is visible


def drawings(
    config: Mask,
    data: xarray.Dataset,
    maps: xarray.Dataset,
    columns: Mapping[str, Sequence[Arm]],
    table: Table,
    measured: Sequence[str],
    featured: Sequence[str],
) -> Iterator[Drawing]:
    """Every figure. columns: title -> the arms along one x axis, by their place. measured: names of the summary's measures."""
    key, moved = config.key, config.key + 1
    sweep, study, N = data.attrs["sweep"], data.attrs["study"], data.sizes["prompt"]
    origin = f"{sweep['model']['name']} in {sweep['dtype']}, BOS {study['bos']}, {study['text'].partition(', because')[0]}"

    tokens = study["token_texts"][0][:TOKENS]
    values = maps["attention"].isel(prompt=0).mean("head").values
    yield Drawing(
        "attention-maps",
        attention.maps(values, [str(label) for label in maps["edit"].values], maps["attention_layer"].values.tolist(), tokens),
        f"Attention maps of one prompt, mean over heads, first {len(tokens)} tokens, on one colour scale; grey: keys that a query"
        f" cannot see. A bright column is a sink. {origin}.",
    )

    titles = {title: f"masked: {title}" for title in columns}
    yield Drawing(
        "sink-by-edited-layer",
        layers.lines(
            [
                [
                    _panel(titles[title], "heads that sink on the key (%)", chosen, table, measured[:2], ("key", key, moved))
                    for title, chosen in columns.items()
                ],
                [
                    _panel(
                        titles[title],
                        "largest |h| at the position",
                        chosen,
                        table,
                        measured[2:4],
                        ("position", key, moved),
                        log=True,
                    )
                    for title, chosen in columns.items()
                ],
            ],
            "edited layer l (0-based)",
        ),
        "Where the sink (top) and the largest activation (bottom) are, against the edited layer. Dashed: no edit. Bands:"
        f" bootstrap 95 % intervals over {N} prompts. {origin}.",
    )

    grid = {
        f"attention to key {entry}": {titles[title]: _received(data, chosen, entry) for title, chosen in columns.items()}
        for entry in (key, moved)
    }
    yield Drawing(
        "attention-by-layer",
        layers.received(grid, "edited layer l (0-based)"),
        f"Attention that key {key} (top) and key {moved} (bottom) receive in each layer, against the edited layer. An edited"
        f" layer has no attention to key {key}; what lies above it shows what the edit does to later layers. Mean over heads"
        f" and {N} prompts, one colour scale. {origin}.",
    )

    shown = data["resid_max"].sel(edit=list(featured)).mean("prompt").values[..., :POSITIONS]
    yield Drawing(
        "largest-activation",
        layers.activations(shown, [label if label == featured[0] else f"masked: {label}" for label in featured]),
        f"Largest absolute value of the residual stream by depth and position (first {shown.shape[-1]} positions), mean over {N}"
        f" prompts, one logarithmic colour scale. {origin}.",
    )


def _panel(
    title: str,
    ylabel: str,
    chosen: Sequence[Arm],
    table: Table,
    measured: Sequence[str],
    names: tuple[str, int, int],
    log: bool = False,
) -> layers.Panel:
    """Two measures, of the masked key and of the next one, along a column's arms."""
    kind, *positions = names
    baseline = next(iter(table.values())).arm
    series = [
        layers.Line(
            f"{kind} {position}" + (" (masked)" if position == positions[0] else ""),
            [arm.place for arm in chosen if arm.place is not None],
            [table[arm.edit.label, measure].value for arm in chosen],
            table[baseline, measure].value.mean,
        )
        for measure, position in zip(measured, positions, strict=True)
    ]
    return layers.Panel(title, ylabel, series, log)


def _received(data: xarray.Dataset, chosen: Sequence[Arm], key: int) -> np.ndarray:
    """Attention to `key`, mean over heads and prompts: float[edited layer, layer where it is read]."""
    labels = [arm.edit.label for arm in chosen]
    return data["attention_received"].sel(edit=labels, key=key).mean(["prompt", "head"]).values
