"""The figures of trigger/heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.summary import LEVEL
from sinkjax.report.figures import layers
from sinkjax.report.figures.grid import Column, Row, grids
from sinkjax.report.section import Drawing
from sinkjax.studies.papers.trigger._lab import OTHERS

THRESHOLDS = [round(0.05 * step, 2) for step in range(1, 20)]


def sinking(config: Any, data: Mapping[str, Any], labels: Mapping[str, str]) -> Drawing:
    """How many heads sink, against the threshold from which on one counts."""
    panels = []
    for size in config.sizes:
        lines = []
        for name, label in labels.items():
            if name.endswith(f"-{size}"):
                for kind, words in (("share", "share of row"), ("weight", "raw weight")):
                    if kind == "weight" and name.startswith("softmax"):
                        continue  # the same
                    found = data[name][kind].sel(rows=OTHERS, target="bos").transpose("run", "layer", "head").values
                    many = [(found >= threshold).sum(axis=(1, 2)).astype(float) for threshold in THRESHOLDS]
                    values = list(intervals.intervals(np.stack(many), level=LEVEL, seed=config.seed))
                    line = f"{label.removesuffix(f' {size}')}, {words}" if name.startswith("relu") else "softmax"
                    lines.append(layers.Line(line, THRESHOLDS, values))
        total = np.prod([int(part) for part in size.split("x")])
        panels.append(layers.Panel(f"{size}: {total} heads", "heads that sink", lines, top=float(total)))
    figure = layers.lines([panels], "mean mass on BOS from which on a head sinks", legend_above=True)
    caption = (
        "How many heads of a model sink, against the threshold on the mean mass of BOS in the rows of all tokens but BOS and the"
        f" trigger; the summary takes {config.sinks:g}. Bands: bootstrap 95 % intervals over {config.seeds} runs."
    )
    return Drawing("sinking-heads", figure, caption)


def by_head(config: Any, data: Mapping[str, Any], labels: Mapping[str, str]) -> Drawing:
    """The mass of BOS in each layer and head, for each seed."""
    kinds = {"share": "mean share of BOS, other rows", "weight": "mean weight on BOS, other rows"}
    columns, values = [], {kind: list[NDArray]() for kind in kinds}
    for name, label in labels.items():
        found = data[name]
        names = [f"{layer}.{head}" for layer in range(found.sizes["layer"]) for head in range(found.sizes["head"])]
        columns.append(Column(label, names, "layer.head"))
        for kind in kinds:
            masses = found[kind].sel(rows=OTHERS, target="bos").transpose("layer", "head", "run").values
            values[kind].append(masses.reshape(len(names), -1))
    seeds = [str(seed) for seed in next(iter(data.values()))["run"].values]
    top = max(1.0, max(float(np.nanmax(entry)) for entry in values["weight"]))
    rows = [
        Row(values["share"], "share", limits=(0, 1)),
        Row(values["weight"], "weight", limits=(0, top)),
    ]
    caption = (
        "Mean mass of BOS in the rows of all tokens but BOS and the trigger, in each layer and head (from 0), one line a seed:"
        " as its share of the row, and as the weight that was used. For softmax these are the same."
    )
    return Drawing("bos-by-head", grids(columns, rows, seeds, "seed", height=2.1), caption)
