"""The figures of a study of pretraining: learning curves, and the rows beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import sinkjax.studies as st
from sinkjax.analysis.intervals import Interval
from sinkjax.report.figures.bands import Band, Column, bands
from sinkjax.report.figures.points import points
from sinkjax.report.section import Drawing
from sinkjax.studies.papers._pretrain import rows as summary
from sinkjax.studies.papers._pretrain.config import RowSpec

TOGETHER = 5  # rows of a table in one row of panels, so that their colours can be distinguished
HERE, PAPER = "here", "paper"
SINKS = ("sink", "sink_2", "sink_3", "sink_4", "sink_5", "sink_bias")


def learning(results: st.Results) -> Drawing | None:
    """Loss, sink and norm ratio against steps; the first row of the table is in every row of panels."""
    config = results.config
    there = [spec for spec in config.here if spec.name in results]
    if not there:
        return None
    first, others = there[0], there[1:]
    groups = [[first, *group] for group in np.array_split(np.array(others, object), max(1, math.ceil(len(others) / TOGETHER)))]
    curves: list[Callable[[Any], Any]] = [  # of a training: float[run, point]
        lambda data: data["loss"].values,
        lambda data: summary.sinks(data)[..., 0],
        lambda data: data["norm_ratio"].values.max(axis=-1),
    ]
    grid = [[[_band(spec.title, results[spec.name], of) for spec in group] for of in curves] for group in groups]
    columns = [
        Column("valid loss\n(nats)", limits=_losses([band for row in grid for band in row[0]])),
        Column("Sink$_1$\n(% of heads)", limits=_percent([band for row in grid for band in row[1]])),
        Column("norm of token 1\nover others", log=True),
    ]
    counts = {results[spec.name].sizes["run"] for spec in there}
    seeds = f"{min(counts)} to {max(counts)} seeds" if len(counts) > 1 else f"{counts.pop()} seed(s) a row"
    caption = (
        f"{config.title}, at size {config.size}: held-out loss, share of heads that sink on the first token, and its norm over"
        " that of the others (largest over depths), against steps. Lines: means over seeds; bands: lowest and highest seed."
        f" {seeds}. A line that ends early belongs to a training that is not finished, or diverged."
    )
    return Drawing("learning", bands(columns, grid, "step"), caption)


def sinks(results: st.Results) -> Drawing | None:
    """The sinks of the rows beside the paper's, a panel for each measure."""
    config = results.config
    if not results.stores:
        return None

    def here(spec: RowSpec, measure: str) -> Interval:
        return summary.mean(results, spec, measure) if spec.name in results else summary.alone(None)

    columns = {
        f"Sink$_{name[5:] or 1}$".replace("bias", "*"): [
            point for spec in config.here for point in _points(spec, here(spec, name), spec.paper.get(name))
        ]
        for name in SINKS
        if name == "sink" or name in config.shown
    }
    caption = (
        "Heads that give a token (or, Sink_*, a bias) more than 0.3 of the attention of 64 positions, beside the paper's numbers."
        f" Here: means over seeds at size {config.size}, bars: 95 % intervals. The paper's are of one run each."
    )
    return Drawing("sinks", points(columns, "heads that sink (%)"), caption)


def losses(results: st.Results) -> Drawing | None:
    """How much higher each row's loss is than the first row's, here and in the paper; nothing if there are no two rows."""
    first = results.config.row_specs[0]
    base = first.paper.get("loss")
    found = []
    for spec in results.config.here[1:]:
        there, paper = spec.name in results and first.name in results, spec.paper.get("loss")
        here = summary.difference(results, spec.name, first.name, "loss") if there else summary.alone(None)
        both = isinstance(base, int | float) and isinstance(paper, int | float)
        found += _points(spec, here, paper - base if both else None)
    if not any(point.kind == HERE and point.value.mean is not None for point in found):
        return None
    caption = (
        f"Held-out loss of each row less that of the first row ({first.title}), beside the same difference in the paper. Losses"
        " themselves cannot be compared, since text and tokenizer differ. Here: paired by seed, bars: 95 % intervals."
    )
    return Drawing("losses", points({f"against {first.title}": found}, "difference in valid loss (nats)"), caption)


def _points(spec: RowSpec, here: Interval, paper: Any) -> list[st.Point]:
    """The number of a row here and, if the paper has one, there."""
    found = [st.Point(spec.title, here, HERE)]
    return [*found, st.Point(spec.title, summary.alone(paper), PAPER)] if isinstance(paper, int | float) else found


def _band(name: str, data: Any, of: Callable[[Any], Any]) -> Band:
    """Mean, lowest and highest over the runs that are still running at each evaluation."""
    values = np.asarray(of(data), float)
    there = np.isfinite(values).any(axis=0)
    values, steps = values[:, there], data["step"].values[:, there]
    return Band(name, np.nanmax(steps, axis=0), np.nanmean(values, axis=0), np.nanmin(values, axis=0), np.nanmax(values, axis=0))


def _losses(shown: Sequence[Band]) -> tuple[float, float]:
    """Limits that show where losses end, not where untrained models begin."""
    low = min(float(band.low.min()) for band in shown)
    room = max(0.3, 1.5 * float(np.quantile([band.middle[-1] for band in shown], 0.75) - low))
    return low - 0.05 * room, low + 1.5 * room


def _percent(shown: Sequence[Band]) -> tuple[float, float]:
    most = max(10.0, *(float(band.high.max()) for band in shown))
    return -0.03 * most, 1.05 * most
