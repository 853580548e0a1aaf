"""The figures of gu/repeat-bound."""

from __future__ import annotations

from typing import Any

import numpy as np

from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.experiments.base import Drawing
from sinkjax.experiments.captions import origin
from sinkjax.experiments.gu.config import RepeatBound
from sinkjax.experiments.summary import LEVEL
from sinkjax.report.figures import layers

NAMES = {"norms": "bound from norms", "pairs": "bound from rotary pairs"}
ATTENTION = "attention to key 0"


def drawings(config: RepeatBound, data: Any) -> tuple[Drawing, ...]:
    """Every figure."""
    source = (
        f"{origin(data, text=False)}, {data.sizes['prompt']} tokens, each repeated; bands: bootstrap 95 % intervals over tokens."
    )
    return (by_length(config, data, source), by_layer(config, data, source))


def by_length(config: RepeatBound, data: Any, source: str) -> Drawing:
    """Attention to the first key and its bounds against the length of the prompt."""
    tokens = data["tokens"].values.tolist()
    even = [float((1 / np.arange(1, size + 1)).mean()) for size in tokens]
    row = []
    for title, over in (("mean over heads", "mean"), ("largest of all heads", "max")):
        series = {"closed form": data["closed"]} | {name: data["bound"].sel(xi_from=kind) for kind, name in NAMES.items()}
        lines = [
            layers.Line(name, tokens, _over_prompts(getattr(values, over)(("layer", "head")), "tokens", config))
            for name, values in series.items()
        ]
        lines.append(layers.Line("even attention", tokens, [_exact(value) for value in even]))
        row.append(layers.Panel(title, ATTENTION, lines, log=True))
    caption = (
        "Attention to the first key, mean over queries, with one token repeated: in closed form, and at most by the paper's bound"
        f" and by a tighter one, against the length of the prompt; even attention is that of equal scores. {source}"
    )
    return Drawing("bound-by-length", layers.lines([row], "tokens of the prompt", legend_above=True, log_x=True), caption)


def by_layer(config: RepeatBound, data: Any, source: str) -> Drawing:
    """Attention to the first key and its bounds in each layer, for the shortest and the longest prompt."""
    x = range(data.sizes["layer"])
    row = []
    for tokens in dict.fromkeys((int(data["tokens"][0]), int(data["tokens"][-1]))):
        series = {"closed form": data["closed"]} | {name: data["bound"].sel(xi_from=kind) for kind, name in NAMES.items()}
        lines = [
            layers.Line(name, x, _over_prompts(values.sel(tokens=tokens).mean("head"), "layer", config))
            for name, values in series.items()
        ]
        row.append(layers.Panel(f"{tokens} tokens", ATTENTION, lines, log=True))
    caption = f"Attention to the first key with one token repeated, and its bounds, by layer; means over heads. {source}"
    return Drawing("bound-by-layer", layers.lines([row], "layer (0-based)", legend_above=True), caption)


def _over_prompts(values: Any, along: str, config: RepeatBound) -> list[Interval]:
    """Means over prompts at each entry of an axis."""
    return list(intervals.intervals(values.transpose(along, "prompt").values, level=LEVEL, seed=config.seed))


def _exact(value: float) -> Interval:
    return Interval(value, value, value, 1, 0, LEVEL, "none")
