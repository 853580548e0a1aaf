"""The figures of gu/sink-rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sinkjax.analysis import intervals, metrics
from sinkjax.analysis.intervals import Interval
from sinkjax.experiments.base import Drawing
from sinkjax.experiments.gu.config import SinkRate
from sinkjax.experiments.gu.rates import KINDS, measure, rates, thresholds
from sinkjax.experiments.summary import LEVEL, Table
from sinkjax.report.figures import layers, points

THRESHOLDS = np.linspace(0.05, 0.95, 19)
HERE = "here"


def drawings(config: SinkRate, data: Mapping[str, Any], table: Table) -> tuple[Drawing, ...]:
    """Every figure. data: kind of input -> its unedited run. table: the rates of key 0."""
    model = next(iter(data.values())).attrs["sweep"]["model"]["name"]
    origin = f"{model}, {config.prompts} sequences of {config.length} tokens a kind. Bands: bootstrap 95 % intervals."
    return (
        beside_papers(config, table, model, tuple(data)),
        by_layer(config, data, origin),
        by_key(config, data, origin),
        by_threshold(config, data, origin),
    )


def beside_papers(config: SinkRate, table: Table, model: str, kinds: tuple[str, ...]) -> Drawing:
    """The rates of this model beside the published ones."""
    columns: dict[str, list[points.Point]] = {}
    for kind in kinds:
        for eps in thresholds(config):
            entries = [entry for entry in config.published if (KINDS[entry["inputs"]], entry["eps"]) == (kind, eps)]
            if entries or eps == config.eps:
                found = points.Point(model, table[kind, measure(eps)].value, HERE)
                others = [
                    points.Point(entry["model"], _exact(entry["rate"]), f"published ({entry['source']})") for entry in entries
                ]
                columns[f"{kind}\neps {eps:g}"] = [found, *others]
    caption = (
        "Heads that sink on the first key, in per cent, of this model (bootstrap 95 % intervals over sequences) and of models in"
        " papers, for each kind of input and threshold for which a paper gives a number. Secondary: not from the paper's text."
    )
    figure = points.points(columns, "heads that sink on key 0 (%)", limits=(-4, 104))
    return Drawing("sink-rate-beside-papers", figure, caption)


def by_layer(config: SinkRate, data: Mapping[str, Any], origin: str) -> Drawing:
    """Rates of the first key in each layer, a panel for each threshold."""
    row = []
    for eps in sorted(thresholds(config)):
        lines = []
        for kind, one in data.items():
            values = 100 * metrics.sink_rate(one, 0, eps, per="layer")
            lines.append(layers.Line(kind, range(values.shape[1]), _intervals(values.T, config)))
        row.append(layers.Panel(f"eps {eps:g}", "heads that sink on key 0 (%)", lines))
    caption = f"Share of a layer's heads that sink on the first key, by kind of input and threshold eps. {origin}"
    return Drawing("sink-rate-by-layer", layers.lines([row], "layer (0-based)", legend_above=True), caption)


def by_key(config: SinkRate, data: Mapping[str, Any], origin: str) -> Drawing:
    """Rates of every key of the first half, a panel for each kind of input."""
    keys = tuple(range(config.length // 2 + 1))
    row = []
    for kind, one in data.items():
        lines = [
            layers.Line(f"eps {eps:g}", keys, _intervals(rates(one, keys, eps).T, config)) for eps in sorted(thresholds(config))
        ]
        row.append(layers.Panel(kind, "heads that sink on the key (%)", lines))
    caption = (
        "Share of all heads that sink on a key, by its position, for the first half of the positions, which at least half of the"
        f" queries see. {origin}"
    )
    return Drawing("sink-rate-by-key", layers.lines([row], "position of the key (0-based)", legend_above=True), caption)


def by_threshold(config: SinkRate, data: Mapping[str, Any], origin: str) -> Drawing:
    """Rates of the first key against the threshold: how little they hang on its choice."""
    lines = []
    for kind, one in data.items():
        values = np.stack([rates(one, (0,), eps)[:, 0] for eps in THRESHOLDS])
        lines.append(layers.Line(kind, THRESHOLDS.round(2).tolist(), _intervals(values, config)))
    panel = layers.Panel("all layers and heads", "heads that sink on key 0 (%)", lines)
    caption = f"Share of all heads whose mean attention to the first key exceeds eps, against eps. {origin}"
    return Drawing("sink-rate-by-threshold", layers.lines([[panel]], "threshold eps (attention received, 0 to 1)"), caption)


def _intervals(values: np.ndarray, config: SinkRate) -> list[Interval]:
    """Means over prompts of float[x, prompt]."""
    return list(intervals.intervals(values, level=LEVEL, seed=config.seed))


def _exact(value: float) -> Interval:
    """A published number, which comes without an interval."""
    return Interval(float(value), None, None, 1, 0, LEVEL, "none", "published")
