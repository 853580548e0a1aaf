"""The figures of gu/angles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.experiments.base import Drawing
from sinkjax.experiments.captions import origin
from sinkjax.experiments.gu.config import Angles
from sinkjax.experiments.gu.first_token import spread
from sinkjax.experiments.gu.geometry import effective_rank
from sinkjax.experiments.summary import LEVEL
from sinkjax.report.figures import grid, layers

COMPONENTS = 16  # singular values that are drawn
LAYER = "layer (0-based)"


def drawings(config: Angles, scores: Any, text: Any, random: Any) -> tuple[Drawing, ...]:
    """Every figure. scores: the unedited run. text, random: the keys across prompts."""
    source = f"{origin(scores)}, {scores.sizes['prompt']} prompts"
    return (
        *by_layer(config, scores, text, source),
        by_head(scores, source),
        spectrum({"natural text": text, "random tokens": random}, source),
        rank_by_layer(config, {"natural text": text, "random tokens": random}, source),
    )


def by_layer(config: Angles, scores: Any, text: Any, source: str) -> tuple[Drawing, Drawing]:
    """Attention and cosines, and the two parts of the score gap, in each layer."""
    others = [position for position in text["position"].values.tolist() if position]
    x = range(scores.sizes["layer"])

    def panel(title: str, ylabel: str, name: str) -> layers.Panel:
        values = scores[name].values
        first = list(intervals.intervals(values[..., 0].mean(axis=2).T, level=LEVEL, seed=config.seed))
        lines = [layers.Line("key 0", x, first), layers.Line("other keys", x, _range(values, others))]
        return layers.Panel(title, ylabel, lines, signed=True)

    bands = (
        "Means over heads. Bands of key 0: bootstrap 95 % intervals over prompts; of other keys: the range of"
        f" {len(others)} random positions. {source}."
    )
    received = panel("attention received", "share of attention,\nor cosine (no unit)", "attention_received")
    cosine = panel("cosine of queries with the key", "", "query_key_cosine")
    gaps = [panel("from the angle", "score gap (nats)", "angle_part"), panel("from the norms", "", "norm_part")]
    return (
        Drawing(
            "cosine-by-layer",
            layers.lines([[received, cosine]], LAYER, legend_above=True),
            f"Attention that a key receives and its cosine with the queries that see it, rotated, by layer. {bands}",
        ),
        Drawing(
            "score-gap-by-layer",
            layers.lines([gaps], LAYER, legend_above=True),
            "How far the score of a key lies above those of the other keys of the same query, through the angle (left) and"
            f" through the norms (right); the two add up to the whole gap. {bands}",
        ),
    )


def _range(values: NDArray, positions: list[int]) -> list[Interval]:
    """Mean and range over other positions of each layer."""
    means = values[..., positions].mean(axis=(0, 2), dtype=np.float64)
    return [spread(layer) for layer in means]


def by_head(scores: Any, source: str) -> Drawing:
    """The cosine with key 0 and the parts of its gap, for each layer and head."""
    names = [str(layer) for layer in range(scores.sizes["layer"])]

    def first(name: str) -> NDArray:
        return scores[name].values[..., 0].mean(axis=0)

    maps = {"from the angle": first("angle_part"), "from the norms": first("norm_part")}
    largest = max(float(np.abs(values).max()) for values in maps.values())
    figure = grid.grids(
        [grid.Column(f"score gap of key 0 {title}", names, LAYER) for title in maps],
        [grid.Row(list(maps.values()), "score gap (nats)", (-largest, largest), signed=True)],
        [str(head) for head in range(scores.sizes["head"])],
        "query head (0-based)",
    )
    caption = (
        "How far the score of key 0 lies above those of the other keys, for each layer and head, split into the part of the angle"
        f" and the part of the norms; both parts on one scale, white: nothing. Means over prompts. {source}."
    )
    return Drawing("angle-and-norm-by-head", figure, caption)


def spectrum(data: Mapping[str, Any], source: str) -> Drawing:
    """The singular values of the keys of one position across prompts."""
    row = []
    for title, one in data.items():
        values = one["singular"].values
        relative = (values / values[..., :1]).mean(axis=(0, 1))[:, :COMPONENTS]
        lines = _first_and_others(range(1, relative.shape[1] + 1), relative.T)
        row.append(layers.Panel(title, "singular value\nover the largest one", lines, log=True))
    caption = (
        "Singular values of all prompts' keys at one position, not centred, over the largest one; mean over layers and key-value"
        f" heads. Band: range of random other positions. {source}."
    )
    return Drawing("key-spectrum", layers.lines([row], "singular value, counted from 1", legend_above=True), caption)


def rank_by_layer(config: Angles, data: Mapping[str, Any], source: str) -> Drawing:
    """Effective rank and energy shared between halves of the prompts, in each layer."""
    shared, ranks = [], []
    for title, one in data.items():
        x = range(one.sizes["layer"])
        energy = 100 * one["shared"].mean(("kv_head", "prompt")).transpose("layer", "position").values
        rank = effective_rank(one["singular"].values).mean(axis=1)
        what = "one direction" if config.rank == 1 else f"{config.rank} directions"
        shared.append(layers.Panel(title, f"energy in {what}\nof the other half (%)", _first_and_others(x, energy)))
        ranks.append(layers.Panel(title, "effective rank\nacross prompts", _first_and_others(x, rank)))
    caption = (
        "Top: share of the squared norm of one half of the prompts' keys that lies in the first singular directions of the other"
        " half's. Bottom: effective rank of the keys of one position across all prompts. Means over key-value heads; bands: range"
        f" of random other positions. {source}."
    )
    return Drawing("key-rank-by-layer", layers.lines([shared, ranks], LAYER, legend_above=True), caption)


def _first_and_others(x: range, values: NDArray) -> list[layers.Line]:
    """Lines of float[x, position]: position 0, and the range of the others."""
    first = [Interval(value, value, value, 1, 0, LEVEL, "none") for value in values[:, 0].tolist()]
    return [
        layers.Line("keys of position 0", x, first),
        layers.Line("keys of other positions", x, [spread(row) for row in values[:, 1:]]),
    ]
