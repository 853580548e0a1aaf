"""The figures of a study of pretraining: learning curves, and the rows beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sinkjax.report.figures.bands import Band, Column, bands
from sinkjax.report.figures.points import Point, points
from sinkjax.report.section import Drawing
from sinkjax.studies.papers._pretrain import rows as summary
from sinkjax.studies.papers._pretrain.config import Ablation, RowSpec
from sinkjax.studies.papers._pretrain.rows import Stores

TOGETHER = 5  # rows of a table in one row of panels, so that their colours can be told apart
HERE, PAPER = "here", "paper"
SINKS = ("sink", "sink_2", "sink_3", "sink_4", "sink_5", "sink_bias")
# quantity with its unit -> of a training: float[run, point]
CURVES = {
    "valid loss (nats)": lambda data: data["loss"].values,
    "Sink_1 (% of heads)": lambda data: summary.sinks(data)[..., 0],
    "norm of token 1 over others": lambda data: data["norm_ratio"].values.max(axis=-1),
}


def learning(results: Any) -> Drawing | None:
    """Loss, sink and norm ratio against steps; the first row of the table stands in every row of panels."""
    config, stores = results.config, results.trained
    there = [spec for spec in config.here if spec.name in stores]
    if not there:
        return None
    first, others = there[0], there[1:]
    groups = [[first, *group] for group in np.array_split(np.array(others, object), max(1, math.ceil(len(others) / TOGETHER)))]
    grid = [[[_band(spec.title, stores[spec.name], of) for spec in group] for of in CURVES.values()] for group in groups]
    columns = [Column("valid loss\n(nats)", limits=_losses(grid)), Column("Sink$_1$\n(% of heads)", limits=_percent(grid))]
    columns.append(Column("norm of token 1\nover others", log=True))
    figure = bands(columns, grid, "step")
    caption = (
        f"{config.title}, at size {config.size}: held-out loss, share of heads that sink on the first token, and its norm over"
        " that of the others (largest over depths), against steps. Lines: means over seeds; bands: lowest and highest seed."
        f" {_seeds(stores, there)} A line that ends early belongs to a training that is not finished, or diverged."
    )
    return Drawing("learning", figure, caption)


def sinks(results: Any) -> Drawing | None:
    """The sinks of the rows beside the paper's, each quantity in a panel."""
    config, stores = results.config, results.trained
    if not stores:
        return None
    chosen = [name for name in SINKS if name == "sink" or name in config.shown]
    columns = {f"Sink$_{name[5:] or 1}$".replace("bias", "*"): _beside(config, stores, name) for name in chosen}
    figure = points(columns, "heads that sink (%)")
    caption = (
        "Heads that give a token (or, Sink_*, a bias) more than 0.3 of the attention of 64 positions, beside the paper's numbers."
        f" Here: means over seeds at size {config.size}, bars: bootstrap 95 % intervals. The paper's are of one run each."
    )
    return Drawing("sinks", figure, caption)


def losses(results: Any) -> Drawing | None:
    """How much higher each row's loss is than the first row's, here and in the paper; nothing if there are no two rows."""
    config, stores = results.config, results.trained
    first = config.row_specs[0]
    base = first.paper.get("loss")
    found = []
    for spec in config.here[1:]:
        there = spec.name in stores and first.name in stores
        here = summary.difference(stores, config, spec.name, first.name, "loss") if there else summary.alone(None)
        found.append(Point(spec.title, here, HERE))
        paper = spec.paper.get("loss")
        if isinstance(base, int | float) and isinstance(paper, int | float):
            found.append(Point(spec.title, summary.alone(paper - base), PAPER))
    if not any(point.kind == HERE and point.value.mean is not None for point in found):
        return None
    figure = points({f"against {first.title}": found}, "difference in valid loss (nats)")
    caption = (
        f"Held-out loss of each row less that of the first row ({first.title}), beside the same difference in the paper. Losses"
        " themselves cannot be compared, since text and tokenizer differ. Here: paired by seed, bars: bootstrap 95 % intervals."
    )
    return Drawing("losses", figure, caption)


def _beside(config: Ablation, stores: Stores, measure: str) -> list[Point]:
    found = []
    for spec in config.here:
        paper = spec.paper.get(measure)
        here = summary.mean(stores, config, spec, measure) if spec.name in stores else summary.alone(None)
        found.append(Point(spec.title, here, HERE))
        if isinstance(paper, int | float):
            found.append(Point(spec.title, summary.alone(paper), PAPER))
    return found


def _band(name: str, data: Any, of: Any) -> Band:
    """Mean, lowest and highest over the runs that are still going at each evaluation."""
    values = np.asarray(of(data), float)
    there = np.isfinite(values).any(axis=0)
    values, steps = values[:, there], data["step"].values[:, there]
    return Band(name, np.nanmax(steps, axis=0), np.nanmean(values, axis=0), np.nanmin(values, axis=0), np.nanmax(values, axis=0))


def _losses(grid: Sequence[Sequence[Sequence[Band]]]) -> tuple[float, float]:
    """Limits that show where losses end, not where untrained models begin."""
    ends = np.array([band.middle[-1] for row in grid for band in row[0]])
    lows = [band.low.min() for row in grid for band in row[0]]
    room = max(0.3, 1.5 * float(np.quantile(ends, 0.75) - min(lows)))
    return float(min(lows)) - 0.05 * room, float(min(lows)) + 1.5 * room


def _percent(grid: Sequence[Sequence[Sequence[Band]]]) -> tuple[float, float]:
    most = max(band.high.max() for row in grid for band in row[1])
    return -0.03 * max(most, 10.0), 1.05 * max(float(most), 10.0)


def _seeds(stores: Stores, there: Sequence[RowSpec]) -> str:
    counts = {stores[spec.name].sizes["run"] for spec in there}
    return f"{min(counts)} to {max(counts)} seeds." if len(counts) > 1 else f"{counts.pop()} seed(s) a row."
